"""What the model returned while it was traced: which tensors of it are results, how the rest is found, and a template of all of it."""

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten

from regen._capture.arguments import described
from regen._capture.traced.regions import Region, covers, geometry_of, is_dense
from regen._capture.traced.tensor import TracedTensor
from regen._capture.traced.tracer import Tracer
from regen.errors import CaptureError

CONTAINERS = (list, tuple, dict, OrderedDict, defaultdict)
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


class Layout(NamedTuple):
    """How a gradient lies in memory, whatever its sizes: code behind the model may turn or expand it.

    Attributes:
        order: dimensions of more than one element, from the outermost to the innermost.
        expanded: dimensions in which it is the same everywhere.
    """

    order: tuple[int, ...]
    expanded: tuple[int, ...]

    @staticmethod
    def of(tensor: torch.Tensor) -> "Layout | None":
        """Of a real one; None: it has gaps."""
        sizes, strides = tensor.shape, tensor.stride()
        dimensions = [d for d, n in enumerate(sizes) if n != 1]
        order = sorted((d for d in dimensions if strides[d] != 0), key=lambda d: -strides[d])
        layout = Layout(tuple(order), tuple(d for d in dimensions if strides[d] == 0))
        return layout if all(layout.strides(sizes)[d] == strides[d] for d in dimensions) else None

    def strides(self, sizes: Sequence[Any]) -> list[Any]:
        """For these sizes."""
        found: list[Any] = [0 if d in self.expanded else 1 for d in range(len(sizes))]
        step: Any = 1
        for dimension in reversed(self.order):
            found[dimension] = step
            step = step * sizes[dimension]
        return found


@dataclasses.dataclass(frozen=True)
class UsedOutputs:
    """Which outputs a training loop makes its loss of.

    Attributes:
        count: of all groups of outputs.
        positions: of those that get a gradient.
        layouts: position, and how its gradient lies where this is not as the output does: sums are ordered by it.
        targets: ("parameter" or "input", name or flat input) that other outputs may lead gradients to: a later loss may use these.
    """

    count: int
    positions: frozenset[int]
    layouts: tuple[tuple[int, Layout], ...]
    targets: frozenset[tuple[str, Any]] = dataclasses.field(compare=False, repr=False)


Tangents = str | UsedOutputs  # which outputs get a gradient: "loss", "all", or these


@dataclasses.dataclass
class Group:
    """Outputs that are views of one region, and the value that leaves for all of them."""

    base: torch.Tensor  # a traced tensor of which all are views
    members: list[torch.Tensor]
    position: int = -1  # among the results
    tangent: TracedTensor | None = None

    @property
    def requires_grad(self) -> bool:
        return self.base.requires_grad


def flatten_outputs(returned: Any) -> tuple[list[Any], Any]:
    """Leaves: tensors, plain values, and objects, which are not looked into."""
    return tree_flatten(returned, is_leaf=lambda node: not isinstance(node, CONTAINERS))


def tensors_in(leaf: Any, place: str) -> list[torch.Tensor]:
    """Those of a leaf, in an order that does not change."""
    if isinstance(leaf, torch.Tensor):
        return [leaf]
    if isinstance(leaf, PLAIN):
        return []
    seen = described(leaf)
    if seen is None:
        raise CaptureError(f"{place}returns an object of {type(leaf).__name__} that cannot be copied; expected objects that pickle accepts")
    return seen[1]


def loss_of(returned: Any) -> torch.Tensor | None:
    """The one output that a training loop differentiates, where the model says which: `loss`, or a number in front of larger tensors."""
    if isinstance(returned, Mapping):
        found = returned.get("loss")
    elif isinstance(returned, (tuple, list)):
        others = [t for t in returned[1:] if isinstance(t, torch.Tensor)]
        found = returned[0] if len(returned) > 1 and others and all(t.dim() > 0 for t in others) else None
    else:
        found = getattr(returned, "loss", None)
    is_loss = isinstance(found, torch.Tensor) and found.dim() == 0 and found.requires_grad
    return found if is_loss else None


def grouped(tracer: Tracer, tensors: list[torch.Tensor]) -> tuple[list[Group], dict[int, Group]]:
    """(groups of those that the step computes, the group of each by identity)."""
    by_region: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors:
        _, region = tracer.place(tensor)
        if region.origin is None or (region.origin.kind == "constant" and region.version):
            members = by_region.setdefault(id(region), [])
            if not any(tensor is m for m in members):
                members.append(tensor)
    groups, group_of = [], {}
    for members in by_region.values():
        for group in groups_of(tracer, members):
            groups.append(group)
            group_of.update((id(m), group) for m in group.members)
    return groups, group_of


def groups_of(tracer: Tracer, members: list[torch.Tensor]) -> list[Group]:
    region = tracer.place(members[0])[1]
    trained = [m for m in members if m.requires_grad]
    if len({geometry_of(tracer.place(m)[0]) for m in members}) == 1 and len(trained) <= 1:
        return [Group((trained or members)[0], members)]
    base = base_of(tracer, members, trained, region)
    if base is not None:
        return [Group(base, members)]
    return [Group(m, [m]) for m in members]


def base_of(tracer: Tracer, members: list[torch.Tensor], trained: list[torch.Tensor], region: Region) -> torch.Tensor | None:
    """A tensor that covers the region and through which the gradients of all members flow; None: there is none."""
    if not trained:
        whole = TracedTensor(region.whole, region, tracer)
        return next((m for m in members if covers(tracer.place(m)[0], region)), whole if is_dense(region.whole) else None)
    roots = {id(r): r for r in (m if m._base is None else m._base for m in trained)}
    (root, *others) = roots.values()
    if others or not isinstance(root, TracedTensor) or root.region is not region or not covers(root.fake, region):
        return None
    return next((m for m in trained if m is root), root)
