"""The functional operator that computes what an operator would write."""

import functools
from typing import NamedTuple

import torch

from regen.errors import CaptureError

aten = torch.ops.aten

# Names that do not follow from the operator's own.
IRREGULAR = {
    aten.bernoulli_.float: aten.bernoulli.p,
    aten.normal_.default: aten.normal_functional.default,
    aten.transpose_.default: aten.transpose.int,
    aten.squeeze_.default: aten.squeeze.default,
    # Batch norm changes the running statistics without saying so in its schema.
    aten.native_batch_norm.default: aten._native_batch_norm_legit_functional.default,
    aten.cudnn_batch_norm.default: aten._batch_norm_with_update_functional.default,
}


class Written(NamedTuple):
    """An argument that an operator writes."""

    position: int | None  # None: by name only
    name: str


@functools.cache
def written_arguments(op: torch._ops.OpOverload) -> tuple[Written, ...]:
    """By the operator's schema."""
    return tuple(
        Written(None if argument.kwarg_only else position, argument.name) for position, argument in enumerate(op._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write)


@functools.cache
def functional_form(op: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """The same arithmetic into new memory. It returns what `op` returns and does not write, then what it writes.

    Raises:
        CaptureError: there is none.
    """
    found = IRREGULAR.get(op) or in_place_form(op) or out_form(op) or declared_form(op)
    if found is None:
        raise CaptureError(
            f"{op} writes to memory and has no functional form; expected operators that PyTorch can functionalise: "
            "one of your own as a function that returns new tensors (torch.library)")
    return found


def packet_of(op: torch._ops.OpOverload, name: str) -> torch._ops.OpOverloadPacket | None:
    namespace = op._schema.name.split("::")[0]
    return getattr(getattr(torch.ops, namespace), name, None)


def overload_of(packet: torch._ops.OpOverloadPacket | None, name: str) -> torch._ops.OpOverload | None:
    return getattr(packet, name or "default", None) if packet is not None and (name or "default") in packet.overloads() else None


def in_place_form(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """`add` for `add_`, `__and__` for `__iand__`."""
    name = op._schema.name.split("::")[1]
    if name.startswith("__i") and name.endswith("__"):
        return overload_of(packet_of(op, "__" + name[3:]), op._schema.overload_name)
    return overload_of(packet_of(op, name[:-1]), op._schema.overload_name) if name.endswith("_") else None


def out_form(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """`add.Tensor` for `add.out`: the overload with the same arguments, those that are written apart."""
    written = {w.name for w in written_arguments(op)}
    wanted = [(a.name, str(a.type)) for a in op._schema.arguments if a.name not in written]
    packet = packet_of(op, op._schema.name.split("::")[1])
    for name in packet.overloads() if packet is not None else ():
        other = getattr(packet, name)
        if not other._schema.is_mutable and [(a.name, str(a.type)) for a in other._schema.arguments][:len(wanted)] == wanted:
            return other
    return None


def declared_form(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """`rrelu_with_noise_functional` for `rrelu_with_noise`."""
    return overload_of(packet_of(op, op._schema.name.split("::")[1] + "_functional"), op._schema.overload_name)
