"""How what the model returns is made again after each step."""

import copy
import dataclasses
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from regen._capture.traced.regions import geometry_of

if TYPE_CHECKING:
    from regen._capture.traced.outputs import Group
    from regen._capture.traced.passes import Trace

View: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]  # sizes, strides, offset in elements


@dataclasses.dataclass
class OutputRecipe:
    """How one leaf of what the model returns is made again after a step.

    kind "constant": `constant` itself.
    kind "result":   the program's result number `source`.
    kind "input":    the caller's flat input number `source`, or a view of it.
    kind "tensor":   the live tensor of storage `source` (a parameter or buffer that is returned), or a view of it.
    kind "object":   a copy of the object `constant` with the tensors of `parts`.
    kind "view":     a view of the result number `source`, of which the user sees both; gradients flow through the view.
    """

    kind: str
    source: int = -1
    constant: Any = None
    view: View | None = None  # None when it is the whole tensor
    requires_grad: bool = False
    parts: "list[OutputRecipe]" = dataclasses.field(default_factory=list)  # of an object: its tensors
    stand_ins: list[torch.Tensor] = dataclasses.field(default_factory=list)  # in the place of these


def add_output_results(trace: "Trace") -> tuple[list[OutputRecipe], list[int]]:
    """(a recipe for every leaf of what the model returns, the results that leave at the boundary)."""
    builder = trace.conversion.builder
    for number, group in enumerate(trace.groups):
        first = next((i for i, found in enumerate(trace.tensors) if any(t is group.base for t in found)), None)
        name = f"base.{number}" if first is None else str(first)
        group.position = builder.add_result(int(trace.tracer.value_of(group.base)), "output", name)
    return [recipe_of(trace, leaf, found) for leaf, found in zip(trace.leaves, trace.tensors)], [g.position for g in trace.groups]


def assignments_of(trace: "Trace", prefix: str = "") -> list[tuple[str, str, OutputRecipe]]:
    """(path of a module, attribute, recipe of its tensor) for what the forward pass assigns. `prefix`: of paths, not the user's."""
    return [(a.path.removeprefix(prefix).removeprefix("."), a.name, recipe_of_tensor(trace, a.tensor)) for a in trace.assigned]


def recipe_of(trace: "Trace", leaf: Any, tensors: list[torch.Tensor]) -> OutputRecipe:
    if isinstance(leaf, torch.Tensor):
        return recipe_of_tensor(trace, leaf)
    if not tensors:
        return OutputRecipe("constant", constant=leaf)
    stand_ins = [torch.empty(0, device="meta") for _ in tensors]
    template = copy.deepcopy(leaf, {id(t): s for t, s in zip(tensors, stand_ins)})
    return OutputRecipe("object", constant=template, parts=[recipe_of_tensor(trace, t) for t in tensors], stand_ins=stand_ins)


def recipe_of_tensor(trace: "Trace", tensor: torch.Tensor) -> OutputRecipe:
    group = trace.group_of.get(id(tensor))
    if group is not None:
        return recipe_of_result(trace, tensor, group)
    fake, region = trace.tracer.place(tensor)
    geometry = geometry_of(fake)
    assert region.origin is not None
    kind, source, base = "input", region.origin.key, region.origin.tensor
    offset = geometry.offset
    if region.origin.kind != "input":
        kind, source, base = "tensor", region.first_storage, trace.conversion.builder.tensors[region.first_storage]
        offset += region.first_shift // fake.element_size() - base.storage_offset()
    same = offset == 0 and geometry[:3] == geometry_of(base)[:3] and tensor.requires_grad == base.requires_grad
    view = None if same else (geometry.sizes, geometry.strides, offset)
    return OutputRecipe(kind, source, view=view, requires_grad=tensor.requires_grad)


def recipe_of_result(trace: "Trace", tensor: torch.Tensor, group: "Group") -> OutputRecipe:
    geometry, base = (geometry_of(trace.tracer.place(t)[0]) for t in (tensor, group.base))
    if geometry == base and tensor.requires_grad == group.requires_grad:
        return OutputRecipe("result", group.position, requires_grad=tensor.requires_grad)
    view = (geometry.sizes, geometry.strides, geometry.offset - base.offset)
    return OutputRecipe("view", group.position, view=view, requires_grad=tensor.requires_grad)
