"""Adds nodes by hand: calls an operator on tensors without data to learn what it returns."""

import torch

from regen._capture.conversion import Value
from regen._capture.program_builder import referenced_values


class NodeWriter:
    """Makes nodes of operators on the values of a builder, in the phase `update`. `fake_values`: how these look."""

    def __init__(self, builder, fake_values):
        self.builder = builder
        self.fake_values = fake_values
        self.count = 0

    def functional(self, op, args, kwargs=None):
        """(node, values it returns, lists flattened)."""
        kwargs = kwargs or {}
        name = self.next_name(op)
        with self.fake_values.mode:
            returned = flat(op(*[self.fakes(a) for a in args], **{k: self.fakes(a) for k, a in kwargs.items()}))
        bases = {self.fake_values[v].untyped_storage()._cdata: v for v in referenced_values([*args, *kwargs.values()])}
        values = []
        for index, fake in enumerate(returned):
            base = bases.get(fake.untyped_storage()._cdata)
            if base is not None:  # a view
                described = self.builder.values[base]
                offset = described["offset"] * getattr(torch, described["dtype"]).itemsize // fake.element_size() + fake.storage_offset()
                values.append(Value(self.builder.add_value(described["storage"], fake, offset)))
                continue
            label = name if len(returned) == 1 else f"{name}.{index}"
            storage = self.builder.add_storage(label, "computed", fake.untyped_storage().nbytes(), fake.device)
            values.append(Value(self.builder.add_value(storage, fake)))
        return self.builder.make_node(name, op, "update", args, kwargs, [int(v) for v in values]), values

    def writing(self, op, args, kwargs=None):
        """A node that changes what exists, and returns nothing of interest."""
        outputs = [None] * len(op._schema.returns)
        return self.builder.make_node(self.next_name(op), op, "update", args, kwargs or {}, outputs)

    def next_name(self, op):
        self.count += 1
        return f"{op._schema.name.split('::')[1].strip('_')}_u{self.count}"

    def fakes(self, argument):
        if isinstance(argument, list):
            return [self.fakes(item) for item in argument]
        if isinstance(argument, dict) and "scalar" in argument:
            return self.builder.scalars[argument["scalar"]]["value"]
        if isinstance(argument, dict) and referenced_values(argument):
            return self.fake_values[argument["value"]]
        if isinstance(argument, dict):
            return native_argument(argument)
        return argument


def native_argument(argument):
    """What the operator takes where JSON has no word for it."""
    (key, content), = argument.items()
    return {"number": float, "device": torch.device}.get(key, lambda name: getattr(torch, name))(content)


def flat(returned):
    if isinstance(returned, (list, tuple)):
        return [tensor for item in returned for tensor in flat(item)]
    return [returned]
