"""A conversion as text: JSON, with the bytes of constants in it, under a checksum. There is no pickle in it.

regen-conversion 1 <SHA-256 of the second line>
{"storages": [...], "values": [...], "nodes": [...], ...}
"""

import base64
import hashlib
import json

import torch

from regen._capture.conversion import Brought, Conversion, Output, Value
from regen._capture.dynamo_graph import PLAIN_TENSORS
from regen._capture.program_builder import ProgramBuilder

MAGIC = "regen-conversion 1"
# Constants are numbers that the code of the model spells out; what is larger than this is better made again.
MOST_CONSTANT_BYTES = 1 << 20


class CannotKeep(Exception):
    """Something in a conversion has no form in text."""


def to_bytes(conversion, owned):
    """`owned`: Dynamo's name -> live tensor. Raises CannotKeep."""
    builder = conversion.builder
    content = {
        "storages": builder.storages,
        "values": builder.values,
        "nodes": builder.nodes,
        "live": origins(conversion, owned),
        "brought": [[b.kind, b.key, b.value] for b in conversion.brought],
        "tangents": conversion.tangents,
        "outputs": [[o.kind, made_as_json(o.made), o.tangent, o.alias, o.base, o.requires_grad] for o in conversion.outputs],
        "gradients": [[g.kind, g.key, g.value] for g in conversion.gradients],
        "mutations": conversion.mutations,
    }
    try:
        body = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise CannotKeep(str(error)) from error
    return f"{MAGIC} {hashlib.sha256(body).hexdigest()}\n".encode() + body


def from_bytes(text, name, device, flat):
    """The conversion that was kept, with the live tensors of `flat`; None if the text is not whole."""
    head, _, body = text.partition(b"\n")
    if head.decode("ascii", "replace") != f"{MAGIC} {hashlib.sha256(body).hexdigest()}":
        return None
    content = json.loads(body)
    builder = ProgramBuilder(name, device)
    builder.storages, builder.values, builder.nodes = content["storages"], content["values"], content["nodes"]
    for storage, origin in content["live"]:
        builder.adopt(storage, live_tensor(origin, flat))
    return Conversion(
        builder=builder,
        brought=[Brought(kind, key, as_value(value)) for kind, key, value in content["brought"]],
        tangents=[Value(value) for value in content["tangents"]],
        outputs=[Output(kind, made_again(made), as_value(tangent), *rest) for kind, made, tangent, *rest in content["outputs"]],
        gradients=[Brought(kind, key, Value(value)) for kind, key, value in content["gradients"]],
        mutations=[(Value(written), Value(new)) for written, new in content["mutations"]],
    )


def as_value(number):
    return None if number is None else Value(number)


def made_as_json(made):
    if isinstance(made, Value):
        return {"value": int(made)}
    if made is None or type(made) in (bool, int, float, str):
        return {"constant": made}
    raise CannotKeep(f"an output of type {type(made).__name__}")


def made_again(made):
    return Value(made["value"]) if "value" in made else made["constant"]


# Where live tensors are found again.

def origins(conversion, owned):
    """[storage, [kind, key]] for each live tensor of the builder."""
    places = {}
    for brought in conversion.brought:
        if brought.value is not None:
            places.setdefault(conversion.builder.values[brought.value]["storage"], []).append(brought)
    return [[storage, origin_of(tensor, places.get(storage, ()), owned)] for storage, tensor in conversion.builder.tensors.items()]


def origin_of(tensor, places, owned):
    for brought in places:
        if brought.kind == "input" or owned[brought.key] is tensor:
            return [brought.kind, brought.key]
    return ["constant", constant_as_json(tensor)]


def live_tensor(origin, flat):
    kind, key = origin
    if kind == "constant":
        return constant_again(key)
    return flat.flat_inputs[key] if kind == "input" else flat.owned[key]


def constant_as_json(tensor):
    if type(tensor) not in PLAIN_TENSORS or tensor.layout is not torch.strided or tensor.requires_grad:
        raise CannotKeep(f"a constant of type {type(tensor).__name__}")
    storage = tensor.untyped_storage()
    if storage.nbytes() > MOST_CONSTANT_BYTES:
        raise CannotKeep(f"a constant of {storage.nbytes()} bytes")
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "sizes": list(tensor.shape), "strides": list(tensor.stride()),
            "offset": tensor.storage_offset(), "device": str(tensor.device),
            "bytes": base64.b64encode(raw.cpu().numpy().tobytes()).decode()}


def constant_again(described):
    raw = torch.frombuffer(bytearray(base64.b64decode(described["bytes"])), dtype=torch.uint8).to(described["device"])
    tensor = torch.empty(0, dtype=getattr(torch, described["dtype"]), device=described["device"])
    return tensor.set_(raw.untyped_storage(), described["offset"], described["sizes"], described["strides"])
