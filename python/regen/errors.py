"""The errors of regen. All derive from `Error`; each keeps the built-in base that fits it."""

from regen._runtime import BudgetError
from regen._runtime import RegenError as Error

RegenError = Error  # the name of version 0.1


class CaptureError(Error, ValueError):
    """A model, its inputs or its optimizer cannot be captured. One line: what, where, what was expected."""


class CheckError(Error, AssertionError):
    """A wrapped model and the plain one differ; the message names what and by how much."""


__all__ = ["BudgetError", "CaptureError", "CheckError", "Error", "RegenError"]
