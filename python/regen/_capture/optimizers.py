"""The optimizer of a step: its state, its update as nodes, and the numbers that change from step to step."""

import dataclasses

import torch
from torch.optim.optimizer import _default_to_fused_or_foreach

from regen._capture.update_recording import Shadow, Symbol, numbers_at, same_recipe, scalar_places
from regen.errors import CaptureError

SUPPORTED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)

# An update by lists takes many parameters at once. Few at a time, as their gradients become ready, let these go early;
# very few would cost a kernel launch each.
BUCKET_BYTES = 32 << 20
# Attribute of a momentum buffer that the capture made and no step has used yet.
MADE_HERE = "regen_made_it"


def check_optimizer(optimizer):
    if type(optimizer) not in SUPPORTED:
        names = ", ".join(kind.__name__ for kind in SUPPORTED)
        raise CaptureError(
            f"cannot capture optimizer {type(optimizer).__name__}; expected one of {names}, "
            "or regen.wrap, which leaves the optimizer outside")
    for group in optimizer.param_groups:
        for option in ("capturable", "differentiable"):
            if group.get(option):
                raise CaptureError(f"cannot capture optimizer {type(optimizer).__name__}: {option}=True; expected False")
        if isinstance(group["lr"], torch.Tensor):
            raise CaptureError(f"cannot capture optimizer {type(optimizer).__name__}: lr is a tensor; expected a number")


@dataclasses.dataclass
class UpdateClass:
    """Parameters of one group that are updated by the same recipe with the same numbers."""

    group: int
    fresh: bool  # no step was taken before the capture
    shadow: Shadow
    calls: list
    places: list
    scalars: list  # for each place, the index in program["scalars"]
    parameters: list
    by_list: bool  # the recipe takes lists of parameters

    def recorded(self, optimizer, steps_before, first):
        group = optimizer.param_groups[self.group]
        overrides = {"dampening": 0.0} if self.starts(optimizer, first) else {}
        return self.shadow.record(group, steps_before, host_state(group), **overrides)

    def starts(self, optimizer, first):
        """A momentum buffer starts as a copy of the first gradient. Starting it at minus zero and adding the whole first
        gradient gives the same bits: -0 * momentum + g is g for every g, zeros of both signs included.
        """
        return first and getattr(momentum_of(optimizer, self.parameters[0]), MADE_HERE, False)


def momentum_of(optimizer, parameter):
    return optimizer.state[parameter].get("momentum_buffer")


def end_of_start(optimizer, parameters):
    """Momenta that the capture made have had their first gradient."""
    for parameter in parameters:
        momentum = momentum_of(optimizer, parameter)
        if momentum is not None:
            setattr(momentum, MADE_HERE, False)


def count_step(states):
    """All at once: the device may wait for the end of this."""
    counts = [state["step"] for state in states if "step" in state]
    tensors = [count for count in counts if isinstance(count, torch.Tensor)]
    if tensors:
        torch._foreach_add_(tensors, 1)  # pyright: ignore[reportPrivateImportUsage]
    if len(tensors) < len(counts):
        for state in states:
            if "step" in state and not isinstance(state["step"], torch.Tensor):
                state["step"] += 1


def host_state(group):
    """State that torch keeps on the host: it counts steps there, unless a fused kernel wants the count."""
    return () if group.get("fused") else ("step",)


class OptimizerUpdates:
    """Everything about one optimizer that outlives the capture."""

    def __init__(self, optimizer, parameters, builder):
        """`parameters`: those with a gradient, in the order of the optimizer."""
        check_optimizer(optimizer)
        self.classes = []
        self.steps_taken = 0
        self.next_scalars = None  # what they depend on, and their values
        self.state_of = {}  # storage of the builder -> (parameter, key)
        with_gradient = {id(p) for p in parameters}
        for index, group in enumerate(optimizer.param_groups):
            members = [p for p in group["params"] if id(p) in with_gradient]
            self.add_group(optimizer, index, group, members, builder)

    def add_group(self, optimizer, index, group, members, builder):
        foreach = uses_lists(group, members)
        kinds = {}
        for p in members:
            state = optimizer.state.get(p) or {}
            steps = float(state["step"]) if "step" in state else 0.0
            kinds.setdefault((not state, steps, p.dtype), []).append(p)
        for (fresh, steps, dtype), parameters in kinds.items():
            shadow = Shadow(optimizer, group, dtype, "cpu", foreach)
            calls = shadow.record(group, steps, host_state(group))
            places = scalar_places(calls)
            numbers = numbers_at(places, calls)
            scalars = [
                builder.add_scalar(f"group{index}.{calls[place.call].op._schema.name.split('::')[1]}.{place.argument}", number)
                for place, number in zip(places, numbers)]
            by_list = bool(foreach or group.get("fused"))
            self.classes.append(UpdateClass(index, fresh, shadow, calls, places, scalars, parameters, by_list))
            if fresh:
                create_state(optimizer, group, shadow, parameters)

    def scalars(self, optimizer, count, step=None):
        """The values of program["scalars"] for a step: the next one, or number `step` (from 1) since the capture."""
        step = self.steps_taken + 1 if step is None else step
        numbers = self.numbers_before(optimizer, step)
        if self.next_scalars is None or self.next_scalars[0] != numbers:
            self.next_scalars = numbers, self.recorded_scalars(optimizer, count, step)
        return self.next_scalars[1]

    def numbers_before(self, optimizer, step):
        """Everything the scalars of a step depend on."""
        return [
            (self.steps_before(optimizer, kind, step), kind.starts(optimizer, step == self.steps_taken + 1),
             {k: v for k, v in optimizer.param_groups[kind.group].items() if k != "params"})
            for kind in self.classes]

    def recorded_scalars(self, optimizer, count, step):
        values = [0.0] * count
        for kind in self.classes:
            calls = kind.recorded(optimizer, self.steps_before(optimizer, kind, step), first=step == self.steps_taken + 1)
            if not same_recipe(kind.calls, calls, kind.places):
                raise CaptureError(
                    f"the options of parameter group {kind.group} of {type(optimizer).__name__} changed what the update computes; "
                    "expected only numbers to change after the capture (capture again)")
            for scalar, number in zip(kind.scalars, numbers_at(kind.places, calls)):
                values[scalar] = float(number)
        return values

    def steps_before(self, optimizer, kind, step):
        state = optimizer.state[kind.parameters[0]]
        if "step" not in host_state(optimizer.param_groups[kind.group]) or "step" not in state:
            return 0.0
        return float(state["step"]) + (step - 1 - self.steps_taken)

    def undo(self, optimizer):
        """Takes back the state that the capture made: no step will be taken."""
        for kind in self.classes:
            for parameter in kind.parameters if kind.fresh else ():
                optimizer.state.pop(parameter, None)

    def advance(self, optimizer):
        """A step was taken: counts it where torch counts on the host."""
        self.steps_taken += 1
        optimizer._opt_called = True  # what schedulers look at before they complain
        for kind in self.classes:
            if self.steps_taken == 1:
                end_of_start(optimizer, kind.parameters)
            if "step" in host_state(optimizer.param_groups[kind.group]):
                count_step([optimizer.state[parameter] for parameter in kind.parameters])


def uses_lists(group, members):
    """Torch's own choice between one parameter at a time and lists of them."""
    if group.get("foreach") is None and group.get("fused") is None:
        return bool(_default_to_fused_or_foreach(members, differentiable=False, use_fused=False)[1])
    return bool(group.get("foreach"))


def create_state(optimizer, group, shadow, parameters):
    """State as torch would make it at the first step; see `UpdateClass.recorded` for the buffer of SGD."""
    start = -0.0 if isinstance(optimizer, torch.optim.SGD) else 0.0
    for parameter in parameters:
        for key, small in shadow.state.items():
            if not isinstance(small, torch.Tensor):
                continue
            if small.dim() == 0:
                device = "cpu" if key in host_state(group) else parameter.device
                tensor = torch.zeros((), dtype=small.dtype, device=device)
            else:
                tensor = torch.full_like(parameter, start, dtype=small.dtype, requires_grad=False)
                setattr(tensor, MADE_HERE, True)  # until a step is taken; whatever is loaded in its place is not so marked
            optimizer.state[parameter][key] = tensor


class UpdateWriter:
    """Writes the nodes that update a bucket of parameters by the recipe of their class."""

    def __init__(self, writer, updates, optimizer, value_of_parameter, value_of_gradient, names, new_live_value):
        self.writer = writer
        self.updates = updates
        self.optimizer = optimizer
        self.value_of_parameter = value_of_parameter
        self.value_of_gradient = value_of_gradient
        self.names = names
        self.new_live_value = new_live_value
        self.state_values = {}

    def write(self, kind, bucket):
        """The nodes for `bucket`, parameters of the class `kind`."""
        bound = {}  # Symbol -> a value for each parameter of the bucket
        bound[Symbol("param")] = [self.value_of_parameter[id(p)] for p in bucket]
        bound[Symbol("grad")] = [self.value_of_gradient[id(p)] for p in bucket]
        for key in self.optimizer.state[bucket[0]]:
            if key not in host_state(self.optimizer.param_groups[kind.group]):
                bound[Symbol("state", key)] = [self.state_value(p, key) for p in bucket]
        nodes = []
        for index, call in enumerate(kind.calls):
            scalar_at = {
                (place.argument, place.item): scalar for place, scalar in zip(kind.places, kind.scalars) if place.call == index}
            nodes.append(self.write_call(call, bound, scalar_at))
        return nodes

    def write_call(self, call, bound, scalar_at):
        names = [argument.name for argument in call.op._schema.arguments]
        args = [self.instance(a, bound, scalar_at, names[i]) for i, a in enumerate(call.args)]
        kwargs = {k: self.instance(a, bound, scalar_at, k) for k, a in call.kwargs.items()}
        if not call.outputs:
            return self.writer.writing(call.op, args, kwargs)
        node, values = self.writer.functional(call.op, args, kwargs)
        for position, symbol in enumerate(call.outputs):
            count = len(values) // len(call.outputs)
            bound[symbol] = values[position * count:(position + 1) * count]
        return node

    def instance(self, argument, bound, scalar_at, name):
        """An argument of the recipe for the parameters at hand: lists of one grow to the size of the bucket."""
        if isinstance(argument, Symbol):
            return {"value": int(bound[argument][0])}
        if isinstance(argument, list) and argument and isinstance(argument[0], Symbol):
            return [{"value": int(value)} for value in bound[argument[0]]]
        if isinstance(argument, list) and (name, 0) in scalar_at:
            return [{"scalar": scalar_at[name, 0]} for _ in bound[Symbol("param")]]
        if (name, -1) in scalar_at:
            return {"scalar": scalar_at[name, -1]}
        return argument

    def state_value(self, parameter, key):
        if (id(parameter), key) not in self.state_values:
            tensor = self.optimizer.state[parameter][key]
            storage, value = self.new_live_value(f"{self.names[id(parameter)][0]}.{key}", "state", tensor)
            self.updates.state_of[storage] = (parameter, key)
            self.state_values[id(parameter), key] = value
        return self.state_values[id(parameter), key]


def buckets(kind, places, limit=BUCKET_BYTES):
    """Splits the parameters of a class by the place where each can be updated: [(place, parameters)]."""
    ordered = sorted(kind.parameters, key=lambda p: places[id(p)])
    if not kind.by_list:
        return [(places[id(p)], [p]) for p in ordered]
    found, current, size = [], [], 0
    for parameter in ordered:
        current.append(parameter)
        size += parameter.numel() * parameter.element_size()
        if size >= limit:
            found.append((places[id(parameter)], current))
            current, size = [], 0
    if current:
        found.append((places[id(current[-1])], current))
    return found
