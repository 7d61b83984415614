"""One capture for batches of many sizes: the program of a sample, and what its numbers are for other sizes.

The model is traced twice: as ever, and with symbols for the sizes that vary (`traced/symbols.py`). Both have to give the same program for the
sample. What the second adds is an expression for every number that depends on a size, and the guards: questions about sizes that the user's code,
composite operators, autograd's formulas or the tracer have asked. For sizes that answer them in the same way, tracing would do the same, so that
the program with the expressions' values is what a capture of such a batch would give.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from regen._capture.capture import Captured
from regen._capture.traced.output_recipes import OutputRecipe
from regen._capture.traced.symbols import Symbols, function_of, of_sample, plain
from regen.errors import CaptureError

Sizes = tuple[int, ...]  # one for each symbol
Changes = dict[int, dict[str, Any]]  # entry of a list -> its key -> place of an expression, or several


class Numbers(NamedTuple):
    """What of a program is other than for the sample."""

    storages: list[tuple[int, int]]
    values: list[tuple[int, list[int], list[int], int]]
    calls: list[tuple[int, str, str]]  # arguments and keyword arguments as JSON


class SizedCapture:
    """A captured step for batches of many sizes."""

    def __init__(self, captured: Captured, symbolic: Captured, symbols: Symbols, sample: Sizes) -> None:
        """Compares the two.

        Args:
            captured: for the sample's sizes.
            symbolic: the same with symbols.
            symbols: of these.
            sample: the sizes of the sample.

        Raises:
            CaptureError: the two are different programs, or a number is no function of sizes that can be written down.
        """
        self.captured, self.sample = captured, sample
        if without_names(of_sample(symbolic.program)) != without_names(captured.program):
            raise CaptureError("with symbols for sizes the trace is another program than with numbers")
        self.expressions: dict[Any, int] = {}
        self.bounds = symbols.bounds()
        self.guards = symbols.guards()
        self.names = symbols.names
        program = symbolic.program
        self.storages = [(i, self.number(s["bytes"])) for i, s in enumerate(program["storages"]) if varies(s["bytes"])]
        self.values = [
            (i, self.numbers(v["sizes"]), self.numbers(v["strides"]), self.numbers([v["offset"]])[0])
            for i, v in enumerate(program["values"]) if varies([v["sizes"], v["strides"], v["offset"]])]
        self.calls = [
            (i, self.template(n["args"]), self.template(n["kwargs"])) for i, n in enumerate(program["nodes"]) if varies([n["args"], n["kwargs"]])]
        self.storage_changes: Changes = {i: {"bytes": size} for i, size in self.storages}
        self.value_changes: Changes = {i: {"sizes": shape, "strides": strides, "offset": offset} for i, shape, strides, offset in self.values}
        self.outputs = symbolic.outputs
        self.assignments = symbolic.assignments
        # Expressions, not symbolic numbers: these would keep all that PyTorch has noted of them.
        self.conditions = None if symbolic.conditions is None else symbolic.conditions.for_sizes(with_expressions)
        for recipe in [*self.outputs, *(recipe for _, _, recipe in self.assignments)]:
            self.note_recipe(recipe)
        self.note_conditions()
        self.evaluate = function_of(self.names, list(self.expressions))
        self.holds = function_of(self.names, self.guards)
        if not self.admits(sample) or list(self.evaluate(*sample)) != [of_expression(e, self.names, sample) for e in self.expressions]:
            raise CaptureError("expressions of sizes do not give the numbers of the sample")

    def admits(self, sizes: Sizes) -> bool:
        """Would tracing a batch of these sizes do the same?"""
        inside = all(least <= n and (most is None or n <= most) for n, (least, most) in zip(sizes, self.bounds))
        return inside and all(self.holds(*sizes))

    def numbers_at(self, sizes: Sizes) -> Numbers:
        """Of the program for other sizes."""
        found = self.evaluate(*sizes)
        return Numbers(
            [(i, found[n]) for i, n in self.storages],
            [(i, chosen(found, shape), chosen(found, strides), chosen(found, [offset])[0]) for i, shape, strides, offset in self.values],
            [(i, args.format(n=found), kwargs.format(n=found)) for i, args, kwargs in self.calls])

    def at(self, sizes: Sizes, complete: bool = False) -> Captured:
        """The captured step for other sizes. Live tensors are the sample's. `complete`: with the arguments of all nodes."""
        found = self.evaluate(*sizes)
        program = dict(self.captured.program)
        program["storages"] = AtSizes(program["storages"], self.storage_changes, found)
        program["values"] = AtSizes(program["values"], self.value_changes, found)
        if complete:
            program["storages"], program["values"], program["nodes"] = list(program["storages"]), list(program["values"]), list(program["nodes"])
            for i, args, kwargs in self.numbers_at(sizes).calls:
                program["nodes"][i] = {**program["nodes"][i], "args": json.loads(args), "kwargs": json.loads(kwargs)}

        def resolved(tree: Any) -> Any:
            return self.resolved(tree, found)

        return dataclasses.replace(
            self.captured,
            program=program,
            tensors=dict(self.captured.tensors),
            outputs=[self.recipe_at(r, old, found) for r, old in zip(self.outputs, self.captured.outputs)],
            assignments=[(path, name, self.recipe_at(r, old[2], found)) for (path, name, r), old in zip(self.assignments, self.captured.assignments)],
            conditions=None if self.conditions is None else self.conditions.for_sizes(resolved))

    # Expressions.

    def number(self, number: Any) -> int:
        """Its place among the expressions."""
        return self.expressions.setdefault(expression_of(number), len(self.expressions))

    def numbers(self, numbers: Sequence[Any]) -> list[Any]:
        return [self.number(n) if varies(n) else Constant(plain(n)) for n in numbers]

    def template(self, tree: Any) -> str:
        """JSON, to be filled in by `format`."""
        marks: list[str] = []

        def marked(item: Any) -> Any:
            if isinstance(item, (list, tuple)):
                return [marked(i) for i in item]
            if isinstance(item, dict):
                return {k: marked(i) for k, i in item.items()}
            if not varies(item):
                return plain(item) if isinstance(item, torch.SymInt) else item
            marks.append(f"{{n[{self.number(item)}]}}")
            return f"@{len(marks) - 1}@"

        text = json.dumps(marked(tree)).replace("{", "{{").replace("}", "}}")
        for index, mark in enumerate(marks):
            text = text.replace(f'"@{index}@"', mark)
        return text

    def note_recipe(self, recipe: OutputRecipe) -> None:
        for part in (recipe, *recipe.parts):
            if part.view is not None:
                self.note(part.view)
            if part.kind == "constant":
                self.check_constant(part.constant)

    def check_constant(self, constant: Any) -> None:
        if isinstance(constant, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise CaptureError("the model returns a number that depends on a size")

    def note_conditions(self) -> None:
        if self.conditions is not None:
            self.conditions.for_sizes(lambda tree: self.note(tree) or tree)

    def note(self, tree: Any) -> None:
        if isinstance(tree, dict):
            tree = list(tree.values())
        if isinstance(tree, (list, tuple)):
            for item in tree:
                self.note(item)
        elif varies(tree):
            self.number(tree)

    def resolved(self, tree: Any, found: Sequence[int]) -> Any:
        if isinstance(tree, (list, tuple)):
            return type(tree)(self.resolved(item, found) for item in tree)
        if isinstance(tree, dict):
            return {key: self.resolved(item, found) for key, item in tree.items()}
        return found[self.expressions[expression_of(tree)]] if varies(tree) else tree

    def recipe_at(self, recipe: OutputRecipe, old: OutputRecipe, found: Sequence[int]) -> OutputRecipe:
        view = None if recipe.view is None else self.resolved(recipe.view, found)
        parts = [self.recipe_at(part, other, found) for part, other in zip(recipe.parts, old.parts)]
        return dataclasses.replace(old, view=view, parts=parts)


class AtSizes(Sequence[dict[str, Any]]):
    """Storages or values of a program for other sizes.

    Each is made when it is asked for and not kept: thousands of objects for each length would bring a collection of all garbage, of some tenths
    of a second, every few lengths.
    """

    def __init__(self, sample: Sequence[dict[str, Any]], changes: "Changes", found: Sequence[int]) -> None:
        """`changes`: which entries are other than for the sample, by the places of their numbers in `found`."""
        self.sample, self.changes, self.found = sample, changes, found

    def __len__(self) -> int:
        return len(self.sample)

    def __getitem__(self, index: int) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        changed = self.changes.get(index)
        return self.sample[index] if changed is None else {**self.sample[index], **{key: number_at(self.found, place) for key, place in changed.items()}}


def number_at(found: Sequence[int], place: Any) -> Any:
    """Or a list of numbers."""
    return chosen(found, place) if isinstance(place, list) else chosen(found, [place])[0]


class Constant(int):
    """A number that does not depend on sizes, among places of expressions."""


def chosen(found: Sequence[int], places: Sequence[int]) -> list[int]:
    return [int(p) if isinstance(p, Constant) else found[p] for p in places]


def with_expressions(tree: Any) -> Any:
    """In the place of symbolic numbers."""
    if isinstance(tree, (list, tuple)):
        return type(tree)(with_expressions(item) for item in tree)
    if isinstance(tree, dict):
        return {key: with_expressions(item) for key, item in tree.items()}
    return plain(tree) if isinstance(tree, torch.SymInt) else tree


def varies(tree: Any) -> bool:
    """Is something symbolic in it?"""
    if isinstance(tree, (list, tuple)):
        return any(varies(item) for item in tree)
    if isinstance(tree, dict):
        return any(varies(item) for item in tree.values())
    return not isinstance(tree, (int, float, str, type(None), torch.dtype, torch.Tensor)) and is_symbolic(tree)


def is_symbolic(item: Any) -> bool:
    if isinstance(item, (torch.SymFloat, torch.SymBool)):
        raise CaptureError("an argument is a fraction of sizes; expected integers")
    return isinstance(plain(item), int) is False if isinstance(item, torch.SymInt) else hasattr(item, "free_symbols")


def expression_of(number: Any) -> Any:
    """Of a symbolic size, or an expression already."""
    return plain(number) if isinstance(number, (torch.SymInt, int)) else number


def of_expression(expression: Any, names: Sequence[str], sizes: Sizes) -> int:
    by_name = dict(zip(names, sizes))
    return int(expression.subs({s: by_name[str(s)] for s in expression.free_symbols}))


def without_names(program: dict[str, Any]) -> dict[str, Any]:
    """Names of computed tensors count operators, and a slice that cuts nothing off counts only where sizes are symbols."""
    return {
        **program,
        "storages": [{**s, "name": ""} if s["role"] == "computed" else s for s in program["storages"]],
        "nodes": [{**n, "name": ""} for n in program["nodes"]]}


def sized(capture: Callable[..., Captured], groups: Sequence[Sequence[tuple[int, int]]], sample: Sizes) -> SizedCapture:
    """Captures a batch with numbers and with symbols.

    Args:
        capture: of the batch; takes `symbols`.
        groups: dimensions of flat inputs that vary; those of a group have the same size in every batch.
        sample: the size of each group in the batch.

    Raises:
        CaptureError: there is no capture for other sizes.
    """
    captured = capture(symbols=None)
    symbols = Symbols(groups, sample)
    try:
        symbolic = capture(symbols=symbols)
        return SizedCapture(captured, symbolic, symbols, sample)
    except CaptureError:
        raise
    except Exception as error:  # whatever PyTorch's symbolic sizes do not support
        raise CaptureError(f"sizes cannot be symbols here: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error
