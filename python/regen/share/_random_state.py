"""All random generators that a training draws from, as something that JSON can hold."""

import base64
import random
import sys
from typing import Any

import torch

from regen.errors import Error


def random_state(device: str) -> dict[str, Any]:
    """Of all generators that are in use."""
    state = {"torch": encode(torch.get_rng_state()), "python": python_state()}
    if str(device).startswith("cuda"):
        state["cuda"] = encode(torch.cuda.get_rng_state(device))
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = [kind, keys.tolist(), *rest]
    return state


def restore_random_state(state: dict[str, Any], device: str) -> None:
    """What `random_state` gave."""
    torch.set_rng_state(decode(state["torch"]))
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    if str(device).startswith("cuda"):
        if "cuda" not in state:
            raise Error(f"the state was saved by a training on a CPU, expected one on the kind of device of {device}")
        torch.cuda.set_rng_state(decode(state["cuda"]), device)
    if "numpy" in state:
        import numpy
        numpy.random.set_state(tuple(state["numpy"]))


def python_state() -> list[Any]:
    """Of Python's own generator."""
    version, numbers, gauss = random.getstate()
    return [version, list(numbers), gauss]


def encode(tensor: torch.Tensor) -> str:
    """Bytes as text."""
    return base64.b64encode(bytes(tensor.tolist())).decode()  # numpy need not be there


def decode(text: str) -> torch.Tensor:
    """What `encode` gave."""
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
