"""Sizes as symbols: a trace that is for all batches whose sizes give the same answers to every question that was asked about them.

Dimensions of inputs that vary from batch to batch are symbols of PyTorch's ShapeEnv. Whatever branches on them while the model is traced (the user's
Python, composite operators, autograd's formulas, the tracer) is answered for the sample, and the question is kept as a guard.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.printers import PythonPrinter

# A dimension of a flat input.
Dimension: TypeAlias = tuple[int, int]


class Symbols:
    """The symbols of one trace: dimensions that vary together have one."""

    def __init__(self, groups: Sequence[Sequence[Dimension]], sizes: Sequence[int]) -> None:
        """`groups`: dimensions that have the same size in every batch; `sizes`: of the sample, for each group."""
        self.env = ShapeEnv(duck_shape=False)
        self.names: list[str] = []
        self.number_of: dict[Dimension, int | torch.SymInt] = {}
        for index, (group, size) in enumerate(zip(groups, sizes)):
            source = ConstantSource(f"varying_{index}")
            symbol = self.env.create_symbol(size, source, dynamic_dim=DimDynamic.DYNAMIC)
            number = self.env.create_symintnode(symbol, hint=size, source=source)
            self.names.append(str(symbol))
            self.number_of.update(dict.fromkeys(group, number))

    def sizes_of(self, flat_input: int, sample: torch.Tensor) -> list[Any]:
        """Of an input, with symbols where it varies."""
        return [self.number_of.get((flat_input, dimension), size) for dimension, size in enumerate(sample.shape)]

    def bounds(self) -> list[tuple[int, int | None]]:
        """The least and the largest size that each symbol may stand for; None: no limit."""
        found = []
        for name in self.names:
            limits = self.env.var_to_range[sympy.Symbol(name, positive=True, integer=True)]
            found.append((int(limits.lower), int(limits.upper) if limits.upper.is_Integer else None))
        return found

    def guards(self) -> list[Any]:
        """Expressions that hold for the sample, and have to hold for every batch that the trace is for."""
        return [guard.expr for guard in self.env.guards]


def plain(number: Any) -> Any:
    """A size as something that can be compared and hashed without asking the ShapeEnv: an integer, or its expression."""
    if not isinstance(number, torch.SymInt):
        return int(number)
    expression = number.node.expr
    return int(expression) if expression.is_number else expression


def kept(number: Any) -> Any:
    """A size for the program: an integer, or a symbolic one."""
    return number if isinstance(number, torch.SymInt) else int(number)


def of_sample(tree: Any) -> Any:
    """Nested lists, tuples and dictionaries with the sample's numbers in the place of symbolic ones."""
    if isinstance(tree, (torch.SymInt, torch.SymFloat)):
        return tree.node.hint
    if isinstance(tree, (list, tuple)):
        return type(tree)(of_sample(item) for item in tree)
    if isinstance(tree, dict):
        return {key: of_sample(item) for key, item in tree.items()}
    return tree


def function_of(names: Sequence[str], expressions: Sequence[Any]) -> Any:
    """A function of the symbols' values that returns the values of all expressions."""
    printer = PythonPrinter()
    code = ", ".join(printer.doprint(expression) for expression in expressions)
    return eval(f"lambda {', '.join(names)}: ({code}{',' if code else ''})", {"math": math})
