"""Gradients that outlive the part of a step that makes them: of micro-batches that are added up, and for an optimizer that runs beside the plan."""

import torch

# Added to this, every number stays what it is, zeros of both signs included: the first of several gradients arrives as it was computed.
NOTHING = -0.0


class GradientBuffers:
    """A tensor for each parameter, which the program fills, or adds to.

    Attributes:
        adds: several programs add to the buffers before they are used; False: one fills them.
    """

    def __init__(self, adds: bool) -> None:
        self.adds = adds
        self.buffers: dict[int, torch.Tensor] = {}
        self.parameters: dict[int, torch.Tensor] = {}

    def of(self, parameter: torch.Tensor) -> torch.Tensor:
        """The buffer of a parameter, laid out like it."""
        found = self.buffers.get(id(parameter))
        if found is None or found.device != parameter.device or found.shape != parameter.shape or found.dtype != parameter.dtype:
            found = torch.full_like(parameter, NOTHING, requires_grad=False)
            self.buffers[id(parameter)], self.parameters[id(parameter)] = found, parameter
        return found

    def clear(self) -> None:
        """The gradients were used."""
        if self.adds:
            for buffer in self.buffers.values():
                buffer.fill_(NOTHING)
