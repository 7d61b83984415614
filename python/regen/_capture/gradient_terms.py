"""Gradients of tensors that a pass uses several times: sums, whose order of addition decides the last bits.

Inside one pass the sum may be a part of the captured step. When several passes go back in one call of `backward`, or code outside of the model uses
the tensor too, plain PyTorch adds the terms of all of them one after the other. The same bits need the terms of each pass, not their sum.
"""

from typing import Any

from regen._capture.conversion import Brought, Conversion, Value
from regen._capture.program_builder import ProgramBuilder, referenced_values


def terms_of_gradients(conversion: Conversion) -> list[list[Brought]]:
    """For each gradient, what autograd has added up to it, in its order."""
    builder = conversion.builder
    makers = {value: node for node in builder.nodes for value in node["outputs"] if value is not None}
    return [[Brought(g.kind, g.key, Value(value)) for value in terms(builder, makers, int(g.value))] for g in conversion.gradients]


def terms(builder: ProgramBuilder, makers: dict[int, Any], value: int) -> list[int]:
    """Autograd adds each new term to the sum of those before."""
    found = []
    while (pair := added(builder, makers.get(value), value)) is not None:
        found.append(pair[1])
        value = pair[0]
    return [value, *reversed(found)]


def added(builder: ProgramBuilder, node: Any, value: int) -> tuple[int, int] | None:
    """The two gradients whose plain sum a node makes; None: it does something else."""
    if node is None or (node["op"], node["overload"]) != ("aten::add", "Tensor") or node["kwargs"]:
        return None
    pair = referenced_values(node["args"])
    if len(pair) != 2 or len(node["args"]) != 2:
        return None
    looks = [(builder.values[v]["dtype"], builder.values[v]["sizes"]) for v in (*pair, value)]
    fixed = all(isinstance(n, int) for _, sizes in looks for n in sizes)
    return (pair[0], pair[1]) if fixed and looks[0] == looks[1] == looks[2] else None
