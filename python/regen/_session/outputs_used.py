"""Of which outputs a training loop makes its losses: passes are captured with gradients for exactly these."""

from collections.abc import Sequence
from typing import Any

import torch

from regen._capture.capture import Captured
from regen._capture.traced.outputs import Tangents, UsedOutputs

# Sets of outputs. Each is a capture; a loop whose losses use more has gradients of zeros where PyTorch has none.
MOST_SETS = 4


class OutputsUsed:
    """Learns from the gradients that arrive. A gradient that plain PyTorch does not have is not the same as one of zeros: in a sum it may change
    the layout, by which later sums are ordered, and behind it an infinite derivative makes NaN.

    Attributes:
        expected: for which outputs the next pass needs gradients.
    """

    def __init__(self) -> None:
        self.expected: Tangents = "loss"
        self.names: dict[tuple[int, frozenset[int]], Tangents] = {}  # set of outputs -> what it is captured for
        self.last: Tangents | None = None
        self.following: dict[Tangents, Tangents] = {}  # losses often take turns

    def name_of(self, captured: Captured, tangents: Sequence[torch.Tensor | None], targets: Sequence[tuple[str, Any]]) -> Tangents:
        """What the pass should have been captured for.

        Args:
            captured: the pass.
            tangents: the gradients that have arrived, None where there is none.
            targets: what gradients of the pass may arrive at.
        """
        if captured.tangents == "all":
            return "all"
        count = len(tangents)
        own = frozenset(i for i, value in enumerate(captured.tangent_values) if value is not None)
        self.names.setdefault((count, own), captured.tangents)
        given = frozenset(i for i, tangent in enumerate(tangents) if tangent is not None)
        if (count, given) not in self.names and (len(self.names) >= MOST_SETS or in_a_group()):
            return captured.tangents if given <= own else "all"
        return self.names.setdefault((count, given), UsedOutputs(count, given, frozenset(targets)))

    def arrived(self, name: Tangents) -> None:
        """At a pass that was captured for these."""
        if self.last is not None:
            self.following[self.last] = name
        self.last = name
        self.expected = self.following.get(name, name)


def in_a_group() -> bool:
    """Whether this process is one of several ranks, which have to capture the same."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()
