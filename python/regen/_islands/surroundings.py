"""What surrounds a function of the user's in plain PyTorch, and does not where the executor calls it: autograd, autocast, and generators."""

import contextlib
import gc
import random
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

DEVICES = ("cpu", "cuda")
# Of a thread in which nothing is switched on or off: the executor calls operators below autograd and autocast.
INCLUDED = torch._C._dispatch_tls_local_include_set()
EXCLUDED = torch._C._dispatch_tls_local_exclude_set()


class Surroundings(NamedTuple):
    """Where a function is called.

    Attributes:
        grad: gradients are on.
        autocast: device type and type, for each that is entered.
    """

    grad: bool
    autocast: tuple[tuple[str, torch.dtype], ...]

    @staticmethod
    def here() -> "Surroundings":
        """Of the caller."""
        entered = tuple((kind, torch.get_autocast_dtype(kind)) for kind in DEVICES if torch.is_autocast_enabled(kind))
        return Surroundings(torch.is_grad_enabled(), entered)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """As there. Casts of parameters are kept for the function alone: they lie in memory that is the plan's afterwards."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch._C._ForceDispatchKeyGuard(INCLUDED, EXCLUDED))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            if self.autocast:
                torch.clear_autocast_cache()
                stack.callback(torch.clear_autocast_cache)
            for kind, dtype in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype=dtype))
            yield


@contextlib.contextmanager
def for_backward() -> Iterator[None]:
    """As autograd's engine runs a backward pass. On this thread: the engine's own may be waiting for it."""
    with torch._C._ForceDispatchKeyGuard(INCLUDED, EXCLUDED), torch.set_grad_enabled(False), torch.autograd.set_multithreading_enabled(False):
        yield


@contextlib.contextmanager
def without_kept_casts() -> Iterator[None]:
    """While a model is traced: autocast keeps casts of the trace, which the function must neither find nor add to."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def foreign_states() -> tuple[Any, Any]:
    """Of Python's and NumPy's generators."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), None if numpy is None else numpy.random.get_state(legacy=False)


def set_foreign_states(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    if states[1] is not None:
        sys.modules["numpy"].random.set_state(states[1])


def differ(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Was something drawn between?"""
    if one[0] != other[0] or (one[1] is None) != (other[1] is None):
        return one[0] != other[0]
    if one[1] is None:
        return False
    ours, theirs = one[1]["state"], other[1]["state"]
    return ours["pos"] != theirs["pos"] or bool((ours["key"] != theirs["key"]).any()) or one[1]["has_gauss"] != other[1]["has_gauss"]


@contextlib.contextmanager
def same_foreign_numbers() -> Iterator[None]:
    """What is drawn inside is drawn again afterwards."""
    before = foreign_states()
    try:
        yield
    finally:
        set_foreign_states(before)


def collect() -> None:
    """Tensors in cycles of references would seem to be kept."""
    gc.collect()
