"""What an optimizer of PyTorch does to one parameter, found by watching it.

A shadow of the user's optimizer with a single parameter of one element takes a step while every operator it calls is
written down: that is the recipe for a real parameter, whatever its shape, in torch's own words and for the installed version. The
numbers in the recipe (learning rate, bias corrections) are read the same way before every step, so they are the very
numbers that torch would compute, and schedulers work.
"""

import dataclasses

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regen.errors import CaptureError


@dataclasses.dataclass(frozen=True)
class Symbol:
    """A tensor in a recipe: kind "param", "grad", "state" (with its key) or "temp" (with a number)."""

    kind: str
    key: object = ""


@dataclasses.dataclass
class Call:
    """One operator of a recipe: arguments hold Symbols where tensors were."""

    op: torch._ops.OpOverload
    args: list
    kwargs: dict
    outputs: list  # Symbols, lists flattened; empty when it writes in place

    def argument(self, name):
        """The argument of that name, or the schema's default."""
        for position, argument in enumerate(self.op._schema.arguments):
            if argument.name == name:
                given = self.args[position] if position < len(self.args) else self.kwargs.get(name, argument.default_value)
                return given
        raise KeyError(name)


class Recorder(TorchDispatchMode):
    """Writes down the calls that touch known tensors; what happens on the host alone (step counts) is left out."""

    def __init__(self, symbols):
        super().__init__()
        self.symbol_of = {id(tensor): symbol for tensor, symbol in symbols}
        self.keep_alive = [tensor for tensor, _ in symbols]
        self.calls = []
        self.count = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        returned = op(*args, **kwargs)
        if self.knows_any((args, list(kwargs.values()))):
            self.record(op, args, kwargs, returned)
        return returned

    def knows_any(self, tree):
        if isinstance(tree, torch.Tensor):
            return id(tree) in self.symbol_of
        return isinstance(tree, (list, tuple)) and any(self.knows_any(item) for item in tree)

    def record(self, op, args, kwargs, returned):
        call = Call(op, [self.symbolic(a) for a in args], {k: self.symbolic(a) for k, a in kwargs.items()}, [])
        written = self.written_tensors(op, args, kwargs)
        if written and all(self.symbol_of[id(t)].kind in ("grad", "temp") for t in written):
            # Programs are functional: what changes an intermediate in place makes a new one instead. (Fused kernels may
            # write gradients beside parameters by their schema; they do so only to undo a loss scale, which is not used here.)
            call.op = functional_form(op)
            returned = written
        elif written:
            returned = []
        call.outputs = [self.new_symbol(tensor) for tensor in flat_tensors(returned)]
        self.calls.append(call)

    def written_tensors(self, op, args, kwargs):
        written = []
        for position, argument in enumerate(op._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = args[position] if position < len(args) else kwargs.get(argument.name)
                written += flat_tensors(given)
        return written

    def symbolic(self, argument):
        if isinstance(argument, torch.Tensor):
            if id(argument) not in self.symbol_of:
                raise CaptureError(
                    "cannot capture the optimizer: it mixes a tensor of its own into the update (a learning rate that is a tensor?); "
                    "expected numbers as hyperparameters")
            return self.symbol_of[id(argument)]
        if isinstance(argument, (list, tuple)):
            return [self.symbolic(item) for item in argument]
        return argument

    def new_symbol(self, tensor):
        self.count += 1
        self.keep_alive.append(tensor)
        self.symbol_of[id(tensor)] = Symbol("temp", self.count)
        return self.symbol_of[id(tensor)]


def flat_tensors(tree):
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [t for item in tree for t in flat_tensors(item)] if isinstance(tree, (list, tuple)) else []


def functional_form(op):
    """`add` for `add_`: the same arithmetic into new memory."""
    namespace, name = op._schema.name.split("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"))
    return getattr(packet, op._schema.overload_name or "default")


class Shadow:
    """An optimizer of the user's kind with one tiny parameter."""

    def __init__(self, optimizer, group, dtype, device, foreach):
        self.parameter = torch.nn.Parameter(torch.zeros(1, dtype=dtype, device=device))
        self.parameter.grad = torch.zeros(1, dtype=dtype, device=device)
        self.foreach = foreach
        self.optimizer = type(optimizer)([{**self.hyperparameters(group), "params": [self.parameter]}])
        self.optimizer.step()  # makes the state, and takes the path of a first step, which differs

    def hyperparameters(self, group):
        return {**{k: v for k, v in group.items() if k != "params"}, "foreach": self.foreach}

    @property
    def state(self):
        return self.optimizer.state[self.parameter]

    def record(self, group, steps_before, host_state, **overrides):
        """The calls of one step with the hyperparameters of `group`, after `steps_before` steps."""
        self.optimizer.param_groups[0].update({**self.hyperparameters(group), **overrides})
        if "step" in self.state:
            with torch.no_grad():
                self.state["step"].fill_(steps_before)
        symbols = [(self.parameter, Symbol("param")), (self.parameter.grad, Symbol("grad"))]
        symbols += [
            (tensor, Symbol("state", key)) for key, tensor in self.state.items()
            if isinstance(tensor, torch.Tensor) and key not in host_state]
        with Recorder(symbols) as recorder:
            self.optimizer.step()
        return recorder.calls


@dataclasses.dataclass(frozen=True)
class ScalarPlace:
    """Where in a recipe a number stands that may change from step to step."""

    call: int
    argument: str
    item: int = -1  # position in a list of numbers, else -1


def scalar_places(calls):
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
            if is_number(given) and is_number_type(argument):
                places.append(ScalarPlace(index, argument.name))
            elif isinstance(given, list) and given and all(is_number(item) for item in given):
                places += [ScalarPlace(index, argument.name, item) for item in range(len(given))]
    return places


def is_number(thing):
    return isinstance(thing, (int, float)) and not isinstance(thing, bool)


def is_number_type(argument):
    """Numbers that scale values, not dimensions; a number may also stand for a tensor of one element."""
    return str(argument.type) in ("number", "float", "Tensor")


def numbers_at(places, calls):
    """The numbers at `places` of another recording of the same recipe."""
    numbers = []
    for place in places:
        given = calls[place.call].argument(place.argument)
        numbers.append(given if place.item < 0 else given[place.item])
    return numbers


def same_recipe(one, other, places):
    """Do two recordings differ in nothing but the numbers at `places`?"""
    if len(one) != len(other):
        return False
    loose = {(place.call, place.argument) for place in places}
    for index, (a, b) in enumerate(zip(one, other)):
        if a.op is not b.op:
            return False
        for argument in a.op._schema.arguments:
            if (index, argument.name) not in loose and a.argument(argument.name) != b.argument(argument.name):
                return False
    return True
