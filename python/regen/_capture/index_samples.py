"""Real contents for integers and masks that follow from the inputs.

Operators are recorded one by one on made-up contents. Where contents decide whether a call is valid, or what it allocates (gather, selection by a
mask), those that follow from the sample by a few integer operators are computed here.
"""

import math
from typing import Any

import torch

from regen._capture.program_builder import reads_of
from regen._capture.traced.evaluation import Evaluation, view_of_input, view_of_storage
from regen._islands.operators import NAMES

# Elements of one value; larger ones are made up.
MOST_ELEMENTS = 1 << 20
KINDS = ("int64", "int32", "bool")


def index_samples(program: dict[str, Any], tensors: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Storage -> a tensor in it, for computed integers and masks.

    Args:
        program: of a capture.
        tensors: storage -> live tensor, or the sample of an input.
    """
    values, storages = program["values"], program["storages"]

    def bring(value: int) -> torch.Tensor:
        storage = values[value]["storage"]
        return (view_of_input if storages[storage]["role"] == "input" else view_of_storage)(tensors[storage], values[value])

    evaluation = Evaluation({}, bring, {})
    known = {v for v, value in enumerate(values) if value["dtype"] in KINDS and storages[value["storage"]]["role"] in ("input", "constant", "buffer")}
    found: dict[int, torch.Tensor] = {}
    with torch.no_grad(), torch._C._DisableAutocast():
        for node in program["nodes"]:
            made = [v for v in node["outputs"] if v is not None]
            if node["phase"] == "forward" and made and is_small_integer(node, made, values, known):
                evaluation.run(node)
                known.update(made)
                found.update({values[v]["storage"]: evaluation.found[v] for v in made if storages[values[v]["storage"]]["role"] == "computed"})
    return found


def is_small_integer(node: dict[str, Any], made: list[int], values: list[dict[str, Any]], known: set[int]) -> bool:
    """Of known values only, and functional."""
    if node["random"] or node["op"] in NAMES or not all(v in known for v in reads_of(node)):
        return False
    return all(values[v]["dtype"] in KINDS and math.prod(values[v]["sizes"]) <= MOST_ELEMENTS for v in made)
