"""The tensors that a captured step shares with its caller: where they are found again, and how they must look."""

from typing import Any

import torch

from regen import _runtime
from regen._capture.traced.passes import attributes_of
from regen.errors import UsageError


class Owned:
    """Parameters, buffers and optimizer state, looked up anew for every step: they may move, but not change their layout."""

    def __init__(self):
        self.storages: list[tuple[int, int]] = []
        self.places: list[Any] = []
        self.expected: list[tuple[Any, ...]] = []
        self.names: list[str] = []
        self.same: list[torch.Tensor | None] = []
        self.table = _runtime.OwnedTensors()

    def add(self, storage, place, tensor, name, same=False):
        """`place`: a dictionary and the key under which `tensor` is in it, whichever tensor that will be, unless it must be the `same`;
        or an OptimizerState with a parameter and a key.
        """
        self.storages.append((storage, tensor.storage_offset()))
        self.places.append(place)
        self.expected.append(layout_of(tensor))
        self.table.add(storage, tensor, same)
        self.names.append(name)
        self.same.append(tensor if same else None)

    def bind(self, step):
        """To the tensors as they are now."""
        if self.table.bind(step, self.places, self.same) >= 0:
            step.bind(self.bindings(self.tensors()))  # which says what is wrong

    def let_go(self):
        self.same = [None] * len(self.same)

    def tensors(self):
        """As they are now."""
        tensors = [holder[key] for holder, key in self.places]
        changed = self.table.first_change(tensors)
        if changed >= 0:
            raise UsageError(self.changed_message(changed, tensors[changed]))
        for index, (tensor, same) in enumerate(zip(tensors, self.same)):
            if same is not None and tensor is not same:
                raise UsageError(
                    f"regen: parameter '{self.names[index]}' was replaced by another; expected the one that the optimizer was given "
                    "(its contents and storage may change)")
        return tensors

    def changed_message(self, index, tensor):
        shape, stride, dtype = self.expected[index]
        return (f"regen: '{self.names[index]}' is now {tensor.dtype} {tuple(tensor.shape)} with strides {tensor.stride()}; expected "
                f"{dtype} {tuple(shape)} with strides {stride} as when the model was wrapped")

    def bindings(self, tensors):
        return [(storage, tensor, offset) for (storage, offset), tensor in zip(self.storages, tensors)]


class Bindings:
    """Where a captured step finds all tensors that it does not make."""

    def __init__(self, captured, model, state=None, same=False):
        """`state`: of the optimizer, for what the program calls state. `same`: parameters may not be replaced by others."""
        program = captured.program
        values = program["values"]
        self.inputs = [(values[v]["storage"], index, values[v]["offset"]) for index, v in captured.input_values.items()]
        names = {id(t): n for n, t in [*attributes_of(model), *model.named_buffers(), *model.named_parameters()]}
        self.owned, self.constants, self.places = Owned(), [], {}
        for storage, tensor in captured.tensors.items():
            name, role = program["storages"][storage]["name"], program["storages"][storage]["role"]
            if role == "state":
                self.own(storage, (state, captured.state_of[storage]), tensor, name)
            elif role != "input" and id(tensor) in names:
                self.own(storage, place_of(model, names[id(tensor)]), tensor, name, same and role == "parameter")
            elif role != "input":
                self.constants.append((storage, tensor, tensor.storage_offset()))

    def own(self, storage, place, tensor, name, same=False):
        self.places[storage] = place
        self.owned.add(storage, place, tensor, name, same)

    def bind(self, step, flat):
        """To the tensors as they are now; `flat` are the arguments of this call."""
        self.owned.bind(step)
        step.bind([*self.of_inputs(flat), *self.constants])

    def tensor_of(self, captured, storage):
        """The live tensor of a storage, as it is now."""
        place = self.places.get(storage)
        return captured.tensors[storage] if place is None else place_value(place)

    def of_inputs(self, flat):
        return [(storage, flat[index], offset) for storage, index, offset in self.inputs]

    def let_go(self):
        self.constants = []
        self.owned.let_go()


def layout_of(tensor):
    return tensor.shape, tensor.stride(), tensor.dtype


def place_of(model, name):
    """The dictionary of a module that holds a tensor, and the key, which stay the same when the tensor is replaced."""
    path, _, key = name.rpartition(".")
    module = model.get_submodule(path)
    return next((holder for holder in (module._parameters, module._buffers) if key in holder), vars(module)), key


def place_value(place: Any) -> Any:
    """The tensor that is at a place now."""
    holder, key = place
    return holder[key]
