"""Computes some values of a program for real, by plain PyTorch: those that decide what the user's code does."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from regen._capture.traced.draws import set_state, state_of
from regen._capture.traced.symbols import of_sample

Described = dict[str, Any]
SPECIAL = {
    "dtype": lambda name: getattr(torch, name),
    "layout": lambda name: getattr(torch, name),
    "memory_format": lambda name: getattr(torch, name),
    "device": torch.device,
    "number": float,
}


class Evaluation:
    """Values so far. Random numbers are those that the step is going to draw; the generators stay as they are."""

    def __init__(self, values: Mapping[int, Described], bring: Callable[[int], torch.Tensor], states: Mapping[torch.device, torch.Tensor]) -> None:
        """`values`: how they look; `bring`: the tensor of a value that no node makes; `states`: of generators, where not the present ones."""
        self.described, self.bring = values, bring
        self.found: dict[int, torch.Tensor] = {}
        self.start = states
        self.states: dict[torch.device, torch.Tensor] = {}  # after what was drawn here
        self.ran: set[int] = set()

    def run(self, node: dict[str, Any], for_its_draw: bool = False) -> None:
        """`for_its_draw`: only the generator matters, so arguments have the right sizes and no contents."""
        if id(node) in self.ran:
            return
        self.ran.add(id(node))
        namespace, name = node["op"].split("::")
        op = getattr(getattr(getattr(torch.ops, namespace), name), node["overload"] or "default")
        decode = self.stand_in if for_its_draw else self.argument
        args, kwargs = [decode(a) for a in node["args"]], {k: decode(a) for k, a in node["kwargs"].items()}
        returned = self.drawn(op, args, kwargs) if node["random"] else op(*args, **kwargs)
        for value, made in zip(node["outputs"], flat(returned)):
            if value is not None:
                self.found[int(value)] = made

    def drawn(self, op: Any, args: Any, kwargs: Any) -> Any:
        tensors = [a for a in flat(args) if isinstance(a, torch.Tensor)]
        device = torch.device(kwargs.get("device") or (tensors[0].device if tensors else "cpu"))
        present = state_of(device)
        set_state(device, self.states.get(device, self.start.get(device, present)))
        try:
            returned = op(*args, **kwargs)
            self.states[device] = state_of(device)
        finally:
            set_state(device, present)
        return returned

    def argument(self, argument: Any) -> Any:
        if isinstance(argument, list):
            return [self.argument(item) for item in argument]
        if not isinstance(argument, dict):
            return of_sample(argument)
        (key, content), = argument.items()
        return self.value(content) if key == "value" else SPECIAL[key](content)

    def stand_in(self, argument: Any) -> Any:
        if isinstance(argument, list):
            return [self.stand_in(item) for item in argument]
        if isinstance(argument, dict) and "value" in argument:
            return empty_like(of_sample(self.described[argument["value"]]))
        return self.argument(argument)

    def value(self, value: int) -> torch.Tensor:
        if value not in self.found:
            self.found[value] = self.bring(value)
        return self.found[value]


def empty_like(described: Described) -> torch.Tensor:
    return torch.empty_strided(described["sizes"], described["strides"], dtype=getattr(torch, described["dtype"]), device=described["device"])


def view_of_input(tensor: torch.Tensor, described: Described) -> torch.Tensor:
    """A program sees of an input the view that the caller gave."""
    return tensor.detach().as_strided(described["sizes"], described["strides"], tensor.storage_offset() + described["offset"])


def view_of_storage(tensor: torch.Tensor, described: Described) -> torch.Tensor:
    whole = torch.empty(0, dtype=getattr(torch, described["dtype"]), device=tensor.device)
    return whole.set_(tensor.untyped_storage(), described["offset"], described["sizes"], described["strides"])


def flat(tree: Any) -> list[Any]:
    return [leaf for item in tree for leaf in flat(item)] if isinstance(tree, (list, tuple)) else [tree]
