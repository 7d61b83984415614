"""Collects storages, values, nodes and results, and puts them together as a program (docs/reference/program-format.md)."""

import math

import torch

from regen._capture.traced.symbols import kept
from regen.errors import CaptureError

FORMAT = "regen-program"
VERSION = 1


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


class ProgramBuilder:
    """Grows a program. Ids are positions in the lists until `finish` drops what is not used."""

    def __init__(self, name, device):
        self.name = name
        self.device = torch.device(device)
        self.storages = []
        self.values = []
        self.nodes = []
        self.scalars = []
        self.results = []
        self.boundary = None
        self.tensors = {}  # storage -> live tensor whose storage it is; for an input, its sample
        self._storage_of_live = {}  # identity of a real storage -> storage

    def add_storage(self, name, role, nbytes, device=None):
        storage = {"name": name, "role": role, "bytes": kept(nbytes)}
        if device is not None and torch.device(device).type != self.device.type:
            storage["device"] = str(device)
        self.storages.append(storage)
        return len(self.storages) - 1

    def add_live_storage(self, name, role, tensor):
        """The storage of a tensor that exists: shared by all tensors which share memory with it."""
        key = tensor.untyped_storage()._cdata
        if key not in self._storage_of_live:
            storage = self.add_storage(name, role, tensor.untyped_storage().nbytes(), tensor.device)
            self._storage_of_live[key] = storage
            self.tensors[storage] = tensor
        return self._storage_of_live[key]

    def adopt(self, storage, tensor):
        """Gives a storage that is there already its live tensor."""
        self.tensors[storage] = tensor
        if self.storages[storage]["role"] != "input":
            self._storage_of_live[tensor.untyped_storage()._cdata] = storage

    def add_value(self, storage, tensor, offset=None):
        """A view of `storage` with the dtype, sizes and strides of `tensor`."""
        self.values.append({
            "storage": storage,
            "dtype": dtype_name(tensor.dtype),
            "sizes": [kept(n) for n in tensor.shape],
            "strides": [kept(n) for n in tensor.stride()],
            "offset": kept(tensor.storage_offset() if offset is None else offset),
        })
        return len(self.values) - 1

    def add_computed(self, name, tensor):
        """A value on a storage of its own, made by the node that is about to be added."""
        storage = self.add_storage(name, "computed", tensor.untyped_storage().nbytes(), tensor.device)
        return self.add_value(storage, tensor)

    def add_scalar(self, name, value):
        self.scalars.append({"name": name, "value": value})
        return len(self.scalars) - 1

    def add_result(self, value, kind, name):
        self.results.append({"value": value, "kind": kind, "name": name})
        return len(self.results) - 1

    def make_node(self, name, op, phase, args, kwargs, outputs, source="", module=None):
        """A node that is not yet in the list: its place is decided by the caller. `module`: the path of that in which it runs; None: in none."""
        node = {
            "name": name,
            "op": op._schema.name,
            "overload": op._schema.overload_name,
            "phase": phase,
            "args": args,
            "kwargs": kwargs,
            "outputs": outputs,
            "random": draws_random_numbers(op, args, kwargs),
            "recomputable": not op._schema.name.startswith("_c10d_functional"),
            "source": source,
        }
        return node if module is None else {**node, "module": module}

    def finish(self):
        """The program, without values that are not read, renumbered. Returns it with storage and value maps."""
        null_unread_outputs(self.nodes, self.results)
        value_map = number_in_order(values_in_use(self.nodes, self.results), len(self.values))
        # What of the model exists before the step keeps its storage, read or not: the caller brings it.
        used = {self.values[v]["storage"] for v in value_map}
        used |= {s for s, storage in enumerate(self.storages) if storage["role"] not in ("computed", "input")}
        storage_map = number_in_order(used, len(self.storages))
        program = {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "torch": torch.__version__,
            "device": str(self.device),
            "storages": [self.storages[s] for s in storage_map],
            "values": [{**self.values[v], "storage": storage_map[self.values[v]["storage"]]} for v in value_map],
            "nodes": [renumbered_node(node, value_map) for node in self.nodes],
            "boundary": self.boundary,
            "scalars": self.scalars,
            "results": [{**result, "value": value_map[result["value"]]} for result in self.results],
            "data": [],
        }
        return program, storage_map, value_map


def draws_random_numbers(op, args, kwargs):
    """Does this call advance the generator? Attention does so only when it drops something."""
    if torch.Tag.nondeterministic_seeded not in op.tags:
        return False
    names = [argument.name for argument in op._schema.arguments]
    if "dropout_p" not in names:
        return True
    position = names.index("dropout_p")
    default = op._schema.arguments[position].default_value
    given = args[position] if position < len(args) else kwargs.get("dropout_p", default)
    return bool(given)


def referenced_values(argument) -> list[int]:
    """All value ids inside an argument, in order."""
    if isinstance(argument, list):
        return [v for item in argument for v in referenced_values(item)]
    if isinstance(argument, dict) and "value" in argument:
        return [argument["value"]]
    return []


def reads_of(node):
    return referenced_values(node["args"]) + [v for item in node["kwargs"].values() for v in referenced_values(item)]


def values_in_use(nodes, results):
    used = {result["value"] for result in results}
    for node in nodes:
        used.update(reads_of(node))
        used.update(v for v in node["outputs"] if v is not None)
    return used


def null_unread_outputs(nodes, results):
    read = {result["value"] for result in results}
    for node in nodes:
        read.update(reads_of(node))
    for node in nodes:
        node["outputs"] = [v if v in read else None for v in node["outputs"]]


def number_in_order(used, count):
    return {old: new for new, old in enumerate(i for i in range(count) if i in used)}


def renumbered_node(node, value_map):
    renumbered = dict(node)
    renumbered["args"] = renumbered_argument(node["args"], value_map)
    renumbered["kwargs"] = {k: renumbered_argument(a, value_map) for k, a in node["kwargs"].items()}
    renumbered["outputs"] = [None if v is None else value_map[v] for v in node["outputs"]]
    return renumbered


def renumbered_argument(argument, value_map):
    if isinstance(argument, list):
        return [renumbered_argument(item, value_map) for item in argument]
    if isinstance(argument, dict) and "value" in argument:
        return {"value": value_map[argument["value"]]}
    return argument


def json_argument(argument, place):
    """An argument that holds no tensor, as the format writes it."""
    if argument is None or isinstance(argument, (bool, str)):
        return argument
    if isinstance(argument, torch.SymInt):
        return argument
    if isinstance(argument, int):
        return int(argument)
    if isinstance(argument, float):
        return argument if math.isfinite(argument) else {"number": str(argument)}
    for kind, key in TYPES_JSON_LACKS:
        if isinstance(argument, kind):
            return {key: str(argument).removeprefix("torch.")}
    if isinstance(argument, (list, tuple)):
        return [json_argument(item, place) for item in argument]
    raise CaptureError(
        f"cannot capture {place}: argument {argument!r} of type {type(argument).__name__}; "
        "expected tensors, numbers, strings, dtypes, layouts, memory formats and devices")


TYPES_JSON_LACKS = [
    (torch.dtype, "dtype"),
    (torch.layout, "layout"),
    (torch.memory_format, "memory_format"),
    (torch.device, "device"),
]
