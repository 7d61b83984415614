"""The rules of docs/reference/program-format.md, checked on a program without looking at how it was made."""

import torch

ROLES = {"input", "parameter", "buffer", "state", "constant", "tangent", "computed"}
PHASES = {"forward", "backward", "update"}


def operator(node):
    namespace, name = node["op"].split("::")
    return getattr(getattr(getattr(torch.ops, namespace), name), node["overload"] or "default")


def check_rules(program):
    assert program["format"] == "regen-program" and program["version"] == 1
    check_values(program)
    exists = {i for i, value in enumerate(program["values"]) if role_of(program, i) != "computed"}
    made_storages = set()
    for position, node in enumerate(program["nodes"]):
        check_node(program, position, node, exists)
        for value in node["outputs"]:
            if value is not None:
                exists.add(value)
                made_storages.add(program["values"][value]["storage"])
    computed = {i for i, storage in enumerate(program["storages"]) if storage["role"] == "computed"}
    assert computed == {s for s in made_storages if s in computed}, "a computed storage that no node makes"
    for result in program["results"]:
        assert result["value"] in exists and result["kind"] in ("output", "gradient")


def role_of(program, value):
    return program["storages"][program["values"][value]["storage"]]["role"]


def check_values(program):
    assert all(storage["role"] in ROLES and storage["bytes"] >= 0 for storage in program["storages"])
    for value in program["values"]:
        assert 0 <= value["storage"] < len(program["storages"])
        if 0 in value["sizes"]:
            continue
        last = value["offset"] + sum((n - 1) * s for n, s in zip(value["sizes"], value["strides"]))
        size = torch.empty(0, dtype=getattr(torch, value["dtype"])).element_size()
        assert (last + 1) * size <= program["storages"][value["storage"]]["bytes"], "a view larger than its storage"


def check_node(program, position, node, exists):
    op = operator(node)
    assert node["phase"] in PHASES
    boundary = program["boundary"]
    if boundary is not None:
        assert (position < boundary) == (node["phase"] == "forward"), node["name"]
    read = values_in(node["args"]) + values_in(list(node["kwargs"].values()))
    assert all(value in exists for value in read), f"{node['name']} reads what does not exist yet"
    if node["phase"] == "forward":
        assert all(role_of(program, value) != "tangent" for value in read), node["name"]
    for value in written_values(op, node):
        # Fused optimizers may write gradients by their schema; nothing reads these afterwards.
        assert role_of(program, value) != "computed" or "_fused_" in node["op"], f"{node['name']} writes an intermediate"
    draws = torch.Tag.nondeterministic_seeded in op.tags and "attention" not in node["op"]
    assert node["random"] or not draws, f"{node['name']} draws"


def values_in(argument):
    if isinstance(argument, list):
        return [value for item in argument for value in values_in(item)]
    return [argument["value"]] if isinstance(argument, dict) and "value" in argument else []


def written_values(op, node):
    written = []
    for index, argument in enumerate(op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node["args"][index] if index < len(node["args"]) else node["kwargs"].get(argument.name)
            written += values_in(given)
    return written
