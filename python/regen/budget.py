"""Budgets as people write them."""

from regen import _runtime

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


def free_bytes(device):
    """What a job that starts now could have: what is free, and what torch holds already."""
    _, free = _runtime.device_memory(device)
    room = KERNEL_ROOM.get(device.split(":")[0], 0)
    return max(1, free + _runtime.memory_use(device)["reserved"] - room)
