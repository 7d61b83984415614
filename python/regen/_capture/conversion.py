"""A joint graph as the beginnings of a program: plain data, which can be kept and made a program of in another process."""

import dataclasses

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from regen._capture.program_builder import ProgramBuilder


class Value(int):
    """A value id among things that may also be plain integers."""


@dataclasses.dataclass
class Brought:
    """A tensor that the caller brings, or the gradient of one.

    kind "parameter" or "buffer": `key` is Dynamo's name for a tensor of the model; kind "input": the number of the flat input.
    """

    kind: str
    key: object
    value: object  # None for an input that is no tensor


@dataclasses.dataclass
class Conversion:
    """A program in the making, with the places of what the caller brings and gets."""

    builder: ProgramBuilder
    brought: list = dataclasses.field(default_factory=list)  # in the order of the graph's inputs, tangents apart
    tangents: list = dataclasses.field(default_factory=list)  # values
    gradients: list = dataclasses.field(default_factory=list)  # of parameters and inputs, as Brought
    mutations: list = dataclasses.field(default_factory=list)  # (value of the changed input or buffer, new value)

    def inputs(self):
        """Flat input -> value."""
        return {b.key: b.value for b in self.brought if b.kind == "input" and b.value is not None}


class FakeValues:
    """Tensors without data that look like the values of a program, made when they are asked for."""

    def __init__(self, builder):
        self.builder = builder
        self.mode = FakeTensorMode()
        self.made = {}

    def __getitem__(self, value):
        if value not in self.made:
            described = self.builder.values[value]
            device = self.builder.storages[described["storage"]].get("device", self.builder.device)
            with self.mode:
                self.made[value] = torch.empty_strided(
                    described["sizes"], described["strides"], dtype=getattr(torch, described["dtype"]), device=device)
        return self.made[value]
