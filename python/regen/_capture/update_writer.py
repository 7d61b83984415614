"""Writes an optimizer's recipes as nodes of a program."""

from collections.abc import Callable
from typing import Any

import torch

from regen._capture.conversion import Value
from regen._capture.node_writer import NodeWriter
from regen._capture.optimizers import OptimizerUpdates, UpdateClass
from regen._capture.program_builder import json_argument
from regen._capture.update_recording import Call, NoRecipe, Symbol

# An update by lists takes many parameters at once. Few at a time, as their gradients become ready, let these go early;
# very few would cost a kernel launch each.
BUCKET_BYTES = 32 << 20

Node = dict[str, Any]


class UpdateWriter:
    """Writes the nodes that update a bucket of parameters by the recipe of their class."""

    def __init__(
        self, writer: NodeWriter, updates: OptimizerUpdates, optimizer: torch.optim.Optimizer, value_of_parameter: dict[int, Any],
        value_of_gradient: dict[int, Any], names: dict[int, tuple[str, str]], new_live_value: Callable[[str, str, torch.Tensor], tuple[int, Value]],
    ) -> None:
        self.writer = writer
        self.updates = updates
        self.optimizer = optimizer
        self.value_of_parameter = value_of_parameter
        self.value_of_gradient = value_of_gradient
        self.names = names
        self.new_live_value = new_live_value
        self.state_values: dict[tuple[int, Any], Any] = {}

    def write(self, kind: UpdateClass, bucket: list[torch.Tensor]) -> list[Node]:
        """The nodes for `bucket`, parameters of the class `kind`."""
        bound: dict[Symbol, list[Any]] = {}  # a value for each parameter of the bucket
        bound[Symbol("param")] = [self.value_of_parameter[id(p)] for p in bucket]
        bound[Symbol("grad")] = [self.value_of_gradient[id(p)] for p in bucket]
        for key, value in self.optimizer.state.get(bucket[0], {}).items():
            if isinstance(value, torch.Tensor) and not kind.shadow.is_host(key, value):
                bound[Symbol("state", key)] = [self.state_value(p, key) for p in bucket]
        nodes = []
        for index, call in enumerate(kind.calls):
            scalar_at = {
                (place.argument, place.item): scalar for place, scalar in zip(kind.places, kind.scalars) if place.call == index}
            nodes += self.write_call(call, bound, scalar_at, len(bucket))
        return nodes

    def write_call(self, call: Call, bound: dict[Symbol, list[Any]], scalar_at: dict[tuple[str, int], int], count: int) -> list[Node]:
        if call.by_list:
            args, kwargs = self.arguments(call, lambda s: bound[s], scalar_at, count)
            node, values = self.node(call, args, kwargs, count)
            for position, symbol in enumerate(call.outputs):
                bound[symbol] = values[position * count:(position + 1) * count]
            return [node]
        if any(symbol.kind == "const" for symbol in call.outputs):
            args, kwargs = self.arguments(call, lambda s: bound[s], scalar_at, 1)
            kwargs["device"] = {"device": str(self.writer.builder.device)}  # a stand-in may have been elsewhere
            node, values = self.node(call, args, kwargs, 1)
            bound[call.outputs[0]] = [values[0]] * count
            return [node]
        nodes = []
        for i in range(count):
            args, kwargs = self.arguments(call, lambda s, i=i: [bound[s][i]], scalar_at, 1)
            node, values = self.node(call, args, kwargs, 1)
            for symbol, value in zip(call.outputs, values):
                bound.setdefault(symbol, []).append(value)
            nodes.append(node)
        return nodes

    def node(self, call: Call, args: list[Any], kwargs: dict[str, Any], count: int) -> tuple[Node, list[Any]]:
        if not call.outputs:
            return self.writer.writing(call.op, args, kwargs), []
        node, values = self.writer.functional(call.op, args, kwargs)
        made = [self.writer.builder.values[v]["dtype"] for v in values]
        expected = [str(dtype).removeprefix("torch.") for dtype in call.dtypes for _ in range(count)]
        if made != expected:
            raise NoRecipe(f"{call.op} into memory of another type ({', '.join(sorted(set(made) ^ set(expected)))})")
        return node, values

    def arguments(
        self, call: Call, values_of: Callable[[Symbol], list[Any]], scalar_at: dict[tuple[str, int], int], count: int,
    ) -> tuple[list[Any], dict[str, Any]]:
        names = [argument.name for argument in call.op._schema.arguments]
        args = [self.instance(a, values_of, scalar_at, names[i], count) for i, a in enumerate(call.args)]
        return args, {k: self.instance(a, values_of, scalar_at, k, count) for k, a in call.kwargs.items()}

    def instance(self, argument: Any, values_of: Callable[[Symbol], list[Any]], scalar_at: dict[tuple[str, int], int], name: str, count: int) -> Any:
        """An argument of the recipe for the parameters at hand: lists of one grow to the size of the bucket."""
        if isinstance(argument, Symbol):
            return {"value": int(values_of(argument)[0])}
        if isinstance(argument, list) and any(isinstance(item, Symbol) for item in argument):
            if count > 1:
                return [{"value": int(value)} for value in values_of(argument[0])]
            return [{"value": int(values_of(item)[0])} if isinstance(item, Symbol) else item for item in argument]
        if isinstance(argument, list) and (name, 0) in scalar_at:
            if len(argument) > 1:
                return [{"scalar": scalar_at[name, item]} for item in range(len(argument))]
            return [{"scalar": scalar_at[name, 0]} for _ in range(count)]
        if (name, -1) in scalar_at:
            return {"scalar": scalar_at[name, -1]}
        return json_argument(argument, self.writer.builder.name)

    def state_value(self, parameter: torch.Tensor, key: Any) -> Any:
        if (id(parameter), key) not in self.state_values:
            tensor = self.optimizer.state[parameter][key]
            storage, value = self.new_live_value(f"{self.names[id(parameter)][0]}.{key}", "state", tensor)
            self.updates.state_of[storage] = (parameter, key)
            self.state_values[id(parameter), key] = value
        return self.state_values[id(parameter), key]


def buckets(kind: UpdateClass, places: dict[int, int], limit: int = BUCKET_BYTES) -> list[tuple[int, list[torch.Tensor]]]:
    """Splits the parameters of a class by the place where each can be updated: [(place, parameters)]."""
    ordered = sorted(kind.parameters, key=lambda p: places[id(p)])
    if not kind.by_list:
        return [(places[id(p)], [p]) for p in ordered]
    found: list[tuple[int, list[torch.Tensor]]] = []
    current: list[torch.Tensor] = []
    size = 0
    for parameter in ordered:
        current.append(parameter)
        size += parameter.numel() * parameter.element_size()
        if size >= limit:
            found.append((places[id(parameter)], current))
            current, size = [], 0
    if current:
        found.append((places[id(current[-1])], current))
    return found
