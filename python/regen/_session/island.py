"""An optimizer that runs beside the plan: its gradients come from the planned step, its own step is eager PyTorch."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from regen import _runtime
from regen._capture.gradient_buffers import GradientBuffers
from regen._session.caller_memory import MARGIN


class Island:
    """Runs an optimizer's step on gradients that a program has left in buffers, and measures what it takes.

    Attributes:
        reason: why the optimizer is no part of the plan.
        bytes: of the budget, for the optimizer's state and scratch; 0 until a step has been measured.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, buffers: GradientBuffers, device: torch.device) -> None:
        self.optimizer, self.buffers = optimizer, buffers
        self.device = str(device)
        self.reason = ""
        self.bytes = 0
        self.known = False
        if device.type == "cpu":
            _runtime.install_memory_meter()

    @property
    def text(self) -> str:
        """For people."""
        needs = f"{_runtime.format_bytes(self.bytes)} of the budget are for its state and scratch" if self.known else "not measured yet"
        return f"beside the plan: {type(self.optimizer).__name__}.step(), an island, because {self.reason} ({needs})"

    def step(self, trained: Iterable[torch.Tensor], update: Callable[[], Any]) -> None:
        """`update()` with gradients for the parameters in `trained` and no others. Whatever `.grad` was before, it is afterwards."""
        parameters = {id(p): p for group in self.optimizer.param_groups for p in group["params"]}
        parameters |= self.buffers.parameters
        before = {key: p.grad for key, p in parameters.items()}
        given = {id(p) for p in trained}
        _runtime.reset_memory_peak(self.device)
        reserved = _runtime.memory_use(self.device)["reserved"]
        try:
            for key, parameter in parameters.items():
                parameter.grad = self.buffers.of(parameter) if key in given else None
            update()
        finally:
            for key, parameter in parameters.items():
                parameter.grad = before[key]
            self.buffers.clear()
        self.measure(reserved)

    def room(self) -> int:
        """Of the budget, beside a program that does not update: at least for the state."""
        return max(self.bytes, self.held())

    def held(self) -> int:
        """Bytes of the optimizer's state on the device."""
        tensors = [t for state in self.optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
        return sum(t.untyped_storage().nbytes() for t in {t.untyped_storage()._cdata: t for t in tensors if str(t.device) == self.device}.values())

    def measure(self, reserved: int) -> None:
        """State that the optimizer has made, and the highest point beyond what is left, or what torch's allocator took from the device for it.
        `reserved`: of that, before.
        """
        use = _runtime.memory_use(self.device)
        taken = self.held() + max(0, use["allocated_peak"] - use["allocated"])
        if not self.device.startswith("cpu"):
            taken = max(taken, use["reserved_peak"] - reserved)
        if taken > self.bytes:
            self.bytes = taken + math.ceil(taken * MARGIN)
        self.known = True
