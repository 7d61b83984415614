"""Random numbers: which draw of the trace is a repetition of an earlier one.

While a model is traced nothing is drawn, so code that saves the generator's state and sets it again (checkpointing, `fork_rng`) would find it
unchanged. So for every draw that is traced, one number is drawn from the real generator: its state then says how many draws came before. A draw
at a state that was seen before gives the same numbers again, and is the same value of the program.
"""

from typing import Any

import torch

from regen.errors import CaptureError


class Draws:
    """The draws of a trace in their order, for each device."""

    def __init__(self, device: torch.device) -> None:
        devices = {torch.device("cpu"), device}
        self.before = {d: state_of(d) for d in devices}  # states of the generators when the trace began
        self.head = {d: as_bytes(state) for d, state in self.before.items()}  # states after the last draw
        self.seen: dict[tuple[torch.device, bytes], tuple[Any, list[Any], torch.Tensor]] = {}

    def repeated(self, device: torch.device, call: Any) -> list[Any] | None:
        """What an earlier draw has made, if this one repeats it; `call` says which operator draws, and how much."""
        key = (device, as_bytes(state_of(device)))
        if key in self.seen:
            known, made, after = self.seen[key]
            if known != call:
                raise CaptureError("random numbers are drawn again from a saved state, but others than before; expected the same draws")
            set_state(device, after)
            return made
        if key[1] != self.head.get(device):
            raise CaptureError("the generator is seeded inside the forward pass; expected seeds outside of it")
        return None

    def note(self, device: torch.device, call: Any, made: list[Any]) -> None:
        """A new draw."""
        before = self.head[device]
        torch.empty((), device=device).uniform_()
        after = state_of(device)
        self.head[device] = as_bytes(after)
        self.seen[device, before] = (call, made, after)

    def note_island(self, key: int) -> None:
        """Draws that cannot be repeated."""
        for device in self.before:
            self.note(device, ("island", key), [])

    def restore(self) -> None:
        """The generators are as the trace found them."""
        for device, state in self.before.items():
            set_state(device, state)


def state_of(device: torch.device) -> torch.Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_state(device: torch.device, state: torch.Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


def as_bytes(state: torch.Tensor) -> bytes:
    return bytes(state.tolist())  # numpy need not be there
