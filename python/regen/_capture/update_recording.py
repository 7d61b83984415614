"""What an optimizer of PyTorch does to one parameter, found by watching it.

While a stand-in of the user's optimizer takes a step (shadow.py), every operator that touches a parameter, its gradient or its state is written
down: that is the recipe, in torch's own words and for the installed version. What the optimizer computes on the host (counts of steps, bias
corrections, learning rates) runs for real; where it enters the recipe, it is a number, which is found again before every step.
"""

import dataclasses
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from regen._capture.traced.fakes import DEPENDS_ON_VALUES, tensors_of
from regen._capture.traced.functional_forms import functional_form, written_arguments
from regen.errors import CaptureError

aten = torch.ops.aten

# Operators that make memory whose contents do not depend on other tensors' contents.
CREATORS = {
    "zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty",
}
# Operators that do the same with a number as with a tensor that holds it alone.
ARITHMETIC = {"add", "sub", "mul", "div"}
# Types of results that describe a tensor and do not depend on its values.
DESCRIPTIONS = ("int", "SymInt", "Device", "ScalarType", "Layout")
# Types of arguments that are numbers which scale values, not dimensions; a number may also stand for a tensor of one element.
NUMBER_TYPES = ("number", "float", "Tensor", "Optional[number]", "Optional[float]")
NUMBER_LISTS = ("List[number]", "List[float]")


class NoRecipe(CaptureError):
    """The optimizer does something that is no fixed list of operators on one parameter."""


class HostTensorWritten(Exception):
    """A tensor that was taken for one of the host gets what was computed from parameters or gradients."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        super().__init__("a tensor of the optimizer's own is computed from parameters or gradients")


@dataclasses.dataclass(frozen=True)
class Symbol:
    """A tensor in a recipe: kind "param", "grad", "state" (with its key), "temp" or "const" (with a number; the same for all parameters).

    `owner`: the parameter, counted from 0, that it belongs to.
    """

    kind: str
    key: object = ""
    owner: int = 0


@dataclasses.dataclass
class Call:
    """One operator of a recipe: arguments hold Symbols where tensors were."""

    op: torch._ops.OpOverload
    args: list[Any]
    kwargs: dict[str, Any]
    outputs: list[Symbol]  # lists flattened; empty when it writes in place
    dtypes: list[torch.dtype] = dataclasses.field(default_factory=list)  # of the outputs

    def argument(self, name: str) -> Any:
        """The argument of that name, or the schema's default."""
        for position, argument in enumerate(self.op._schema.arguments):
            if argument.name == name:
                return self.args[position] if position < len(self.args) else self.kwargs.get(name, argument.default_value)
        raise KeyError(name)

    @property
    def by_list(self) -> bool:
        """Does it treat lists of tensors one by one, so that a longer list does the same to each?"""
        return self.op._schema.name.split("::")[1].startswith(("_foreach_", "_fused_"))


@dataclasses.dataclass
class Memory:
    """Memory that a recipe knows: of a kind that lives on ("param", "grad", "state"), or "temp"."""

    kind: str
    symbols: dict[Any, Symbol]  # geometry -> what is in it now


class Recorder(TorchDispatchMode):
    """Writes down the calls that touch known tensors; what happens on the host alone is executed and left out."""

    def __init__(self, known: list[tuple[torch.Tensor, Symbol]], fakes: FakeTensorMode | None, adopt: dict[int, Symbol] | None = None) -> None:
        """`fakes`: where stand-ins have no data. `adopt`: of the memories that the step makes, counted from 0, those that become state."""
        super().__init__()
        self.fakes = fakes
        self.adopt = adopt or {}
        self.memories: dict[int, Memory] = {}
        self.keep_alive: list[Any] = []
        self.calls: list[Call] = []
        self.created: dict[int, tuple[int, Call]] = {}  # memory -> its number among those that were made, and how
        self.before: dict[int, torch.Tensor] = {}  # tensors of the host -> copies from before they were written
        self.constants: dict[tuple[int, int], Symbol] = {}
        self.count = 0
        for tensor, symbol in known:
            self.know(tensor, symbol)

    # Tensors.

    def know(self, tensor: torch.Tensor, symbol: Symbol) -> None:
        self.keep_alive.append(tensor)
        memory = self.memories.setdefault(tensor.untyped_storage()._cdata, Memory(symbol.kind, {}))
        memory.symbols[geometry_of(tensor)] = symbol

    def memory_of(self, tensor: torch.Tensor) -> Memory | None:
        return self.memories.get(tensor.untyped_storage()._cdata)

    def symbol_of(self, tensor: torch.Tensor) -> Symbol | None:
        """None: a tensor of the host."""
        memory = self.memory_of(tensor)
        if memory is None:
            return None
        symbol = memory.symbols.get(geometry_of(tensor))
        if symbol is None:
            raise NoRecipe("it goes on using a view of memory that it has changed since")
        return symbol

    def is_state(self, tensor: torch.Tensor) -> bool:
        memory = self.memory_of(tensor)
        return memory is not None and memory.kind == "state"

    def new_symbol(self, tensor: torch.Tensor, owner: int) -> Symbol:
        self.count += 1
        symbol = Symbol("temp", self.count, owner)
        self.know(tensor, symbol)
        return symbol

    # Operators.

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = tensors_of((args, kwargs))
        known = [t for t in given if self.memory_of(t) is not None]
        if not known:
            return self.on_host(op, args, kwargs, given)
        if op._schema.returns and not any("Tensor" in str(r.type) for r in op._schema.returns):
            if op is not aten._local_scalar_dense.default and all(str(r.type) in DESCRIPTIONS for r in op._schema.returns):
                return op(*args, **kwargs)
            raise NoRecipe("it reads the values of a tensor (`.item()`, or a branch on it)")
        if torch.Tag.nondeterministic_seeded in op.tags:
            raise NoRecipe("it draws random numbers")
        self.check_written(op, args, kwargs)
        try:
            returned = op(*args, **kwargs)
        except DEPENDS_ON_VALUES:
            raise NoRecipe("the size of a result depends on the values of a tensor") from None
        self.record(op, args, kwargs, returned)
        return returned

    def on_host(self, op: Any, args: Any, kwargs: Any, given: list[torch.Tensor]) -> Any:
        for tensor in written_tensors(op, args, kwargs):
            self.before.setdefault(id(tensor), tensor.clone())
            self.keep_alive.append(tensor)
        if self.fakes is None or given or name_of(op) not in CREATORS or not has_dimensions(args):
            return op(*args, **kwargs)
        with self.fakes:  # as large as a parameter, most likely: no memory for it
            made = op(*args, **kwargs)
        self.record(op, args, kwargs, made)
        return made

    def check_written(self, op: Any, args: Any, kwargs: Any) -> None:
        for tensor in written_tensors(op, args, kwargs):
            if self.memory_of(tensor) is None:
                raise HostTensorWritten(tensor)

    def record(self, op: Any, args: Any, kwargs: Any, returned: Any) -> None:
        call = Call(op, [self.symbolic(a, op) for a in args], {k: self.symbolic(a, op) for k, a in kwargs.items()}, [])
        written = written_tensors(op, args, kwargs)
        if torch.Tag.inplace_view in op.tags:
            raise NoRecipe(f"it changes the shape of a tensor in place ({op})")
        if written:
            if not self.record_write(call, written):
                return
        else:
            if self.record_creation(call, returned):
                return
            made = tensors_of(returned)
            new = [t for t in made if self.memory_of(t) is None or geometry_of(t) not in self.memories[storage_of(t)].symbols]
            if not new:
                return  # the same memory in the same form: detach() and the like
            owners = owners_of(call)
            call.outputs = [self.new_symbol(t, owners[i % len(owners)] if call.by_list else owners[0]) for i, t in enumerate(made)]
            call.dtypes = [t.dtype for t in made]
        self.calls.append(call)

    def record_write(self, call: Call, written: list[torch.Tensor]) -> bool:
        """Programs are functional: what changes an intermediate result in place makes a new one instead. Fused kernels may write gradients beside
        parameters by their schema; they do so only to undo a loss scale, which is not used here.
        """
        lasting = [self.memories[storage_of(t)].kind in ("param", "state") for t in written]
        if any(lasting):
            if not all(lasting) and not name_of(call.op).startswith("_fused_"):
                raise NoRecipe(f"{call.op} writes state and an intermediate result at once")
            return True
        try:
            call.op = functional_form(call.op)
        except CaptureError as error:
            raise NoRecipe(str(error)) from None
        owners = owners_of(call)
        for index, tensor in enumerate(written):
            memory = self.memories[storage_of(tensor)]
            memory.symbols.clear()  # views of the old contents have no meaning any more
            call.outputs.append(self.new_symbol(tensor, owners[index % len(owners)] if call.by_list else owners[0]))
        call.dtypes = [t.dtype for t in written]
        return True

    def record_creation(self, call: Call, returned: Any) -> bool:
        """True: what was made is state, which exists when the recipe is used."""
        if name_of(call.op) not in CREATORS or not isinstance(returned, torch.Tensor):
            return False
        number = len(self.created)
        self.keep_alive.append(returned)
        self.created[storage_of(returned)] = (number, call)
        if number not in self.adopt:
            return False
        self.know(returned, self.adopt[number])
        return True

    def symbolic(self, argument: Any, op: Any) -> Any:
        if isinstance(argument, torch.Tensor):
            return self.symbol_of(argument) or self.constant(argument, op)
        if isinstance(argument, (list, tuple)):
            return [self.symbolic(item, op) for item in argument]
        return argument

    def constant(self, tensor: torch.Tensor, op: Any) -> Any:
        """A tensor of the host among the arguments: its number, where that does the same, or a node that makes it."""
        if tensor.numel() != 1:
            raise NoRecipe(f"it mixes a tensor of its own, of shape {tuple(tensor.shape)}, into the update")
        number = tensor.item()
        if tensor.dim() == 0 and tensor.is_floating_point() and name_of(op).rstrip("_") in ARITHMETIC:
            return number
        key = (id(tensor), tensor._version)
        if key not in self.constants:
            self.keep_alive.append(tensor)
            self.count += 1
            made = self.constants[key] = Symbol("const", self.count)
            options = {"dtype": tensor.dtype, "device": tensor.device}
            if tensor.dim():
                call = Call(aten.full.default, [list(tensor.shape), number], options, [made], [tensor.dtype])
            else:
                call = Call(aten.scalar_tensor.default, [number], options, [made], [tensor.dtype])
            self.calls.append(call)
        return self.constants[key]


def geometry_of(tensor: torch.Tensor) -> Any:
    return tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset(), tensor.dtype


def storage_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def name_of(op: Any) -> str:
    return op._schema.name.split("::")[1]


def has_dimensions(args: Any) -> bool:
    return bool(args) and isinstance(args[0], (list, tuple)) and len(args[0]) > 0


def written_tensors(op: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    found = []
    for w in written_arguments(op):
        found += tensors_of(args[w.position] if w.position is not None and w.position < len(args) else kwargs.get(w.name))
    return found


def symbols_in(tree: Any) -> list[Symbol]:
    if isinstance(tree, Symbol):
        return [tree]
    return [s for item in tree for s in symbols_in(item)] if isinstance(tree, list) else []


def owners_of(call: Call) -> list[int]:
    """The parameters that a call is about: for an operator on lists, that of each place in them.

    Raises:
        NoRecipe: an operator brings several parameters together.
    """
    arguments = [*call.args, *call.kwargs.values()]
    lists = [symbols_in(a) for a in arguments if isinstance(a, list) and symbols_in(a)]
    if call.by_list and lists:
        places = [{s.owner for s in column if s.kind != "const"} for column in zip(*(x for x in lists if len(x) == len(lists[0])))]
        others = {s.owner for a in arguments if isinstance(a, Symbol) for s in (a,) if s.kind != "const"}
        if all(len(place) <= 1 and others <= place for place in places):
            return [next(iter(place), 0) for place in places]
    else:
        owners = {s.owner for s in symbols_in(arguments) if s.kind != "const"}
        if len(owners) <= 1:
            return [next(iter(owners), 0)]
    raise NoRecipe(f"it computes with several parameters at once ({call.op})")


# Numbers.

@dataclasses.dataclass(frozen=True)
class ScalarPlace:
    """Where in a recipe a number stands that may change from step to step."""

    call: int
    argument: str
    item: int = -1  # position in a list of numbers, else -1


def scalar_places(calls: list[Call]) -> list[ScalarPlace]:
    """The places of all numbers that were given; those left at their default are part of the operator's meaning."""
    places = []
    for index, call in enumerate(calls):
        for position, argument in enumerate(call.op._schema.arguments):
            if position < len(call.args):
                given = call.args[position]
            elif argument.name in call.kwargs:
                given = call.kwargs[argument.name]
            else:
                continue
            if is_number(given) and str(argument.type) in NUMBER_TYPES:
                places.append(ScalarPlace(index, argument.name))
            elif isinstance(given, list) and given and str(argument.type) in NUMBER_LISTS and all(is_number(item) for item in given):
                places += [ScalarPlace(index, argument.name, item) for item in range(len(given))]
    return places


def is_number(thing: Any) -> bool:
    return isinstance(thing, (int, float)) and not isinstance(thing, bool)


def numbers_at(places: list[ScalarPlace], calls: list[Call]) -> list[float]:
    """The numbers at `places` of another recording of the same recipe."""
    numbers = []
    for place in places:
        given = calls[place.call].argument(place.argument)
        numbers.append(given if place.item < 0 else given[place.item])
    return numbers


def same_recipe(one: list[Call], other: list[Call], places: list[ScalarPlace]) -> bool:
    """Do two recordings differ in nothing but the numbers at `places`?"""
    if len(one) != len(other):
        return False
    loose = {(place.call, place.argument) for place in places}
    for index, (a, b) in enumerate(zip(one, other)):
        if a.op is not b.op or a.outputs != b.outputs or a.dtypes != b.dtypes:
            return False
        for argument in a.op._schema.arguments:
            if (index, argument.name) not in loose and not same_argument(a.argument(argument.name), b.argument(argument.name)):
                return False
    return True


def same_argument(one: Any, other: Any) -> bool:
    """Numbers that are not a number are the same here."""
    return one == other or (isinstance(one, float) and one != one and isinstance(other, float) and other != other)
