"""Reentrant checkpoints while a model is traced.

`torch.utils.checkpoint` with `use_reentrant=True` calls the autograd engine inside of its backward pass, which the engine allows in `backward()` only;
a trace asks it for gradients (`torch.autograd.grad`). The other kind runs the same operators in the same order, and autograd adds up the same gradients.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.utils import checkpoint


@contextlib.contextmanager
def without_reentrant_checkpoints() -> Iterator[None]:
    """Inside, they are of the other kind, whoever calls them."""
    with mock.patch.object(checkpoint.CheckpointFunction, "apply", staticmethod(checkpointed)):
        yield


def checkpointed(function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
    """What `CheckpointFunction.apply` does. Without an argument that requires a gradient its results have none, whatever parameters it uses."""
    if not any(isinstance(x, torch.Tensor) and x.requires_grad for x in args):
        checkpoint.check_backward_validity(args)  # which warns of that
        with torch.no_grad():
            return function(*args)
    return checkpoint.checkpoint(function, *args, use_reentrant=False, preserve_rng_state=preserve_rng_state)
