"""Budgets as people write them."""

import math

from regen import _runtime
from regen._session.job import job, job_memory
from regen.errors import BudgetError, OptionError, OptionTypeError
from regen.options import Budget

# Kernels that are first called during a step are loaded into memory that no allocator accounts for.
KERNEL_ROOM = {"cpu": 0, "cuda": 256 << 20}
# No training step fits below: a number under it was meant as a fraction, or in another unit.
LEAST_BYTES = 4096
EXPECTED = "expected bytes as text such as '6GiB' or as an integer above 1 MiB, a fraction below 1 such as 0.5, or 'auto'"


def budget_bytes(budget: Budget, unplanned: int, device: str, name: str = "budget") -> int:
    """Bytes for "6GiB", 16e9, 0.5 (of the unplanned peak) or "auto" (what is free on the device).

    Args:
        budget: what the caller gave.
        unplanned: the bytes of which a budget is a fraction.
        device: such as "cuda:0".
        name: of the option, for errors.

    Returns:
        A positive number of bytes.

    Raises:
        OptionError: a number that is neither a number of bytes nor a fraction.
        OptionTypeError: neither a number nor text.
        Error: text that is no number of bytes.
    """
    if is_auto(budget):
        return free_bytes(device)
    if isinstance(budget, str):
        return _runtime.parse_bytes(budget)
    if isinstance(budget, bool) or not isinstance(budget, (int, float)):
        raise OptionTypeError(f"{name}={budget!r}; {EXPECTED}")
    if isinstance(budget, float) and 0 < budget <= 1:
        return int(budget * unplanned)
    if not math.isfinite(budget) or budget < LEAST_BYTES:
        raise OptionError(f"{name}={budget!r}; {EXPECTED}")
    return int(budget)


def device_budget(budget: Budget, unplanned: int, device: str, limit: int | None = None) -> int:
    """The same within the bytes of the job that this process may be; None: all of those.

    `limit`: what the job may use now, where that is known to be other than what it asked for.
    """
    memory = job_memory()
    if memory is None:
        if budget is None:
            raise OptionTypeError(f"budget=None; {EXPECTED}: only a job of `regen share run` has a --memory to take instead")
        return budget_bytes(budget, unplanned, device)
    limit = memory if limit is None else limit
    if budget is None:
        return limit
    size = budget_bytes(budget, unplanned, device)
    if size > memory and not is_auto(budget):
        raise BudgetError(
            f"budget={budget!r} is {size:,} bytes, more than the {memory:,} that job '{job(required=True).name}' was admitted with "
            "(--memory); expected at most those")
    return min(size, limit)


def is_auto(budget: Budget) -> bool:
    return isinstance(budget, str) and budget.strip().lower() == "auto"


def free_bytes(device: str) -> int:
    """What a job that starts now could have: what is free, and what torch holds already."""
    _, free = _runtime.device_memory(device)
    room = KERNEL_ROOM.get(device.split(":")[0], 0)
    return max(1, free + _runtime.memory_use(device)["reserved"] - room)
