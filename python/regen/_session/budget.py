"""Budgets as people write them."""

from regen import _runtime
from regen._session.job import job, job_memory

# Kernels that are first called during a step are loaded into memory that nobody accounts for.
KERNEL_ROOM = {"cpu": 0, "cuda": 256 << 20}


def budget_bytes(budget, unplanned, device):
    """Bytes for "6GiB", 16e9, 0.5 (of the unplanned peak) or "auto" (what is free on the device)."""
    if isinstance(budget, str) and budget.strip().lower() == "auto":
        return free_bytes(device)
    if isinstance(budget, str):
        return _runtime.parse_bytes(budget)
    if isinstance(budget, bool) or not isinstance(budget, (int, float)):
        raise TypeError(f"budget={budget!r}; expected bytes such as '6GiB', a share such as 0.5, or 'auto'")
    if 0 < budget <= 1:
        return int(budget * unplanned)
    if budget <= 0:
        raise ValueError(f"budget={budget!r}; expected a positive number of bytes or a share between 0 and 1")
    return int(budget)


def device_budget(budget, unplanned, device, limit=None):
    """The same within the bytes of the job that this process may be; None: all of those. `limit`: what the job may use now, where that
    is known to be other than what it asked for."""
    memory = job_memory()
    if memory is None:
        if budget is None:
            raise TypeError(
                "budget=None; expected bytes such as '6GiB', a share such as 0.5, or 'auto': only a job of `regen share run` has "
                "a --memory to take instead")
        return budget_bytes(budget, unplanned, device)
    limit = memory if limit is None else limit
    if budget is None:
        return limit
    size = budget_bytes(budget, unplanned, device)
    if size > memory and not (isinstance(budget, str) and budget.strip().lower() == "auto"):
        raise _runtime.BudgetError(
            f"budget={budget!r} is {size:,} bytes, more than the {memory:,} that job '{job().name}' was admitted with (--memory); "
            "expected at most those")
    return min(size, limit)


def free_bytes(device):
    """What a job that starts now could have: what is free, and what torch holds already."""
    _, free = _runtime.device_memory(device)
    room = KERNEL_ROOM.get(device.split(":")[0], 0)
    return max(1, free + _runtime.memory_use(device)["reserved"] - room)
