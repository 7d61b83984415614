"""A stand-in of the user's optimizer, whose step is watched: the same class and options, over parameters that hold no data of the user's."""

import collections
import types
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch.optim.optimizer import _default_to_fused_or_foreach

from regen._capture.traced.fakes import Fakes, leaves_of, mapped
from regen._capture.update_recording import Call, HostTensorWritten, NoRecipe, Recorder, Symbol
from regen.errors import CaptureError

Made = TypeVar("Made")
# Their updates treat each element alone, so that a parameter of one element shows the recipe for all shapes, at the least cost before each step.
ELEMENTWISE = tuple(
    getattr(torch.optim, name) for name in (
        "SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD"))
# Attributes of an optimizer that are not its step's business.
OWN_ATTRIBUTES = {"param_groups", "state", "defaults"}
# Those that every optimizer has.
COMMON_ATTRIBUTES = {*torch.optim.SGD([torch.nn.Parameter(torch.empty(0))]).__dict__, "step", "_opt_called"}
# What a stand-in's step may share with the user's optimizer: nothing that can be changed in place.
PLAIN = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, types.FunctionType, types.BuiltinFunctionType, type)


def is_torch_optimizer(optimizer: torch.optim.Optimizer) -> bool:
    """Of torch itself, with torch's own step."""
    return type(optimizer).__module__.startswith("torch.optim")


def shared_attribute(optimizer: torch.optim.Optimizer) -> str:
    """The name of an attribute that its step may change in place, beside its state; empty: there is none."""
    for name, value in optimizer.__dict__.items():
        if name not in COMMON_ATTRIBUTES and not all(isinstance(leaf, PLAIN) for leaf in (value if isinstance(value, tuple) else (value,))):
            return name
    return ""


class StateOnDevice(Exception):
    """An entry of the state that was taken for one of the host is computed from parameters or gradients."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(key)


def is_fresh(state: dict[Any, Any]) -> bool:
    """No step was taken; torch also keeps None for a momentum that has not begun."""
    return all(value is None for value in state.values())


class FirstValues(dict[Any, Any]):
    """The state of a parameter that has none yet; remembers what each entry was first."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[Any, Any] = {}

    def __setitem__(self, key: Any, value: Any) -> None:
        self.first.setdefault(key, value)
        super().__setitem__(key, value)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]


class Shadow:
    """Stand-ins for some parameters of an optimizer, with their state."""

    def __init__(self, optimizer: torch.optim.Optimizer, members: Sequence[tuple[int, torch.Tensor]], fakes: Fakes, on_device: set[str]) -> None:
        """`members`: (group, parameter). `on_device`: entries of the state that have no dimension and yet are updated by operators of the recipe;
        all others live on the host.
        """
        self.kind, self.fakes, self.on_device = type(optimizer), fakes, on_device
        self.tiny = self.kind in ELEMENTWISE and not any(optimizer.param_groups[g].get("capturable") for g, _ in members)
        self.members = members
        self.parameters = [self.stand_in(p).requires_grad_() for _, p in members]
        for (_, real), parameter in zip(members, self.parameters):
            parameter.grad = self.stand_in(real)
        self.twin: Any = object.__new__(self.kind)
        self.twin.__dict__.update(optimizer.__dict__)
        self.twin.__dict__.pop("step", None)  # as a scheduler has wrapped it
        for hooks in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
            self.twin.__dict__[hooks] = collections.OrderedDict()
        self.twin.state = cast(dict[Any, dict[Any, Any]], collections.defaultdict(FirstValues))
        for (_, real), parameter in zip(members, self.parameters):
            state = optimizer.state.get(real, {})
            if not is_fresh(state):
                self.twin.state[parameter] = {key: self.like_state(key, value) for key, value in state.items()}
        self.by_lists = {g: uses_lists(optimizer, optimizer.param_groups[g]) for g, _ in members}
        self.follow(optimizer)

    # Tensors.

    def stand_in(self, tensor: torch.Tensor) -> Any:
        if self.tiny:
            return torch.zeros((1,) if tensor.dim() else (), dtype=tensor.dtype)
        return self.fakes.like(tensor)

    def like_state(self, key: Any, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            if any(isinstance(leaf, torch.Tensor) for leaf in leaves_of(value)) or hasattr(value, "__dict__"):
                raise NoRecipe(f"its state '{key}' is a {type(value).__name__}")
            return value
        return value.detach().cpu().clone() if self.is_host(key, value) else self.stand_in(value)

    def is_host(self, key: Any, value: Any) -> bool:
        """Numbers that the optimizer computes with on the host. What lies on an accelerator is computed there."""
        return isinstance(value, torch.Tensor) and value.dim() == 0 and key not in self.on_device

    def state(self, index: int = 0) -> dict[Any, Any]:
        return self.twin.state.get(self.parameters[index], {})

    def host_state(self, index: int = 0) -> dict[Any, Any]:
        return {k: v for k, v in self.state(index).items() if not isinstance(v, torch.Tensor) or self.is_host(k, v)}

    def set_host_state(self, values: dict[Any, Any], index: int = 0) -> None:
        for key, value in values.items():
            own = self.twin.state[self.parameters[index]]
            if isinstance(own.get(key), torch.Tensor) and isinstance(value, torch.Tensor):
                own[key].copy_(value)
            else:
                own[key] = value

    # Options.

    def follow(self, optimizer: torch.optim.Optimizer, **overrides: Any) -> None:
        """The options and numbers of the optimizer as they are now."""
        for name in self.numbers():
            del self.twin.__dict__[name]
        self.twin.__dict__.update(numbers_of(optimizer))
        whole = not is_torch_optimizer(optimizer)
        groups = []
        for index, group in enumerate(optimizer.param_groups):
            own = [p for (g, _), p in zip(self.members, self.parameters) if g == index]
            if own or whole:
                options = {k: on_host(v) for k, v in group.items() if k != "params"}
                if own and options.get("foreach", 0) is None and not options.get("fused"):
                    options["foreach"] = self.by_lists[index]  # torch would look at the stand-ins
                groups.append({**options, **overrides, "params": own})
        self.twin.param_groups = groups

    # Steps.

    def record(self, adopt: dict[int, Symbol] | None = None) -> Recorder:
        """Takes a step and writes it down."""
        known: list[tuple[torch.Tensor, Symbol]] = []
        for index, parameter in enumerate(self.parameters):
            known += [(parameter, Symbol("param", "", index)), (parameter.grad, Symbol("grad", "", index))]
            known += [
                (value, Symbol("state", key, index)) for key, value in self.state(index).items()
                if isinstance(value, torch.Tensor) and not self.is_host(key, value)]
        before = [dict(self.state(i)) for i in range(len(self.parameters))]
        numbers = {k: v for k, v in self.twin.__dict__.items() if k not in OWN_ATTRIBUTES}
        recorder = Recorder(known, None if self.tiny else self.fakes.mode, adopt)
        try:
            with recorder, torch.no_grad():
                self.kind.step(self.twin)
        except HostTensorWritten as written:
            raise StateOnDevice(self.key_of(written.tensor)) from None
        for old, state in zip(before, (self.state(i) for i in range(len(self.parameters)))):
            if isinstance(state, FirstValues) and adopt:
                old.update({k: v for k, v in state.first.items() if isinstance(v, torch.Tensor) and recorder.is_state(v)})
        self.note_replaced(recorder, before)
        self.check_attributes(numbers)
        return recorder

    def key_of(self, tensor: torch.Tensor) -> str:
        for index in range(len(self.parameters)):
            for key, value in self.state(index).items():
                if value is tensor:
                    return key
        raise NoRecipe("it writes what it computes from gradients to a tensor of its own that is not in its state")

    def note_replaced(self, recorder: Recorder, before: list[dict[Any, Any]]) -> None:
        """State that is another tensor after the step is copied into the one before."""
        for index, old in enumerate(before):
            self.check_added(recorder, old, self.state(index))
            for key, value in old.items():
                new = self.state(index).get(key)
                if new is value or not isinstance(value, torch.Tensor):
                    continue
                if self.is_host(key, value):
                    if isinstance(new, torch.Tensor) and recorder.memory_of(new) is not None:
                        raise StateOnDevice(key)
                    continue
                source = recorder.symbol_of(new) if isinstance(new, torch.Tensor) else None
                if source is None or new is None or new.shape != value.shape or new.dtype != value.dtype:
                    raise NoRecipe(f"it replaces its state '{key}' by something else")
                recorder.calls.append(Call(torch.ops.aten.copy_.default, [Symbol("state", key, index), source], {}, []))
                self.state(index)[key] = value

    def check_added(self, recorder: Recorder, old: dict[Any, Any], state: dict[Any, Any]) -> None:
        if isinstance(state, FirstValues):
            return
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and not isinstance(old.get(key), torch.Tensor) and recorder.memory_of(value) is not None:
                raise NoRecipe(f"its state '{key}' begins at a later step")

    def check_attributes(self, before: dict[str, Any]) -> None:
        for name, value in self.twin.__dict__.items():
            if name not in OWN_ATTRIBUTES and value is not before.get(name) and not isinstance(value, (int, float)):
                raise NoRecipe(f"its step changes its attribute '{name}'")

    def numbers(self) -> dict[str, float]:
        """Attributes that are numbers, which its step may change."""
        return numbers_of(self.twin)


def numbers_of(optimizer: torch.optim.Optimizer) -> dict[str, float]:
    return {k: v for k, v in optimizer.__dict__.items() if isinstance(v, (int, float)) and k not in OWN_ATTRIBUTES and k != "_opt_called"}


def on_host(option: Any) -> Any:
    return mapped(lambda x: x.detach().cpu().clone() if isinstance(x, torch.Tensor) else x, option)


def uses_lists(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> bool:
    """Torch's own choice between one parameter at a time and lists of them, where the user has made none."""
    if isinstance(optimizer, torch.optim.Adam) and isinstance(group["lr"], torch.Tensor) and not group["capturable"]:
        return False
    return bool(_default_to_fused_or_foreach(list(group["params"]), differentiable=False, use_fused=False)[1])


def learn(optimizer: torch.optim.Optimizer, on_device: set[str], make: Callable[[], Made]) -> Made:
    """What `make()` returns, which records shadows. Entries of the state move to `on_device` as the optimizer turns out to use them.

    Raises:
        NoRecipe: the optimizer's step cannot be recorded.
        CaptureError: it is one of torch's, and refuses its options or parameters.
    """
    for _ in range(16):
        try:
            return make()
        except StateOnDevice as found:
            if found.key in on_device:
                break
            on_device.add(found.key)
        except CaptureError:
            raise
        except Exception as error:
            line = next((x.strip() for x in str(error).splitlines() if x.strip()), type(error).__name__)[:200]
            if type(optimizer) in ELEMENTWISE:
                raise CaptureError(
                    f"cannot capture optimizer {type(optimizer).__name__}: its step refuses: {line.rstrip('.')}; expected options that it accepts on "
                    "this device") from error
            raise NoRecipe(f"it does not run on tensors without data: {line}") from error
    raise NoRecipe("its state cannot be distinguished from numbers of the host")
