"""Where the tensors of a module are found, and what an island puts there."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from regen.errors import CaptureError


@dataclasses.dataclass
class Slot:
    """Where a tensor of a module is found: a parameter stays there, of a buffer the function is given a stand-in."""

    name: str
    holder: dict[str, Any]
    key: str

    @property
    def tensor(self) -> torch.Tensor:
        return self.holder[self.key]

    def same_as(self, other: "Slot") -> bool:
        """The same place."""
        return self.holder is other.holder and self.key == other.key


def slots_of(owner: torch.nn.Module | None) -> tuple[list[Slot], list[Slot]]:
    """(parameters, buffers and other tensors) of a module and those in it, each once."""
    parameters: dict[int, Slot] = {}
    buffers: dict[int, Slot] = {}
    for slot, is_parameter in all_slots(owner):
        if isinstance(slot.tensor, torch.Tensor):
            (parameters if is_parameter else buffers).setdefault(id(slot.tensor), slot)
    return list(parameters.values()), list(buffers.values())


def all_slots(owner: torch.nn.Module | None) -> Iterator[tuple[Slot, bool]]:
    """All attributes, tensors or not, and whether each is a parameter."""
    for path, module in () if owner is None else owner.named_modules():
        for holder in (module._parameters, module._buffers, vars(module)):
            for key in holder:
                yield Slot(f"{path}.{key}".lstrip("."), holder, key), holder is module._parameters


class Assignments:
    """Tensors that a function assigns to attributes of a module and of those in it."""

    def __init__(self, owner: torch.nn.Module | None) -> None:
        """Before it is called."""
        self.owner = owner
        self.before = {(id(slot.holder), slot.key): slot.tensor for slot, _ in all_slots(owner)}

    def take(self) -> list[tuple[Slot, torch.Tensor]]:
        """After the call: what it has assigned, by the names. The attributes are what they were before it: memory of an island is used for other
        things afterwards, so that the program assigns results.

        Raises:
            CaptureError: it has replaced a parameter.
        """
        found = []
        for slot, is_parameter in list(all_slots(self.owner)):
            before = self.before.get((id(slot.holder), slot.key), self)
            if slot.tensor is before or not isinstance(slot.tensor, torch.Tensor):
                continue
            if is_parameter:
                raise CaptureError(f"an island replaces the parameter {slot.name}; expected parameters that only the optimizer changes")
            found.append((slot, slot.tensor))
            if before is self:
                del slot.holder[slot.key]
            else:
                slot.holder[slot.key] = before
        return sorted(found, key=lambda item: item[0].name)
