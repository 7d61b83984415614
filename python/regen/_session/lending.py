"""Memory of the arena that the caller has between two steps: gradients, and room for what an optimizer makes.

In plain PyTorch gradients and an optimizer's scratch take the memory that activations had. Under a plan that is the arena. So gradients are a part of
the plan, and belong to the caller until the next forward pass; and while an optimizer takes its step, the free part of the arena serves what it asks
torch for. What the caller still has when the next forward pass begins gets memory of its own: an optimizer's state once, after its first step. A loop
that keeps its gradients until then (accumulation, `zero_grad` after the forward pass) has them beside the plan from then on.
"""

import functools
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from regen._capture.optimizers import OWN_HOOKS
from regen._session.job import job
from regen.options import Options

if TYPE_CHECKING:
    from regen._session.wrapped_module import ModuleSession, ShapedModule


# A NumPy array has no more than the address of its memory, so on the host nothing that may have one can move. Tests switch it on.
LENDS_ON_HOST = False


def may_lend(options: Options, group: Any, device: torch.device) -> bool:
    """Whether the arena stays where it is between two steps, no other process depends on what is in it, and torch alone knows its addresses."""
    alone = group is None and not (torch.distributed.is_available() and torch.distributed.is_initialized())
    moves = device.type != "cpu" or LENDS_ON_HOST
    return alone and moves and not options.releasable and not options.cuda_graphs and job() is None


class Lending:
    """Of one model's arenas, of which one is in use at a time."""

    def __init__(self, lends: bool) -> None:
        """`lends`: gradients are the plan's, and optimizers have the arena's room."""
        self.lends_gradients = lends
        self.lends_room = lends
        self.last: weakref.ref[ShapedModule] | None = None  # whose step has ended, and none has begun since
        self.open: ModuleSession | None = None
        self.guests: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()  # that left something in the arena
        if lends:
            watch_optimizers()

    def step_ended(self, shaped: "ShapedModule") -> None:
        """Until the next one begins its arena is free, but for gradients."""
        if self.lends_room:
            self.last = weakref.ref(shaped)
            watched.add(self)

    def open_room(self, optimizer: torch.optim.Optimizer) -> None:
        """It is about to make its step."""
        shaped = self.last() if self.last is not None else None
        if shaped is None or not shaped.session.compiled or self.open is not None:
            return
        trained = {id(p) for p in shaped.trained_parameters()}
        if any(id(p) in trained for group in optimizer.param_groups for p in group["params"][:1]):
            shaped.session.lend_room()
            self.open = shaped.session

    def close_room(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """It has made it."""
        session, self.open = self.open, None
        if session is None or not session.compiled:
            return
        session.close_room()
        if optimizer is not None and session.room_bytes > 0:
            self.guests.add(optimizer)

    def held_by(self, session: "ModuleSession") -> int:
        """Bytes of an arena that the caller has."""
        return session.lent_bytes + session.room_bytes if session.compiled else 0

    def take_back(self, session: "ModuleSession", room: int | None) -> int:
        """All of it gets memory of its own; where that has no room beside the arena, the arena goes. Returns the bytes."""
        held = self.held_by(session)
        states = [tensor for optimizer in self.guests for tensor in tensors_in(list(optimizer.state.values()))]
        self.guests.clear()
        through_host = room is not None and room < held
        try:
            session.take_back(states, through_host)
        except torch.OutOfMemoryError:
            session.take_back(states, True)
        if self.held_by(session) > 0:  # by an unknown owner: the arena stays with it, and another one is taken
            self.lends_room = False
            session.release()
        return held


# Those whose steps the hooks of optimizers look at.
watched: weakref.WeakSet[Lending] = weakref.WeakSet()


@functools.cache
def watch_optimizers() -> None:
    """From now on, all of the process."""
    OWN_HOOKS.update((before_update, after_update))
    register_optimizer_step_pre_hook(before_update)
    register_optimizer_step_post_hook(after_update)


def before_update(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """A hook of every optimizer."""
    for lending in watched:
        lending.open_room(optimizer)


def after_update(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """A hook of every optimizer."""
    for lending in watched:
        lending.close_room(optimizer)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Those in nested containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
