"""Budgets as Python values."""

import math

from regen import _runtime
from regen._session.job import job
from regen.errors import Error, OptionError, OptionTypeError
from regen.options import Budget, Options

# No training step fits below: a number under it was meant as a fraction, or in another unit.
LEAST_BYTES = 4096
EXPECTED = "expected bytes as text such as '6GiB' or as an integer above 1 MiB, a fraction below 1 such as 0.5, or 'auto'"


def as_budget(budget: Budget, name: str = "budget") -> _runtime.Budget | None:
    """The budget that a caller gave.

    Args:
        budget: "6GiB", 16e9, 0.5 or "50%" (of the unplanned peak), "auto" or "device" (what is free), or None.
        name: of the option, for errors.

    Returns:
        The same for C++; None for None.

    Raises:
        OptionError: text that is no budget, or a number that is neither a number of bytes nor a fraction.
        OptionTypeError: neither a number nor text.
    """
    if budget is None:
        return None
    if isinstance(budget, str):
        try:
            return _runtime.Budget.parse(budget)
        except Error as error:
            raise OptionError(f"{name}={budget!r}: {error}") from None
    if isinstance(budget, bool) or not isinstance(budget, (int, float)):
        raise OptionTypeError(f"{name}={budget!r}; {EXPECTED}")
    if budget == 0 and name == "host_budget":  # nothing is moved
        return _runtime.Budget.of_bytes(0)
    if isinstance(budget, float) and 0 < budget <= 1:
        return _runtime.Budget.fraction(budget)
    if not math.isfinite(budget) or budget < LEAST_BYTES:
        raise OptionError(f"{name}={budget!r}; {EXPECTED}")
    return _runtime.Budget.of_bytes(int(budget))


def check_budget(options: Options) -> None:
    """Before anything is measured.

    Raises:
        OptionError: the budget is no number of bytes.
        OptionTypeError: there is no budget, and no job whose limit it could be.
    """
    if as_budget(options.budget) is None and job() is None:
        raise OptionTypeError(f"budget=None; {EXPECTED}: only a job of `regen share run` has a --memory to take instead")
