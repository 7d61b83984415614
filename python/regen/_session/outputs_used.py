"""Of which outputs a training loop makes its losses: passes are captured with gradients for exactly these."""

from collections.abc import Sequence
from typing import Any

import torch

from regen._capture.capture import Captured
from regen._capture.traced.outputs import Layout, Tangents, UsedOutputs

# Sets of outputs, with layouts of their gradients. Each is a capture; a loop whose losses use more has gradients of zeros where PyTorch has none,
# laid out as the outputs are.
MOST_SETS = 6


class OutputsUsed:
    """Learns from the gradients that arrive. A gradient that plain PyTorch does not have is not the same as one of zeros: in a sum it may change
    the layout, by which later sums are ordered, and behind it an infinite derivative makes NaN.

    Attributes:
        expected: for which outputs the next pass needs gradients.
    """

    def __init__(self) -> None:
        self.expected: Tangents = "loss"
        self.names: dict[Any, Tangents] = {}  # set of outputs with layouts of their gradients -> what it is captured for
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
        self.names.setdefault((count, own, layouts_of(captured)), captured.tangents)
        given = frozenset(i for i, tangent in enumerate(tangents) if tangent is not None)
        layouts = other_layouts(captured, tangents)
        if (count, given, layouts) not in self.names and (len(self.names) >= MOST_SETS or in_a_group()):
            return captured.tangents if given <= own else "all"
        return self.names.setdefault((count, given, layouts), UsedOutputs(count, given, layouts, frozenset(targets)))

    def arrived(self, name: Tangents) -> None:
        """At a pass that was captured for these."""
        if self.last is not None:
            self.following[self.last] = name
        self.last = name
        self.expected = self.following.get(name, name)


def layouts_of(captured: Captured) -> tuple[tuple[int, Layout], ...]:
    """Of gradients, where they are not those of the outputs."""
    return captured.tangents.layouts if isinstance(captured.tangents, UsedOutputs) else ()


def other_layouts(captured: Captured, tangents: Sequence[torch.Tensor | None]) -> tuple[tuple[int, Layout], ...]:
    """Of the gradients that have arrived, in the form of `UsedOutputs.layouts`."""
    found = []
    program = captured.program
    for position, (result, tangent) in enumerate(zip(captured.output_results, tangents)):
        strides = program["values"][program["results"][result]["value"]]["strides"]
        if tangent is None or tangent.numel() < 2 or all(n == 1 or s == t for n, s, t in zip(tangent.shape, strides, tangent.stride())):
            continue
        layout = Layout.of(tangent)
        if layout is not None:
            found.append((position, layout))
    return tuple(found)


def in_a_group() -> bool:
    """Whether this process is one of several ranks, which have to capture the same."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()
