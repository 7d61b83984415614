"""`regen.wrap`: a module that runs its training step under a byte budget."""

import contextlib
import copy
import functools
import os
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any, SupportsIndex, cast

import torch

from regen import _runtime
from regen._capture.arguments import ArgumentSpec, flatten_arguments
from regen._capture.capture import Captured, capture, check_module, device_of
from regen._capture.sized_capture import Sizes
from regen._capture.traced.outputs import Tangents
from regen._capture.traced.symbols import Symbols
from regen._session import distributed
from regen._session.admission import admission_of
from regen._session.budget import check_budget
from regen._session.caller_memory import CallerMemory
from regen._session.lending import may_lend
from regen._session.replay import Replay
from regen._session.shape_cache import ShapeCache
from regen._session.sized_steps import SizedShapes, SizedSteps, allows_sizes
from regen._session.turns import Turns
from regen._session.wrapped_module import GRADIENT_CHUNK, ModuleSession, ShapedModule, SizedModule, StepCall
from regen.errors import CaptureError, OptionError
from regen.options import Algorithms, Budget, Cache, Link, Options, Size, refuses_old_names

FORWARDS = ("forward", "_original_forward")  # on the object: that of others, and the one that they replaced
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@refuses_old_names
def wrap(
    model: torch.nn.Module,
    args: Any = None,
    budget: Budget = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    gradient_chunk: int = GRADIENT_CHUNK,
    group: Any = "default",
    reserve: Size | None = None,
    planner: str = "auto",
    host_budget: Size | None = None,
    time_limit: float = 0.0,
    work_limit: int = 0,
    improve: bool | float | None = None,
    plan_file: str | os.PathLike[str] | None = None,
    link: Link | None = None,
    cache: Cache = None,
    algorithms: Algorithms = "default",
    cuda_graphs: bool = False,
    releasable: bool = False,
    quantum: float = 1e-3,
    debug: bool = False,
) -> "WrappedModule":
    """Plans the forward and backward pass of a module.

        model = regen.wrap(model, (x,), budget="6GiB")
        loss = loss_fn(model(x), y); loss.backward(); optimizer.step()

    Without a sample the first training pass is it: `model = regen.wrap(model, budget="6GiB")`. That pass then raises what is said below.
    One thread at a time may train: a planned pass beside another one is refused.

    Args:
        model: the module to train. It is not changed.
        args: a sample input; None, and no `kwargs`: the inputs of the first training pass.
        budget: bytes of the device for all of the training: "6GiB", 16e9, a fraction of the unplanned peak such as 0.5, or "auto" (what
            is free). None: what a job of `regen share run` was admitted with.
        kwargs: further sample inputs by name.
        gradient_chunk: gradients are handed to autograd when about this many bytes of them are complete.
        group: the ranks that take the same plan; None: a plan of one's own. Without torch.distributed it does not matter.
        reserve: bytes of the budget for what the caller holds (loss, optimizer, buckets); None: measured while training.
        planner: name of the planner, or several with commas between them: the best plan counts.
        host_budget: bytes of the host for tensors that are moved there; 0: none are moved; None: no limit.
        time_limit: seconds for the first plan; 0: 5 s, or 1 s where a search runs beside the training.
        work_limit: counted work for the first plan, which gives the same plan on every machine; 0: not counted.
        improve: search for a better plan while the steps run: True (20 s), False, or seconds; None: True on a GPU.
        plan_file: a plan that was written by `save_plan`, in place of a search.
        link: bytes per second to the host, to the device and both together; None: measured.
        cache: folder for measurements and plans; None: REGEN_CACHE or ~/.cache/regen; False: none.
        algorithms: "default": those of plain PyTorch, so its bits; "any": faster or smaller ones too.
        cuda_graphs: on a GPU, launch stretches that are the same in every step as a whole.
        releasable: the arena's memory can be given back and taken again at its address.
        quantum: of a job that shares its device: seconds of work, at most, before it gives way to another job (or two ops).
        debug: fill released memory with nonsense and check where every result lies.

    Returns:
        A module with the same class name, parameters, buffers and names whose training passes stay within the budget and give the same
        numbers. Its attribute `regen` says what was planned.

    Raises:
        BudgetError: no plan keeps the budget; the message has the reason and the least budget that works.
        CaptureError: the model or its inputs cannot be captured.
        OptionError: an option has a value that is not expected.
    """
    options = Options(
        budget=budget, reserve=reserve, planner=planner, host_budget=host_budget, time_limit=time_limit, work_limit=work_limit,
        improve=improve, plan_file=plan_file, link=link, cache=cache,
        algorithms=algorithms, cuda_graphs=cuda_graphs,
        releasable=releasable, quantum=quantum, debug=debug)
    check_module(model, type(model).__name__)
    if isinstance(gradient_chunk, bool) or not isinstance(gradient_chunk, int) or gradient_chunk < 1:
        raise OptionError(f"gradient_chunk={gradient_chunk!r}; expected a number of bytes, 1 or more")
    wrapped = wrapped_copy(model, ModuleSessions(options, gradient_chunk, group, not model.training))
    if args is None and kwargs is None:
        check_budget(options)  # the rest of what may be wrong shows with the first batch
    else:
        given = args if isinstance(args, (tuple, list)) else () if args is None else (args,)
        wrapped.regen.prepare(wrapped, tuple(given), dict(kwargs or {}))
    return wrapped


def wrapped_copy(model: torch.nn.Module, state: "ModuleSessions") -> "WrappedModule":
    """Shares everything with `model` but its class."""
    kind = type(model)
    if issubclass(kind, WrappedModule):
        raise CaptureError(f"cannot wrap {kind.__name__}: it is wrapped already; expected a plain module")
    if "forward" in vars(model):
        raise CaptureError(
            f"cannot wrap {kind.__name__}: its forward was replaced on the object; "
            "expected a method of its class: wrap the model before another library changes it")
    wrapped = copy.copy(model)
    wrapped.__class__ = type(
        kind.__name__, (WrappedModule, kind), {"__module__": kind.__module__, "plain_kind": kind, "forward": forward_like(kind)})
    object.__setattr__(wrapped, "regen", state)
    return cast(WrappedModule, wrapped)


def forward_like(kind: type[torch.nn.Module]) -> Callable[..., Any]:
    """With the signature of the model's own: libraries look there for the names of its arguments."""
    @functools.wraps(kind.forward)
    def forward(self: "WrappedModule", *args: Any, **kwargs: Any) -> Any:
        return WrappedModule.forward(self, *args, **kwargs)

    return forward


class WrappedModule(torch.nn.Module):
    """A module whose training passes run under a plan; all else goes through the model. Made by `regen.wrap`.

    It goes before the model's own class, so that the wrapped module is an instance of both.

    Attributes:
        regen: what was planned: `print(model.regen.plan)`.
    """

    regen: "ModuleSessions"
    plain_kind: type[torch.nn.Module]  # the model's own class

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns; in training, under the plan."""
        if torch.is_grad_enabled() and (self.training or self.regen.trains_in_eval):
            return self.regen.forward(self, args, kwargs)
        self.regen.make_way()
        return super().forward(*args, **kwargs)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Copies and pickles are of the plain model, wrapped again; they plan when they first run."""
        return wrapped_copy, (plain_view(self, hooks=True), self.regen.fresh())


class ModuleSessions(ShapeCache[ShapedModule]):
    """What `model.regen` is: plans for the shapes of its inputs, one arena at a time."""

    def __init__(self, options: Options, gradient_chunk: int, group: Any, trains_in_eval: bool) -> None:
        super().__init__(Turns("regen.wrap"))
        self.options = options
        self.gradient_chunk = gradient_chunk
        self.group = group
        self.trains_in_eval = trains_in_eval
        self.caller: CallerMemory | None = None
        self.shared: ShapedModule | None = None  # the entry whose plan all ranks have
        self.prepared = False  # whether there was a sample
        self.passes = 0
        self.sized = SizedShapes(self)
        self.has_loss = True  # where the model's outputs say so

    def fresh(self) -> "ModuleSessions":
        """With the same options, and nothing planned. A copy of what was planned plans alone: other ranks may have none."""
        fresh = ModuleSessions(self.options, self.gradient_chunk, self.group, self.trains_in_eval)
        fresh.prepared = self.prepared
        return fresh

    def __deepcopy__(self, memo: dict[int, Any]) -> "ModuleSessions":
        return self.fresh()

    def make_way(self) -> None:
        """The plain model is about to run: it has the arena's room, unless a backward pass is still to come."""
        with self.turns.if_free() as free:
            if free and self.active is not None and not self.active.awaits_backward():
                self.active.release()

    def prepare(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], first_batch: bool = False) -> None:
        """Plans the sample's step with the other ranks, and takes the arena. `first_batch`: the ranks' samples need not be alike."""
        group = distributed.members(self.group)
        flat, spec = flatten_arguments(args, kwargs)
        if first_batch and group is not None and not distributed.alike(group, looks_of(flat)):
            group = None
        shaped, _ = self.shape_for(model, args, kwargs, flat, signature(model, flat, spec), group)
        self.activate(shaped)
        self.shared = shaped if isinstance(shaped.session, distributed.DistributedSession) else None
        shaped.caller.start(shaped.present_bytes())
        self.prepared = True

    def forward(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The forward pass under the plan of this shape."""
        with self.turns.step(may_nest=True):
            return self.planned_forward(model, args, kwargs)

    def planned_forward(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Inside of this thread's turn."""
        if not self.prepared:
            self.prepare(model, args, kwargs, first_batch=True)
        if self.active is not None and self.active.awaits_backward() and not self.overlaps():
            self.begin_to_overlap()
        self.begin_pass()
        shaped, inputs, replay = self.ready_for(model, args, kwargs)
        return shaped.forward(inputs, replay)

    def begin_pass(self) -> None:
        """What the caller still has of the arena leaves it, and a better plan may take its place."""
        if self.caller is not None:
            self.caller.take_back(self.active, begins=True)
            self.caller.end_step()
        self.passes += 1
        if self.shared is not None and distributed.is_meeting(self.passes):
            self.shared.meet(self.passes)

    def ready_for(
        self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[ShapedModule, list[Any], Replay | None]:
        """(the captured passes for a batch with their arena, the program's inputs, how the pass that comes is run again or None)."""
        flat, spec = flatten_arguments(args, kwargs)
        key = signature(model, flat, spec)
        shaped, inputs = self.shape_for(model, args, kwargs, flat, key)
        self.activate(shaped)
        caller = shaped.caller
        caller.start(shaped.present_bytes())
        replay = None if shaped.effects.changes_inputs else Replay(
            lambda: self.again(model, args, kwargs), lambda: signature(model, flat, spec), key, shaped, flat)
        caller.foresee(shaped)
        if self.shared is not None and self.passes == 2:
            self.shared.agree_on_room()
        shaped.make_room()
        caller.begin_step(shaped.own_bytes, shaped.arena_bytes())
        return shaped, inputs, replay

    def again(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StepCall | None:
        """A forward pass once more, in the midst of a backward pass. Attributes of modules stay what later passes have made of them."""
        with self.turns.step(may_nest=True):
            self.begin_pass()
            shaped, inputs, replay = self.ready_for(model, args, kwargs)
            outputs = shaped.run_pass(inputs, replay)
            call = shaped.caller.last_call()
            del outputs  # which kept the call alive
        return call

    def plain_of(self, model: torch.nn.Module) -> torch.nn.Module:
        """What is captured."""
        return plain_view(cast(WrappedModule, model))

    def shape_for(
        self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], flat: list[Any], key: Any, group: Any = None
    ) -> tuple[ShapedModule, list[Any]]:
        """(the captured passes for a batch of the signature `key`, the program's inputs)."""
        tangents: Tangents = "all" if not self.has_loss else "loss" if self.caller is None else self.caller.used.expected
        key = *key, tangents
        if group is None and not self.is_shared(key) and allows_sizes(self.options):
            found = self.sized_shape_for(model, args, kwargs, flat, key, tangents)
            if found is not None:
                return found
        return self.shape_of(key, lambda: self.make_shape(model, args, kwargs, group, tangents), flat)

    def begin_to_overlap(self) -> None:
        """What was captured with sums of gradients is captured again, with their terms."""
        assert self.caller is not None, "a pass has begun"
        self.caller.passes_overlap = True
        for pattern in [p for p, found in self.sized.steps.items() if not all(level.entry.separates_terms() for s in found for level in s.levels)]:
            self.sized.forget(pattern)

    def overlaps(self) -> bool:
        """Has a pass begun before the backward pass of the one before?"""
        return self.caller is not None and self.caller.passes_overlap

    def is_shared(self, key: Any) -> bool:
        """Whether the other ranks have the plan of this shape too."""
        return self.shared is not None and any(shape == key and entry is self.shared for (shape, _), entry in self.shapes.items())

    def sized_shape_for(
        self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], flat: list[Any], key: Any, tangents: Tangents
    ) -> tuple[ShapedModule, list[Any]] | None:
        """The same under a plan for batches of many sizes; None: this shape is one of its own."""
        self.model = weakref.ref(model)

        def capture_batch(symbols: Symbols | None) -> Captured:
            with torch.enable_grad():
                return capture(
                    self.plain_of(model), args, kwargs, tangents=tangents, symbols=symbols, separate_terms=self.overlaps())

        own = {key: entry for key, entry in self.shapes.items() if entry is not self.shared}
        found = self.sized.find(key, flat, capture_batch, own)
        self.shapes = {key: entry for key, entry in self.shapes.items() if entry is self.shared or key in own}
        return found

    # Plans for batches of many sizes: sized_steps.Maker.

    def level(self, captured: Captured) -> ShapedModule:
        """Records."""
        model = self.model()
        assert self.caller is not None and model is not None, "a first shape has been captured"
        with same_random_numbers(model):
            session = ModuleSession(captured, self.options, self.caller)
        return ShapedModule(captured, session, model, self.gradient_chunk)

    def member(self, steps: SizedSteps[ShapedModule], sizes: Sizes, captured: Captured) -> ShapedModule:
        """For batches of other sizes than those of a plan."""
        return SizedModule(steps, sizes, captured)

    def entries(self) -> list[ShapedModule]:
        """Whatever has a plan."""
        return [*super().entries(), *(level.entry for level in self.sized.levels())]

    def make_room(self) -> None:
        """No other plan holds an arena, or searches."""
        self.release()
        self.stop_searches()

    def make_shape(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], group: Any, tangents: Tangents) -> ShapedModule:
        """Captures and records; plans with the ranks of the group. `tangents`: for which outputs gradients may arrive."""
        if self.caller is None:
            device = device_of(model)
            self.caller = CallerMemory(self.options.reserve, device, self.turns, may_lend(self.options, group, device))
            admission_of(self, adapts=False)  # what the caller holds beside a plan does not follow a limit
        plain = self.plain_of(model)
        warn_of_hooks(plain)

        def capture_batch() -> Captured:
            with torch.enable_grad():
                return capture(plain, args, kwargs, tangents=tangents, separate_terms=self.overlaps())

        captured, group = distributed.capture_with(group, capture_batch)
        with same_random_numbers(model):
            session = ModuleSession(captured, self.options, self.caller) if group is None else distributed.DistributedSession(
                captured, self.options, self.caller, group)
        return ShapedModule(captured, session, model, self.gradient_chunk)


def plain_view(model: WrappedModule, hooks: bool = False) -> torch.nn.Module:
    """The model as it was before it was wrapped: same tensors, own forward.

    What others have put around the wrapped forward since, hooks or a forward on the object (Accelerate's, which enters autocast), is run
    around it, so that the plain one is captured without.
    """
    plain = shallow_copy(model)
    plain.__class__ = type(model).plain_kind
    del plain.__dict__["regen"]
    for name in FORWARDS:
        plain.__dict__.pop(name, None)
    return plain if hooks else without_hooks(plain)


def without_hooks(plain: torch.nn.Module) -> torch.nn.Module:
    """A shallow copy whose own hooks go; those of the modules inside stay."""
    for name in HOOKS:
        plain.__dict__[name] = type(plain.__dict__[name])()
    return plain


def looks_of(leaves: list[Any]) -> str:
    """Shapes, types and plain values of a batch, the same text on ranks where these are the same."""
    return repr([
        (tuple(x.shape), str(x.dtype)) if isinstance(x, torch.Tensor) else x if isinstance(x, (int, float, str)) else type(x).__name__ for x in leaves])


def shallow_copy(model: torch.nn.Module) -> torch.nn.Module:
    """copy.copy, which would go through __reduce_ex__; and past the constructor, which FSDP2 calls for every new object."""
    twin = object.__new__(type(model))
    twin.__dict__.update(model.__dict__)
    return twin


def same_random_numbers(model: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
    """Measuring draws random numbers; the training keeps its own."""
    device = device_of(model)
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def warn_of_hooks(plain: torch.nn.Module) -> None:
    hooked = [name for name, module in plain.named_modules() if any(getattr(module, kind) for kind in HOOKS)]
    if hooked:
        warnings.warn(
            f"regen: hooks on '{hooked[0]}' run while the model is captured: what they do to tensors is part of the plan, "
            "but they are not called at each step", stacklevel=2)


def signature(model: torch.nn.Module, leaves: list[Any], spec: ArgumentSpec) -> tuple[Any, ...]:
    """What a captured step depends on: its arguments, modules with their mode and hooks, which parameters train."""
    objects = {position for position, _, _ in spec.objects}
    described = tuple(
        (x.shape, x.dtype, x.stride(), x.device, x.requires_grad) if isinstance(x, torch.Tensor) else None if i in objects else x
        for i, x in enumerate(leaves))
    autocast = tuple(
        (kind, torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind))
    return described, sharing(leaves), spec, _runtime.module_structure(model), autocast


def sharing(leaves: list[Any]) -> tuple[tuple[int, int], ...]:
    """For each tensor, the first that is the same, and the first that shares its memory."""
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    first, storage = {}, {}
    return tuple(
        (first.setdefault(id(x), i), storage.setdefault(x.untyped_storage()._cdata, i)) for i, x in enumerate(tensors))
