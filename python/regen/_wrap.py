"""`regen.wrap`: a module that runs its training step under a byte budget."""

import copy
import warnings

import torch
from torch.utils._pytree import tree_flatten

from regen import _runtime

from regen._session import distributed
from regen._session.admission import admission_of
from regen._session.caller_memory import CallerMemory
from regen._capture.capture import capture, device_of
from regen.errors import CaptureError
from regen._session.shape_cache import ShapeCache
from regen.options import Options
from regen._session.wrapped_module import GRADIENT_CHUNK, ModuleSession, ShapedModule

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def wrap(model, args, budget=None, *, kwargs=None, gradient_chunk=GRADIENT_CHUNK, group="default", **options):
    """A module with the same parameters, buffers and names as `model` whose training forward and
    backward passes stay within `budget` and give the same numbers. `args` is a sample input. Without a budget, a job of
    `regen share run` takes its memory.

    `group`: the ranks that take the same plan; None for a plan of one's own. Where torch.distributed is not in use it
    does not matter. Other options are those of `regen.options.Options`."""
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    wrapped = wrapped_copy(model, WrappedModule(Options(budget=budget, **options), gradient_chunk, group, not model.training))
    wrapped.regen.prepare(wrapped, args, dict(kwargs or {}))
    return wrapped


def wrapped_copy(model, state):
    """Shares everything with `model` but its class."""
    kind = type(model)
    if issubclass(kind, WrappedForward):
        raise CaptureError(f"cannot wrap {kind.__name__}: it is wrapped already; expected a plain module")
    if "forward" in vars(model):
        raise CaptureError(f"cannot wrap {kind.__name__}: its forward was replaced on the object; expected a method of its class")
    wrapped = copy.copy(model)
    wrapped.__class__ = type(kind.__name__, (WrappedForward, kind), {"__module__": kind.__module__, "plain_kind": kind})
    object.__setattr__(wrapped, "regen", state)
    return wrapped


class WrappedForward:
    """Goes before the model's own class: training goes through the plan, all else through the model."""

    def forward(self, *args, **kwargs):
        if torch.is_grad_enabled() and (self.training or self.regen.trains_in_eval):
            return self.regen.forward(self, args, kwargs)
        self.regen.make_way()
        return super().forward(*args, **kwargs)

    def __reduce_ex__(self, protocol):
        """Copies and pickles are of the plain model, wrapped again; they plan when they first run."""
        return wrapped_copy, (plain_view(self, hooks=True), self.regen.fresh())


class WrappedModule(ShapeCache):
    """What `model.regen` is: one session for each shape of its inputs, of which one holds the arena."""

    def __init__(self, options, gradient_chunk, group, trains_in_eval):
        super().__init__()
        self.options = options
        self.gradient_chunk = gradient_chunk
        self.group = group
        self.trains_in_eval = trains_in_eval
        self.caller = None
        self.shared = None  # the entry whose plan all ranks have
        self.passes = 0

    def fresh(self):
        return WrappedModule(self.options, self.gradient_chunk, self.group, self.trains_in_eval)

    def __deepcopy__(self, memo):
        return self.fresh()

    def make_way(self):
        """The plain model is about to run: it has the arena's room, unless a backward pass is still to come."""
        if self.active is not None and not self.active.awaits_backward():
            self.active.release()

    def prepare(self, model, args, kwargs):
        """Plans the sample's step with the other ranks, and takes the arena."""
        group = distributed.members(self.group)
        key = signature(model, *tree_flatten((args, kwargs)))
        self.activate(self.shape_for(model, args, kwargs, key, group))
        self.shared = self.active if group is not None else None
        self.caller.start(self.active.present_bytes())

    def forward(self, model, args, kwargs):
        if self.caller is not None:
            self.caller.end_step()
        self.passes += 1
        if self.shared is not None and distributed.is_meeting(self.passes):
            self.shared.meet(self.passes)
        flat, spec = tree_flatten((args, kwargs))
        shaped = self.shape_for(model, args, kwargs, signature(model, flat, spec))
        self.activate(shaped)
        self.caller.start(shaped.present_bytes())
        self.caller.foresee(shaped)
        if self.shared is not None and self.passes == 2:
            self.shared.agree_on_room()
        shaped.make_room()
        self.caller.begin_step(shaped.own_bytes)
        return shaped.forward(flat)

    def shape_for(self, model, args, kwargs, key, group=None):
        return self.shape_of(key, lambda: self.make_shape(model, args, kwargs, group))

    def make_shape(self, model, args, kwargs, group):
        if self.caller is None:
            self.caller = CallerMemory(self.options.reserve, device_of(model))
            admission_of(self, adapts=False)  # what the caller holds beside a plan does not follow a limit
        plain = plain_view(model)
        warn_of_hooks(plain)
        with torch.enable_grad():
            captured = capture(plain, args, kwargs, cache=self.options.cache)
        with same_random_numbers(model):
            session = ModuleSession(captured, self.options, self.caller) if group is None else distributed.DistributedSession(
                captured, self.options, self.caller, group)
        return ShapedModule(captured, session, model, self.gradient_chunk)


def plain_view(model, hooks=False):
    """The model as it was before it was wrapped: same tensors, own forward. Its hooks are run around the wrapped
    forward, so that the plain one is captured without them."""
    plain = copy.copy(model) if not isinstance(model, WrappedForward) else shallow_copy(model)
    plain.__class__ = type(model).plain_kind
    del plain.__dict__["regen"]
    if not hooks:
        for name in HOOKS:
            plain.__dict__[name] = type(plain.__dict__[name])()
    return plain


def shallow_copy(model):
    """copy.copy, which would go through __reduce_ex__."""
    twin = type(model).__new__(type(model))
    twin.__dict__.update(model.__dict__)
    return twin


def same_random_numbers(model):
    """Measuring draws random numbers, training must not notice."""
    device = device_of(model)
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def warn_of_hooks(plain):
    hooked = [name for name, module in plain.named_modules() if any(getattr(module, kind) for kind in HOOKS)]
    if hooked:
        warnings.warn(
            f"regen: hooks on '{hooked[0]}' run while the model is captured: what they do to tensors is part of the plan, "
            "but they are not called at each step", stacklevel=2)


def signature(model, leaves, spec):
    """What a captured program depends on: its arguments, modules with their mode and hooks, which parameters train."""
    described = tuple(
        (x.shape, x.dtype, x.stride(), x.device, x.requires_grad) if isinstance(x, torch.Tensor) else x for x in leaves)
    autocast = tuple(
        (kind, torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind))
    return described, spec, _runtime.module_structure(model), autocast
