"""`regen.will_it_fit`: can this model train within these bytes?"""

import dataclasses

import torch

from regen import _runtime
from regen._session.caller_memory import CallerMemory
from regen._capture.capture import capture, device_of
from regen._session.settings import Settings
from regen._wrap import WrappedForward, plain_view, same_random_numbers
from regen._session.wrap_runner import WrapPlan


@dataclasses.dataclass
class Fit:
    """True where it fits. `least_budget`: the smallest for which a plan was found."""

    fits: bool
    budget: int
    least_budget: int
    unplanned: int
    overhead: float  # time beyond keeping everything, as a share; None where it does not fit
    message: str

    def __bool__(self):
        return self.fits

    def __str__(self):
        return self.message


def will_it_fit(model, args, budget, *, kwargs=None, reserve=0, **options):
    """Captures and plans a training step of `model` without running it: each operator is tried alone on the device, so that
    what is needed meanwhile is one operator's memory. `reserve`: bytes for the caller's loss and optimizer."""
    plain = plain_view(model) if isinstance(model, WrappedForward) else model
    settings = Settings(budget=budget, reserve=reserve, **{"improve": False, **options})
    with torch.enable_grad():
        captured = capture(plain, args, kwargs, cache=settings.cache)
    caller = CallerMemory(reserve, device_of(model))
    with same_random_numbers(model):
        plan = WrapPlan(captured, settings, caller)
    size = _runtime.format_bytes
    unplanned = plan.step.unplanned_bytes + caller.bytes
    try:
        plan.plan()
    except _runtime.BudgetError as error:
        least = plan.least_budget()
        return Fit(False, plan.gross_budget, None if least is None else least + caller.bytes, unplanned, None, str(error))
    peak, overhead = plan.predicted_peak, plan.report["overhead"]
    least = plan.least_budget()
    least = peak if least is None else min(peak, least + caller.bytes)
    message = (f"fits: {size(peak)} of {size(plan.gross_budget)}, {overhead * 100:+.1f} % time; unplanned {size(unplanned)}, "
               f"least budget {size(least)}")
    return Fit(True, plan.gross_budget, least, unplanned, overhead, message)
