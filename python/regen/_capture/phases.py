"""Which nodes are needed, which belong to the forward part, and where changes of buffers are written back."""

import math

import torch

from regen._capture.program_builder import reads_of
from regen.errors import CaptureError

# Normalization with the statistics of the batch takes the running ones only to hand back updated ones, so it gives the
# same result after the update as before; its backward pass does not read them at all.
STATISTICS_PASS_THROUGH = {
    "aten::_native_batch_norm_legit_functional", "aten::_batch_norm_with_update_functional",
    "aten::native_batch_norm_backward", "aten::cudnn_batch_norm_backward",
}
MUST_RUN = {"aten::_assert_async", "regen::island"}  # the user's Python may have effects of its own
# Numbers in a buffer that is written back in one call with others.
MOST_TOGETHER = 1 << 16


def arrange(conversion):
    """Drops dead nodes, cuts the node list at the boundary and writes changed buffers and inputs back."""
    builder = conversion.builder
    outputs = [result["value"] for result in builder.results if result["kind"] == "output"]
    changed = [new for _, new in conversion.mutations]
    gradients = [gradient.value for gradient in conversion.gradients]
    builder.nodes = needed_nodes(builder.nodes, outputs + changed + gradients)
    builder.nodes, builder.boundary = cut(builder.nodes, outputs + changed, set(conversion.tangents))
    storages = {id(node): storages_read(builder, node) for node in builder.nodes}
    for pairs in together(builder, conversion.mutations):
        write_back(builder, pairs, storages)
    for position, node in enumerate(builder.nodes):
        node["phase"] = "forward" if position < builder.boundary else "backward"


def needed_nodes(nodes, wanted):
    """The nodes that lead to `wanted`, draw random numbers or check something, in their order."""
    needed = set(wanted)
    kept = []
    for node in reversed(nodes):
        if node["random"] or node["op"] in MUST_RUN or any(v in needed for v in node["outputs"]):
            needed.update(reads_of(node))
            kept.append(node)
    return kept[::-1]


def cut(nodes, wanted, tangents):
    """Forward: up to the last node that a wanted value or a draw without tangents needs.

    A draw behind tangents (attention's backward pass counts as one) must not count: what leads to it is the backward pass itself, and all that
    this computes from forward values alone would be made before it begins, for all layers at once.
    """
    reached = set(tangents)
    depends = []
    for node in nodes:
        depends.append(any(v in reached for v in reads_of(node)))
        if depends[-1]:
            reached.update(v for v in node["outputs"] if v is not None)
    without_tangents = [node for node, behind in zip(nodes, depends) if not behind]
    needed = {id(node) for node in needed_nodes(without_tangents, wanted)}
    last = max((i for i, node in enumerate(nodes) if id(node) in needed), default=-1)
    forward = [node for i, node in enumerate(nodes) if i <= last and not depends[i]]
    backward = [node for i, node in enumerate(nodes) if i > last or depends[i]]
    return forward + backward, len(forward)


def storages_read(builder, node):
    return {builder.values[v]["storage"] for v in reads_of(node)}


def together(builder, mutations):
    """Lists of (written, new) that one call writes back: statistics are many and small, and a kernel for each would cost more
    time than all of them in one. Large ones go alone, so that nothing large has to wait.
    """
    groups = {}
    for written, new in mutations:
        values = builder.values[written], builder.values[new]
        if written == new:
            continue
        small = math.prod(values[0]["sizes"]) <= MOST_TOGETHER
        alike = all(values[0][key] == values[1][key] for key in ("dtype", "sizes", "strides"))
        key = values[0]["dtype"] if small and alike else (written, new)
        groups.setdefault(key, []).append((written, new))
    return list(groups.values())


def write_back(builder, pairs, storages):
    """Adds a copy of each new value into what is written, after the last forward reader of the old contents. `storages` holds what each
    node reads.
    """
    place = max(place_of_copy(builder, written, new, storages) for written, new in pairs)
    written, new = ([{"value": int(pair[side])} for pair in pairs] for side in (0, 1))
    name = f"update_{builder.storages[builder.values[pairs[0][0]]['storage']]['name']}"
    if len(pairs) == 1:
        node = builder.make_node(name, torch.ops.aten.copy_.default, "forward", [written[0], new[0]], {}, [None])
    else:
        outputs = [None] * len(torch.ops.aten._foreach_copy_.default._schema.returns)
        node = builder.make_node(name, torch.ops.aten._foreach_copy_.default, "forward", [written, new], {}, outputs)
    storages[id(node)] = storages_read(builder, node)
    builder.nodes.insert(place, node)
    builder.boundary += 1


def place_of_copy(builder, written, new, storages):
    storage = builder.values[written]["storage"]
    place = 0
    for position, node in enumerate(builder.nodes):
        reads = storage in storages[id(node)]
        if reads and node["op"] not in STATISTICS_PASS_THROUGH:
            check_reader(builder, position, node, storage)
            # A second run after the write would read the new contents.
            node["recomputable"] = False
        if (reads or new in node["outputs"]) and position < builder.boundary:
            place = position + 1
    return place


def check_reader(builder, position, node, storage):
    if position >= builder.boundary:
        at = f" at {node['source']}" if node["source"] else ""
        raise CaptureError(
            f"cannot capture {builder.name}{at}: {builder.storages[storage]['name']} is changed in place, but {node['op']} of the "
            "backward pass needs its old contents; expected a copy to be changed (x = x.clone())")
