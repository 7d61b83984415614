"""A module that trains under a plan for a while, in place: the same object, whose training passes go through the plan until it is restored.

What callbacks of frameworks need: the module is already in the framework's hands (prepared, moved, inside DDP), and has to be left as it was.
"""

import copy
import dataclasses
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

from regen._session.budget import check_budget
from regen._session.report import PlanReport
from regen._session.turns import Refused
from regen._session.wrapped_module import GRADIENT_CHUNK
from regen._wrap import ModuleSessions, WrappedModule, shallow_copy, without_hooks
from regen.errors import CaptureError, Error, OptionTypeError
from regen.options import RENAMED, BackendOptions, Budget, Options


class PlannedForward:
    """In the place of `model.forward`, on the object.

    What stood there before, on the object (Accelerate's forward that enters autocast) or in its class, is what is planned, and what runs
    without gradients and in evaluation.
    """

    def __init__(self, model: torch.nn.Module, options: Mapping[str, Any], restored: Callable[[], None] = lambda: None) -> None:
        """`restored`: called when the model is as it was again."""
        check_unplanned(model)
        self.model = model
        self.restored = restored
        self.replaced = vars(model).get("forward")
        self.before = model.forward
        self.sessions = InPlaceSessions(self, options)
        self.last_plan: PlanReport | None = None
        functools.update_wrapper(self, self.before, updated=())  # libraries look there for the names of arguments
        model.forward = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns; in training, under the plan."""
        if not (torch.is_grad_enabled() and self.model.training):
            self.sessions.make_way()
            return self.before(*args, **kwargs)
        try:
            return self.sessions.forward(self.model, args, kwargs)
        except Refused:  # the pass of another thread goes on
            raise
        except Error:  # no plan: nothing of it stays
            self.restore()
            raise

    def restore(self) -> None:
        """The model is as it was; the arena goes."""
        self.last_plan = self.plan
        self.sessions.release()
        self.sessions.stop_searches()
        self.restored()
        if vars(self.model).get("forward") is not self:
            return  # replaced by now, or restored already
        if self.replaced is None:
            del self.model.forward
        else:
            self.model.forward = self.replaced

    @property
    def plan(self) -> PlanReport:
        """What the plan in use decided; of a model that was restored, the last one."""
        return self.last_plan if self.last_plan is not None and self.sessions.active is None else self.sessions.plan

    def plain_copy(self) -> torch.nn.Module:
        """What is captured: the model with its former forward, without its own hooks, which run around this one."""
        plain = without_hooks(shallow_copy(self.model))
        del plain.__dict__["forward"]
        if self.replaced is not None:
            plain.forward = bound_to(plain, self.replaced, self.model)
        return plain

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy of the model is a plain one."""
        return copy.deepcopy(self.before, memo)

    def __reduce__(self) -> Any:
        """A pickled model is a plain one: there the name means the method of its class."""
        return getattr, (self.model, "forward")


def bound_to(plain: torch.nn.Module, forward: Any, model: torch.nn.Module) -> Any:
    """A forward on the object, for its copy."""
    bound = isinstance(forward, types.MethodType) and forward.__self__ is model
    return types.MethodType(forward.__func__, plain) if bound else forward


def check_unplanned(model: torch.nn.Module) -> None:
    """One plan for a model."""
    name = type(model).__name__
    if isinstance(model, WrappedModule):
        raise CaptureError(f"cannot plan {name}: regen.wrap has wrapped it already; expected a plain model beside a budget of its framework")
    if isinstance(vars(model).get("forward"), PlannedForward):
        raise CaptureError(f"cannot plan {name}: it is planned already; expected one budget for a model")
    if isinstance(model, torch._dynamo.OptimizedModule):
        raise CaptureError(
            f"cannot plan {name}: torch.compile has compiled it; expected a model that is not compiled, or torch.compile(backend='regen')")


class InPlaceSessions(ModuleSessions):
    """Sessions of a model that stays the same object."""

    def __init__(self, planned: PlannedForward, options: Mapping[str, Any]) -> None:
        options = dict(options)
        chunk, group = options.pop("gradient_chunk", GRADIENT_CHUNK), options.pop("group", "default")
        super().__init__(Options(**options), chunk, group, trains_in_eval=False)
        self.planned = planned

    def plain_of(self, model: torch.nn.Module) -> torch.nn.Module:
        """What is captured."""
        return self.planned.plain_copy()


def checked_options(name: str, budget: Budget, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a framework's budget, as `regen.wrap` has them.

    Args:
        name: of what takes them, for errors.
        budget: bytes of the device.
        options: the others by name.

    Returns:
        All of them.

    Raises:
        OptionError: one has a value or a name that is not expected.
    """
    known = BackendOptions.__annotations__
    for key in options:
        if key in RENAMED:
            raise OptionTypeError(f"{name}({key}=...): the option is called '{RENAMED[key]}' now, expected {RENAMED[key]}={options[key]!r}")
        if key not in known:
            raise OptionTypeError(f"{name}({key}=...): no such option; expected one of {', '.join(sorted(known))}")
    given = {"budget": budget, **options}
    fields = {field.name for field in dataclasses.fields(Options)}
    check_budget(Options(**{key: value for key, value in given.items() if key in fields}))
    return given
