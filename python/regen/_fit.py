"""`regen.will_it_fit`: can this model train within these bytes?"""

import dataclasses

import torch

from regen import _runtime
from regen._session.caller_memory import CallerMemory
from regen._capture.capture import capture, device_of
from regen.options import Options
from regen._wrap import WrappedForward, plain_view, same_random_numbers
from regen._session.wrapped_module import ModuleSession


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
    options = Options(budget=budget, reserve=reserve, **{"improve": False, **options})
    with torch.enable_grad():
        captured = capture(plain, args, kwargs, cache=options.cache)
    caller = CallerMemory(reserve, device_of(model))
    with same_random_numbers(model):
        session = ModuleSession(captured, options, caller)
    size = _runtime.format_bytes
    unplanned = session.step.unplanned_bytes + caller.bytes
    try:
        session.plan()
    except _runtime.BudgetError as error:
        least = session.least_budget()
        return Fit(False, session.gross_budget, None if least is None else least + caller.bytes, unplanned, None, str(error))
    peak, overhead = session.predicted_peak, session.report["overhead"]
    least = session.least_budget()
    least = peak if least is None else min(peak, least + caller.bytes)
    message = (f"fits: {size(peak)} of {size(session.gross_budget)}, {overhead * 100:+.1f} % time; unplanned {size(unplanned)}, "
               f"least budget {size(least)}")
    return Fit(True, session.gross_budget, least, unplanned, overhead, message)
