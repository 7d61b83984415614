"""Plain values that the forward pass assigns to attributes of modules: flags, counters, what is there from the second pass on."""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from regen.errors import CaptureError

PLAIN = (bool, int, float, str, type(None))


class Nothing:
    """Where there is no attribute."""


class Begun(NamedTuple):
    """How an attribute looked before the forward pass changed it: with another look, the user's code may do something else."""

    path: str  # of the module
    name: str
    look: Any


class Counts(NamedTuple):
    """What every pass does to a number that it does not read."""

    path: str
    name: str
    operations: tuple[tuple[Callable[[Any, Any], Any], Any], ...]

    def after(self, number: Any) -> Any:
        """The number after a pass."""
        for operation, operand in self.operations:
            number = operation(number, operand)
        return number


def look_of(value: Any) -> Any:
    """What the user's code may ask of an attribute; None: it is no tensor and no plain value."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype
    if isinstance(value, PLAIN):
        return type(value), value
    return Nothing if value is Nothing else None


def attribute(module: torch.nn.Module, name: str) -> Any:
    """As it is now."""
    return vars(module).get(name, module._buffers.get(name, Nothing))


def looks_as(model: torch.nn.Module, begun: list[Begun]) -> bool:
    """Are these attributes as they were?"""
    return all(look_of(attribute(model.get_submodule(b.path), b.name)) == b.look for b in begun)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Counted:
    """In the place of a number while a model is traced: it can be counted with, and not be read."""

    def __init__(self, operations: tuple[tuple[Callable[[Any, Any], Any], Any], ...] = ()) -> None:
        self.operations = operations

    def then(self, operation: Callable[[Any, Any], Any], operand: Any) -> "Counted":
        """One operation more."""
        if not is_number(operand):
            self.read()
        return Counted((*self.operations, (operation, operand)))

    def __add__(self, other: Any) -> "Counted":
        return self.then(operator.add, other)

    def __sub__(self, other: Any) -> "Counted":
        return self.then(operator.sub, other)

    def __mul__(self, other: Any) -> "Counted":
        return self.then(operator.mul, other)

    def read(self, *_: Any) -> Any:
        """Refused."""
        raise CaptureError("a number that the forward pass counts with is read; expected one that is only counted with")

    __bool__ = __int__ = __float__ = __index__ = __str__ = __repr__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = read  # pyright: ignore
    __eq__ = __ne__ = __radd__ = __rsub__ = __rmul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __format__ = read  # pyright: ignore
