"""The errors of regen.

All derive from `regen.Error`, and each keeps the built-in base that fits it, so that `except ValueError` or
`except MemoryError` work as well. Messages are one line: what, where, which value, what was expected.
"""

from regen._runtime import BudgetError
from regen._runtime import RegenError as Error

RegenError = Error  # the name of version 0.1


class CaptureError(Error, ValueError):
    """A model, its inputs or its optimizer cannot be captured."""


class CheckError(Error, AssertionError):
    """A wrapped model and the plain one differ; the message names what and by how much."""


class MissingPackageError(Error, ImportError):
    """The framework that an integration is for is not installed."""


class OptionError(Error, ValueError):
    """An option or an argument has a value that is not among the expected ones."""


class OptionTypeError(OptionError, TypeError):
    """An option or an argument is of a type that is not among the expected ones, or has a name that is no longer in use."""


class UsageError(Error):
    """A planned step was used in a way that its plan does not allow: a second backward pass, a replaced parameter."""


__all__ = ["BudgetError", "CaptureError", "CheckError", "Error", "MissingPackageError", "OptionError", "OptionTypeError", "RegenError", "UsageError"]
