"""The optimizer of a step: its state, its update as recipes, and the numbers that change from step to step."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from regen._capture.program_builder import ProgramBuilder
from regen._capture.shadow import ELEMENTWISE, FirstValues, Shadow, is_fresh, is_torch_optimizer, learn, numbers_of, shared_attribute
from regen._capture.traced.fakes import Fakes, leaves_of, mapped
from regen._capture.update_recording import (
    Call,
    NoRecipe,
    Recorder,
    ScalarPlace,
    Symbol,
    numbers_at,
    owners_of,
    same_recipe,
    scalar_places,
    storage_of,
)
from regen.errors import CaptureError

# Attribute of a momentum buffer that the capture made and no step has used yet.
MADE_HERE = "regen_made_it"


def check_optimizer(optimizer: Any) -> None:
    """Raises:
    CaptureError: no step can be made with it, neither captured nor beside the plan.
    """
    name = type(optimizer).__name__
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise CaptureError(f"cannot capture optimizer {name}: not a torch.optim.Optimizer; expected one")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise CaptureError(
            f"cannot capture optimizer {name}: its step evaluates the model several times through a closure; expected an optimizer that takes one "
            "gradient for each step, or regen.wrap, which leaves the optimizer outside")


# Hooks of regen itself, which change nothing that a step does.
OWN_HOOKS: set[Callable[..., Any]] = set()


def why_not_recordable(optimizer: torch.optim.Optimizer) -> str:
    """What beside its class and options decides what its step does; empty: nothing."""
    step = optimizer.__dict__.get("step")
    if step is not None and not hasattr(step, "_wrapped_by_lr_sched"):
        return "its step was replaced by another function"
    own_hooks = [getattr(optimizer, name, None) for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")]
    of_all = {*_global_optimizer_pre_hooks.values(), *_global_optimizer_post_hooks.values()}
    if any(own_hooks) or of_all - OWN_HOOKS:
        return "it has step hooks"
    if not is_torch_optimizer(optimizer) and shared_attribute(optimizer):
        return f"it keeps more than numbers in its attribute '{shared_attribute(optimizer)}'"
    if any(group.get("differentiable") for group in optimizer.param_groups):
        return "differentiable=True"
    return ""


@dataclasses.dataclass
class UpdateClass:
    """Parameters of one group that are updated by the same recipe with the same numbers."""

    group: int
    shadow: Shadow
    calls: list[Call]
    places: list[ScalarPlace]
    scalars: list[int]  # for each place, the index in program["scalars"]
    parameters: list[torch.Tensor]
    after: dict[Any, Any] = dataclasses.field(default_factory=dict)  # the host's part of the state after the step that was looked at last
    attributes: dict[str, float] = dataclasses.field(default_factory=dict)  # of the optimizer, then

    @property
    def by_list(self) -> bool:
        """The recipe takes lists of parameters."""
        return any(call.by_list for call in self.calls)

    def starts(self, optimizer: torch.optim.Optimizer) -> bool:
        """A momentum buffer starts as a copy of the first gradient. Starting it at minus zero and adding the whole first
        gradient gives the same bits: -0 * momentum + g is g for every g, zeros of both signs included.
        """
        return bool(getattr(state_of(optimizer, self.parameters[0]).get("momentum_buffer"), MADE_HERE, False))

    def look(self, optimizer: torch.optim.Optimizer, may_start: bool = True) -> list[Call]:
        """What the coming step does to each of the parameters."""
        self.shadow.follow(optimizer, **({"dampening": 0.0} if may_start and self.starts(optimizer) else {}))
        self.shadow.set_host_state(host_part(self.shadow, state_of(optimizer, self.parameters[0])))
        calls = self.shadow.record().calls
        self.after = dict(self.shadow.host_state())
        self.attributes = self.shadow.numbers()
        return calls


def state_of(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> dict[Any, Any]:
    """Does not make an entry where there is none."""
    return optimizer.state.get(parameter, {})


def host_part(shadow: Shadow, state: dict[Any, Any]) -> dict[Any, Any]:
    return {k: v for k, v in state.items() if not isinstance(v, torch.Tensor) or shadow.is_host(k, v)}


class OptimizerUpdates:
    """What one captured step knows of the optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Iterable[torch.Tensor], builder: ProgramBuilder) -> None:
        """`parameters`: those with a gradient, in the order of the optimizer.

        Raises:
            NoRecipe: the optimizer's step cannot be part of a program.
        """
        if why_not_recordable(optimizer):
            raise NoRecipe(why_not_recordable(optimizer))
        self.fakes = Fakes()
        self.on_device: set[str] = set()  # entries of the state without dimensions that are updated by operators of the recipe
        self.classes: list[UpdateClass] = []
        self.state_of: dict[int, tuple[torch.Tensor, str]] = {}  # storage of the builder -> (parameter, key)
        self.known: tuple[Any, list[float] | None] | None = None  # what the numbers depend on, and they; None: another recipe
        self.left: Any = None  # the state as the last look or step left it
        self.made: list[torch.Tensor] = []  # parameters whose state the capture made
        self.has_run = False
        with_gradient = {id(p) for p in parameters}
        self.members = [
            (index, p) for index, group in enumerate(optimizer.param_groups) for p in group["params"] if id(p) in with_gradient]
        self.sizes = [len(group["params"]) for group in optimizer.param_groups]
        self.find_device_state(optimizer)
        try:
            self.make_state(optimizer)
            self.classify(optimizer, builder)
            if not is_torch_optimizer(optimizer):
                self.check_independent(optimizer)
        except Exception:
            self.undo(optimizer)
            raise
        self.left = self.state_print(optimizer)

    def find_device_state(self, optimizer: torch.optim.Optimizer) -> None:
        """On an accelerator, fused and capturable updates keep even their counts there."""
        for index, parameter in self.members:
            group = optimizer.param_groups[index]
            if parameter.device.type != "cpu" and (group.get("fused") or group.get("capturable")):
                self.on_device |= {"step", "mu_product", "eta", "mu"} if group.get("capturable") else {"step"}

    # State.

    def make_state(self, optimizer: torch.optim.Optimizer) -> None:
        """State as the optimizer would make it at its first step."""
        for kind in self.kinds(optimizer, [m for m in self.members if is_fresh(state_of(optimizer, m[1]))]):
            initial = learn(optimizer, self.on_device, lambda kind=kind: self.initial_state(optimizer, kind[0]))
            for _, parameter in kind:
                self.install(optimizer, parameter, initial)

    def initial_state(self, optimizer: torch.optim.Optimizer, member: tuple[int, torch.Tensor]) -> dict[Any, Any] | None:
        """Key -> a value, or the call that makes one; None: it keeps none."""
        shadow = Shadow(optimizer, [member], self.fakes, self.on_device)
        recorder = shadow.record()
        state = shadow.state()
        if not isinstance(state, FirstValues):
            return None
        initial: dict[Any, Any] = {}
        adopt: dict[int, Symbol] = {}
        for key, final in state.items():
            first = state.first[key]
            if isinstance(first, torch.Tensor) and recorder.memory_of(first) is not None:
                number, call = recorder.created.get(storage_of(first), (None, None))
                if has_first_gradient_as_momentum(optimizer, key):
                    initial[key] = Call(torch.ops.aten.full_like.default, [Symbol("param"), -0.0], {}, [])
                elif number is None or call is None:
                    raise FirstStepDiffers("the state of its first step is made from gradients")
                else:
                    initial[key], adopt[number] = call, Symbol("state", key)
            elif isinstance(first, torch.Tensor):
                initial[key] = recorder.before.get(id(first), first).clone()
            elif final is not None or first is not None:
                initial[key] = first
        if type(optimizer) not in ELEMENTWISE:
            self.check_first_step(optimizer, member, adopt, initial)
        return initial

    def check_first_step(
        self, optimizer: torch.optim.Optimizer, member: tuple[int, torch.Tensor], adopt: dict[int, Symbol], initial: dict[Any, Any],
    ) -> None:
        """The first step must do what a later one does with the state as it was first."""
        shadow = Shadow(optimizer, [member], self.fakes, self.on_device)
        first = shadow.record(adopt).calls
        after = host_values(shadow.host_state(), self.on_device), shadow.numbers()
        shadow.twin.state[shadow.parameters[0]] = dict(shadow.state())
        shadow.set_host_state({k: v for k, v in initial.items() if not isinstance(v, Call)})
        shadow.follow(optimizer)
        second = shadow.record().calls
        places = scalar_places(second)
        if not same_recipe(second, first, places) or numbers_at(places, first) != numbers_at(places, second) or after != (
                host_values(shadow.host_state(), self.on_device), shadow.numbers()):
            raise FirstStepDiffers("its first step differs from later ones")

    def install(self, optimizer: torch.optim.Optimizer, parameter: torch.Tensor, initial: dict[Any, Any] | None) -> None:
        if initial is None:
            return
        group = next(optimizer.param_groups[g] for g, p in self.members if p is parameter)
        state = optimizer.state[parameter]
        self.made.append(parameter)
        for key, value in initial.items():
            if isinstance(value, Call):
                value = real_result(value, parameter)
                setattr(value, MADE_HERE, True)  # until a step is taken; whatever is loaded in its place is not so marked
            elif isinstance(value, torch.Tensor):
                value = value.detach().clone().to(home_of(optimizer, group, value, parameter))
            state[key] = value

    def undo(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes back the state that the capture made: no step will be taken."""
        for parameter in self.made:
            if any(getattr(value, MADE_HERE, False) for value in state_of(optimizer, parameter).values()):
                del optimizer.state[parameter]
        self.made = []

    # Recipes.

    def kinds(self, optimizer: torch.optim.Optimizer, members: Sequence[tuple[int, torch.Tensor]]) -> list[list[tuple[int, torch.Tensor]]]:
        """Members that one shadow stands for."""
        kinds: dict[Any, list[tuple[int, torch.Tensor]]] = {}
        for index, p in members:
            state = state_of(optimizer, p)
            looks: Any = (p.dtype, p.device, p.dim() == 0)
            if type(optimizer) not in ELEMENTWISE or optimizer.param_groups[index].get("capturable"):
                looks = (*looks, p.shape, p.stride())
            kinds.setdefault((index, looks, host_values(state, self.on_device)), []).append((index, p))
        return list(kinds.values())

    def classify(self, optimizer: torch.optim.Optimizer, builder: ProgramBuilder) -> None:
        for kind in self.kinds(optimizer, self.members):
            index, parameters = kind[0][0], [p for _, p in kind]

            def watch(kind: list[tuple[int, torch.Tensor]] = kind, index: int = index, parameters: list[torch.Tensor] = parameters) -> UpdateClass:
                shadow = Shadow(optimizer, kind[:1], self.fakes, self.on_device)
                made = UpdateClass(index, shadow, [], [], [], parameters)
                made.calls = made.look(optimizer, may_start=False)
                return made

            found = learn(optimizer, self.on_device, watch)
            found.places = scalar_places(found.calls)
            found.scalars = [
                builder.add_scalar(f"group{index}.{found.calls[place.call].op._schema.name.split('::')[1]}.{place.argument}", float(number))
                for place, number in zip(found.places, numbers_at(found.places, found.calls))]
            self.classes.append(found)

    def check_independent(self, optimizer: torch.optim.Optimizer) -> None:
        """All parameters in one step must give the same calls for each as on its own."""
        shadow = Shadow(optimizer, self.members, self.fakes, self.on_device)
        recorder = learn(optimizer, self.on_device, shadow.record)
        own: dict[int, list[Any]] = {}
        for call in recorder.calls:
            if any(symbol.kind == "const" for symbol in call.outputs):
                continue
            for owner in owners_of(call):
                own.setdefault(owner, []).append(call.op)
        number_of = {id(p): i for i, (_, p) in enumerate(self.members)}
        for kind in self.classes:
            alone = [call.op for call in kind.calls if not any(s.kind == "const" for s in call.outputs)]
            for parameter in kind.parameters:
                if own.get(number_of[id(parameter)], []) != alone:
                    raise NoRecipe("what it does to a parameter depends on the other parameters")

    # Numbers.

    def look(self, optimizer: torch.optim.Optimizer) -> list[float] | None:
        """The numbers of the coming step; None: it does something else than was captured."""
        if why_not_recordable(optimizer):
            return None
        now = (self.options_print(optimizer), self.state_print(optimizer))
        if self.known is None or self.known[0] != now:
            self.known = now, self.numbers_now(optimizer, now[1])
        return self.known[1]

    def numbers_now(self, optimizer: torch.optim.Optimizer, state: Any) -> list[float] | None:
        if [len(group["params"]) for group in optimizer.param_groups] != self.sizes:
            return None
        if state != self.left and not self.is_uniform(optimizer):
            return None
        self.left = state
        values = [0.0] * sum(len(kind.scalars) for kind in self.classes)
        for kind in self.classes:
            try:
                calls = learn(optimizer, set(), lambda kind=kind: kind.look(optimizer))
            except NoRecipe:
                return None
            if not same_recipe(kind.calls, calls, kind.places):
                return None
            for scalar, number in zip(kind.scalars, numbers_at(kind.places, calls)):
                values[scalar] = float(number)
        return values

    def is_uniform(self, optimizer: torch.optim.Optimizer) -> bool:
        """Do all parameters of each class still have the same numbers, and the entries that the class was recorded with?"""
        for kind in self.classes:
            values = {host_values(state_of(optimizer, p), self.on_device) for p in kind.parameters}
            if len(values) > 1 or set(state_of(optimizer, kind.parameters[0])) != set(kind.shadow.state()):
                return False
        return True

    def options_print(self, optimizer: torch.optim.Optimizer) -> Any:
        numbers = None if is_torch_optimizer(optimizer) else numbers_of(optimizer)
        options = [{k: mapped(print_of, v) for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        return options, numbers, [kind.starts(optimizer) for kind in self.classes]

    def state_print(self, optimizer: torch.optim.Optimizer) -> Any:
        """Changes whenever the host's part of the state does."""
        return [
            [(key, print_of(value)) for key, value in state_of(optimizer, p).items()
             if not isinstance(value, torch.Tensor) or (value.dim() == 0 and key not in self.on_device)]
            for kind in self.classes for p in kind.parameters]

    def scalars(self, optimizer: torch.optim.Optimizer, count: int, ahead: int = 0) -> list[float]:
        """The values of program["scalars"] for the coming step, or for the one `ahead` steps later.

        Raises:
            CaptureError: that step does something else than was captured.
        """
        values = self.look(optimizer) if ahead == 0 else self.numbers_ahead(optimizer, ahead)
        if values is None:
            raise CaptureError(
                f"the options or the state of {type(optimizer).__name__} changed what the update computes; expected only numbers to change after the "
                "capture (capture again)")
        return values + [0.0] * (count - len(values))

    def numbers_ahead(self, optimizer: torch.optim.Optimizer, ahead: int) -> list[float] | None:
        values = [0.0] * sum(len(kind.scalars) for kind in self.classes)
        for kind in self.classes:
            shadow = Shadow(optimizer, [(kind.group, kind.parameters[0])], self.fakes, self.on_device)
            for _ in range(ahead):
                shadow.record()
            calls = shadow.record().calls
            if not same_recipe(kind.calls, calls, kind.places):
                return None
            for scalar, number in zip(kind.scalars, numbers_at(kind.places, calls)):
                values[scalar] = float(number)
        return values

    def advance(self, optimizer: torch.optim.Optimizer) -> None:
        """A step was taken: what the optimizer counts on the host follows."""
        self.look(optimizer)
        if not self.has_run:
            end_of_start(optimizer, [p for _, p in self.members])
        self.has_run, self.made = True, []
        optimizer._opt_called = True  # pyright: ignore[reportAttributeAccessIssue]  what schedulers look at before they complain
        for kind in self.classes:
            for key, value in kind.after.items():
                set_all([optimizer.state[p] for p in kind.parameters], key, value)
            if not is_torch_optimizer(optimizer):
                optimizer.__dict__.update(kind.attributes)
        self.left = self.state_print(optimizer)


def host_values(state: dict[Any, Any], on_device: set[str]) -> Any:
    """What of a parameter's state decides the numbers of its update, and which entries there are."""
    found = []
    for key, value in state.items():
        if not isinstance(value, torch.Tensor):
            found.append((key, repr(value)))
        elif value.dim() == 0 and key not in on_device:
            found.append((key, value.item()))
        else:
            found.append((key, getattr(value, MADE_HERE, False)))
    return tuple(found)


class FirstStepDiffers(NoRecipe):
    """No recipe for the first step alone: later ones may have one."""


def has_first_gradient_as_momentum(optimizer: torch.optim.Optimizer, key: str) -> bool:
    """See `UpdateClass.starts`."""
    return type(optimizer) is torch.optim.SGD and key == "momentum_buffer"


def real_result(call: Call, parameter: torch.Tensor) -> torch.Tensor:
    """The state that a call makes for a parameter."""
    def real(tree: Any) -> Any:
        return mapped(lambda x: parameter.detach() if isinstance(x, Symbol) else x, tree)

    if any(isinstance(x, Symbol) and x.kind not in ("param", "grad") for x in leaves_of([call.args, call.kwargs])):
        raise FirstStepDiffers("the state of its first step is made from other state")
    with torch.no_grad():
        made = call.op(*real(call.args), **{k: real(a) for k, a in call.kwargs.items()})
    return made.detach()


def home_of(optimizer: torch.optim.Optimizer, group: dict[str, Any], value: torch.Tensor, parameter: torch.Tensor) -> torch.device:
    """Where torch keeps a number of a parameter's state."""
    if type(optimizer) not in ELEMENTWISE:
        return value.device
    on_device = isinstance(optimizer, torch.optim.ASGD) or group.get("capturable") or group.get("fused")
    return parameter.device if on_device else torch.device("cpu")


def end_of_start(optimizer: torch.optim.Optimizer, parameters: Iterable[torch.Tensor]) -> None:
    """State that the capture made has had its first step."""
    for parameter in parameters:
        for value in state_of(optimizer, parameter).values():
            if isinstance(value, torch.Tensor) and getattr(value, MADE_HERE, False):
                setattr(value, MADE_HERE, False)


def set_all(states: list[dict[Any, Any]], key: Any, value: Any) -> None:
    """An entry of several states."""
    tensors = [state[key] for state in states if isinstance(state.get(key), torch.Tensor)]
    if not isinstance(value, torch.Tensor) or len(tensors) < len(states):
        for state in states:
            state[key] = value.clone() if isinstance(value, torch.Tensor) else value
    elif all(t.device.type == "cpu" for t in tensors):
        torch._foreach_copy_(tensors, [value] * len(tensors))  # pyright: ignore[reportPrivateImportUsage]
    else:
        number = value.item()
        for tensor in tensors:
            tensor.fill_(number)


def print_of(value: Any) -> Any:
    """Equal as long as a value is the same; of a tensor, as long as it is not written."""
    return (id(value), value._version) if isinstance(value, torch.Tensor) else value


__all__ = ["Call", "FirstStepDiffers", "NoRecipe", "OptimizerUpdates", "Recorder", "UpdateClass", "check_optimizer"]
