"""Arguments of a call as a flat list: tensors, plain values, and the tensors inside of objects of any class."""

import copy
import io
import pickle
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

PLAIN = (torch.Tensor, bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


class ArgumentSpec(NamedTuple):
    """How arguments are nested; equal for calls that differ in tensors and plain values alone."""

    tree: TreeSpec
    objects: tuple[tuple[int, bytes, int], ...]  # position of a leaf, all of its state but the tensors, how many these are


class TensorPickler(pickle.Pickler):
    """Finds the tensors in an object, and describes the rest of it."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=4)
        self.tensors: list[torch.Tensor] = []
        self.positions: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, torch.Tensor):
            return None
        if id(obj) not in self.positions:
            self.positions[id(obj)] = len(self.tensors)
            self.tensors.append(obj)
        return self.positions[id(obj)]


def described(obj: Any) -> tuple[bytes, list[torch.Tensor]] | None:
    """(all of an object but its tensors, its tensors); None: it cannot be looked into."""
    file = io.BytesIO()
    pickler = TensorPickler(file)
    try:
        pickler.dump(obj)
    except Exception:  # whatever a class raises that cannot be pickled
        return None
    return file.getvalue(), pickler.tensors


def flatten_arguments(args: Any, kwargs: Any) -> tuple[list[Any], ArgumentSpec]:
    """(leaves, then the tensors of objects among them; how they are nested)."""
    leaves, tree = tree_flatten((args, kwargs))
    objects, found = [], []
    for position, leaf in enumerate(leaves):
        if not isinstance(leaf, PLAIN):
            seen = described(leaf)
            if seen is not None:
                objects.append((position, seen[0], len(seen[1])))
                found += seen[1]
    return leaves + found, ArgumentSpec(tree, tuple(objects))


def unflatten_arguments(flat: list[Any], original: list[Any], spec: ArgumentSpec) -> tuple[Any, Any]:
    """(args, kwargs) with `flat` in the place of `original`."""
    count = spec.tree.num_leaves
    leaves, used = list(flat[:count]), count
    for position, _, tensors in spec.objects:
        if not tensors:
            continue
        memo = {id(original[i]): flat[i] for i in range(used, used + tensors)}
        leaves[position] = copy.deepcopy(original[position], memo)
        used += tensors
    return tree_unflatten(leaves, spec.tree)
