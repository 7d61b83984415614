"""`regen.will_it_fit`: can this model train within these bytes?"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import torch

from regen import _runtime
from regen._capture.capture import capture, device_of
from regen._session.caller_memory import CallerMemory
from regen._session.lending import may_lend
from regen._session.wrapped_module import ModuleSession
from regen._wrap import WrappedModule, plain_view, same_random_numbers
from regen.errors import BudgetError
from regen.options import Algorithms, Budget, Cache, Link, Options, Size, refuses_old_names


@dataclasses.dataclass
class Fit:
    """An answer of `regen.will_it_fit`; true where the model fits.

    Attributes:
        fits: whether a plan keeps the budget.
        budget: in bytes.
        least_budget: the smallest number of bytes for which a plan was found; None: none was.
        unplanned: bytes of the step that keeps everything.
        overhead: time beyond keeping everything, as a fraction; None where it does not fit.
        message: one line for people.
    """

    fits: bool
    budget: int
    least_budget: int | None
    unplanned: int
    overhead: float | None
    message: str

    def __bool__(self) -> bool:
        return self.fits

    def __str__(self) -> str:
        return self.message


@refuses_old_names
def will_it_fit(
    model: torch.nn.Module,
    args: Any,
    budget: Budget,
    *,
    kwargs: Mapping[str, Any] | None = None,
    reserve: Size = 0,
    planner: str = "auto",
    host_budget: Size | None = None,
    time_limit: float = 0.0,
    work_limit: int = 0,
    plan_file: str | os.PathLike[str] | None = None,
    link: Link | None = None,
    cache: Cache = None,
    algorithms: Algorithms = "default",
    cuda_graphs: bool = False,
    releasable: bool = False,
) -> Fit:
    """Captures and plans a training step of a module without running it.

    Each operator is tried alone on the device, so that what is needed meanwhile is one operator's memory.

    Args:
        model: the module; one that is wrapped already is asked as the plain one.
        args: a sample input.
        budget: bytes of the device as in `regen.wrap`.
        kwargs: further sample inputs by name.
        reserve: bytes of the budget for the caller's loss and optimizer.
        planner: name of the planner, or several with commas between them: the best plan counts.
        host_budget: bytes of the host for tensors that are moved there; 0: none are moved; None: no limit.
        time_limit: seconds for the first plan; 0: 5 s, or 1 s where a search runs beside the training.
        work_limit: counted work for the first plan, which gives the same plan on every machine; 0: not counted.
        plan_file: a plan that was written by `save_plan`, in place of a search.
        link: bytes per second to the host, to the device and both together; None: measured.
        cache: folder for measurements and plans; None: REGEN_CACHE or ~/.cache/regen; False: none.
        algorithms: "default": those of plain PyTorch, so its bits; "any": faster or smaller ones too.
        cuda_graphs: on a GPU, launch stretches that are the same in every step as a whole.
        releasable: as in `regen.wrap`.

    Returns:
        Whether it fits, the least budget, and the time that the plan adds.

    Raises:
        CaptureError: the model or its inputs cannot be captured.
        OptionError: an option has a value that is not expected.
    """
    plain = plain_view(model) if isinstance(model, WrappedModule) else model
    options = Options(
        budget=budget, reserve=reserve, planner=planner, host_budget=host_budget, time_limit=time_limit, work_limit=work_limit,
        improve=False, plan_file=plan_file, link=link, cache=cache,
        algorithms=algorithms, cuda_graphs=cuda_graphs, releasable=releasable)
    with torch.enable_grad():
        captured = capture(plain, args, kwargs)
    device = device_of(model)
    caller = CallerMemory(reserve, device, lends=may_lend(options, None, device))
    with same_random_numbers(model):
        session = ModuleSession(captured, options, caller)
    size = _runtime.format_bytes
    unplanned = session.unplanned_bytes + caller.bytes
    try:
        session.plan()
    except BudgetError as error:
        least = session.least_budget()
        return Fit(False, session.gross_budget, None if least is None else least + caller.bytes, unplanned, None, str(error))
    peak, overhead = session.predicted_peak, session.report.overhead
    least = session.least_budget()
    least = peak if least is None else min(peak, least + caller.bytes)
    message = (f"fits: {size(peak)} of {size(session.gross_budget)}, {overhead * 100:+.1f} % time; unplanned {size(unplanned)}, "
               f"least budget {size(least)}")
    return Fit(True, session.gross_budget, least, unplanned, overhead, message)
