"""The persistent state of a training (parameters, buffers, what the optimizer keeps) in one arena of its device."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import torch

from regen import _runtime
from regen.errors import Error

Device: TypeAlias = str | torch.device
Entry: TypeAlias = tuple[str, torch.Tensor, bool]  # name, tensor, whether it stays on the host
Place: TypeAlias = tuple[str, torch.Tensor, bool, dict[str, Any], str]  # and the dictionary that holds it, with its key


class PackedState:
    """The state of a training in one arena, which can leave the device and come back.

    Tensors keep their identity, so a model and its optimizer are used as before:

        state = regen.share.PackedState(model, optimizer)   # best after regen.step, which makes the optimizer's state
        state.leave()                                       # one packed copy to pinned host memory; the device has the bytes again
        state.come_back()                                   # at the same addresses
        state.to("cpu")                                     # or to another device

    While the state is away, every use of its tensors raises an error. What is replaced later (by `load_state_dict`, or by an
    optimizer's first step) is found and taken in by the next call.

    Args:
        model: whose parameters and buffers are packed.
        optimizer: whose state is packed.
        device: of the arena; None: that of the model.

    Raises:
        BudgetError: there is no room on the device.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None, device: Device | None = None) -> None:
        self.model, self.optimizer = model, optimizer
        self.device = str(device or device_of(model))
        self.gather()

    def leave(self) -> int:
        """Moves the state to pinned host memory.

        Returns:
            The bytes that the device has again.
        """
        if not self.away and not self.is_gathered():
            self.gather()
        return self.arena.leave()

    def come_back(self) -> None:
        """Brings the state back to its addresses.

        Raises:
            BudgetError: there is no room now; it may be tried again.
        """
        self.arena.come_back()

    def to(self, device: Device) -> "PackedState":
        """Moves the state to another device, also from away. Gradients, which are no state, follow.

        Args:
            device: such as "cuda:1".

        Returns:
            Itself.

        Raises:
            BudgetError: there is no room on that device.
        """
        if not self.away:
            self.gather()
        gradients = [(p, p.grad) for p in self.model.parameters() if p.grad is not None]
        for parameter, _ in gradients:
            parameter.grad = None
        try:
            self.arena.move_to(str(device))
            self.device = str(device)
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient.to(parameter.device)
        return self

    @property
    def away(self) -> bool:
        """Whether the state is on the host only."""
        return self.arena.away

    @property
    def bytes(self) -> int:
        """On the device, unless away."""
        return self.arena.bytes

    def gather(self) -> list[Entry]:
        """Everything that is state now into the arena. Returns entries()."""
        places = list(self.places())
        entries = [(name, tensor, stays) for name, tensor, stays, _, _ in places]
        packed = [tensor for _, tensor, stays in entries if not stays]
        on_host = [tensor for _, tensor, stays in entries if stays]
        if not hasattr(self, "arena") or not self.arena.adopt(packed, on_host):
            self.arena = _runtime.StateArena(packed, on_host, self.device)
            if self.device.startswith("cuda"):
                torch.cuda.empty_cache()  # what the tensors had before
        self.gathered = [(holder, key, tensor) for _, tensor, _, holder, key in places]
        self.gathered_state = self.optimizer_sizes()
        return entries

    def is_gathered(self) -> bool:
        """Whether all is where it was.

        Looks at no module again, since that takes longer than a small state's copy; new ones are found by gather().
        """
        for holder, key, tensor in self.gathered:
            if holder.get(key) is not tensor:
                return False
        return self.gathered_state == self.optimizer_sizes()

    def optimizer_sizes(self) -> tuple[int, list[int]] | None:
        """What changes when the optimizer makes state."""
        return None if self.optimizer is None else (id(self.optimizer.state), [len(own) for own in self.optimizer.state.values()])

    def entries(self) -> list[Entry]:
        """(name, tensor, whether it stays on the host), in an order that the model and the optimizer decide."""
        return [(name, tensor, stays) for name, tensor, stays, _, _ in self.places()]

    def places(self) -> Iterator[Place]:
        """The same with the dictionary that holds the tensor, and its key there."""
        modules = list(self.model.named_modules())
        seen = set()
        for kind in ("_parameters", "_buffers"):
            for prefix, module in modules:
                holder = getattr(module, kind)
                for key, tensor in holder.items():
                    if tensor is not None and id(tensor) not in seen:
                        seen.add(id(tensor))
                        yield f"model.{prefix}{'.' if prefix else ''}{key}", tensor, False, holder, key
        if self.optimizer is None:
            return
        for place, holder, key, value in optimizer_values(self.optimizer):
            if isinstance(value, torch.Tensor):
                yield f"optimizer.{place}.{key}", value, stays_on_host(key, value), holder, key


def stays_on_host(key: str, value: torch.Tensor) -> bool:
    """Step counts are on the CPU, also those of parameters that are not."""
    return value.device.type == "cpu" and value.dim() == 0 and key in ("step", "lr")


def device_of(model: torch.nn.Module) -> torch.device:
    for tensor in [*model.parameters(), *model.buffers()]:
        return tensor.device
    return torch.device("cpu")


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Numbered as in the optimizer's state_dict()."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def optimizer_values(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, dict[str, Any], str, Any]]:
    """(place, dictionary, key, value) of all that an optimizer keeps, and of its settings: place is "state.3" or "group.0"."""
    for index, parameter in enumerate(parameters_of(optimizer)):
        own = optimizer.state.get(parameter, {})
        for key in sorted(own):
            yield f"state.{index}", own, key, checked(own[key], f"state.{index}.{key}")
    for index, group in enumerate(optimizer.param_groups):
        for key in sorted(group):
            if key != "params":
                yield f"group.{index}", group, key, checked(group[key], f"group.{index}.{key}")


def checked(value: Any, name: str) -> Any:
    plain = value is None or isinstance(value, (bool, int, float, str, torch.Tensor))
    if plain or (isinstance(value, (tuple, list)) and all(isinstance(item, (bool, int, float, str)) for item in value)):
        return value
    raise Error(
        f"'{name}' of the optimizer is of {type(value).__name__}, expected a tensor, a number, a text or a tuple of such")
