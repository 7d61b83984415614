"""All random generators that a training draws from, as something that JSON can hold."""

import base64
import random
import sys

import torch

from regen._runtime import RegenError


def random_state(device):
    state = {"torch": encode(torch.get_rng_state()), "python": python_state()}
    if str(device).startswith("cuda"):
        state["cuda"] = encode(torch.cuda.get_rng_state(device))
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = [kind, keys.tolist(), *rest]
    return state


def restore_random_state(state, device):
    torch.set_rng_state(decode(state["torch"]))
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    if str(device).startswith("cuda"):
        if "cuda" not in state:
            raise RegenError(f"the state was saved by a training on a CPU, expected one on the kind of device of {device}")
        torch.cuda.set_rng_state(decode(state["cuda"]), device)
    if "numpy" in state:
        import numpy
        numpy.random.set_state(tuple(state["numpy"]))


def python_state():
    version, numbers, gauss = random.getstate()
    return [version, list(numbers), gauss]


def encode(tensor):
    return base64.b64encode(tensor.numpy().tobytes()).decode()


def decode(text):
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
