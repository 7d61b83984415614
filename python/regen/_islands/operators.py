"""The two operators that stand for an island in a program. The executor calls them as any other; they find their way back to Python."""

import itertools
import weakref
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from regen._islands.call import IslandCall

LIBRARY = torch.library.Library("regen", "DEF")
LIBRARY.define("island(int key, bool holds, Tensor[] tensors) -> Tensor[]")
LIBRARY.define("island_backward(int key, Tensor[] tensors) -> Tensor[]")

# Those of all captured steps that are alive.
CALLS: "weakref.WeakValueDictionary[int, IslandCall]" = weakref.WeakValueDictionary()
KEYS = itertools.count(1)


def register(call: "IslandCall") -> int:
    """A key that no other island of the process has."""
    key = next(KEYS)
    CALLS[key] = call
    return key


def run_forward(key: int, holds: bool, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return CALLS[key].forward(tensors)


def run_backward(key: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return CALLS[key].backward(tensors)


LIBRARY.impl("island", run_forward, "CompositeExplicitAutograd")
LIBRARY.impl("island_backward", run_backward, "CompositeExplicitAutograd")
FORWARD = torch.ops.regen.island.default
BACKWARD = torch.ops.regen.island_backward.default
NAMES = ("regen::island", "regen::island_backward")
