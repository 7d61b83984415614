"""What the forward pass assigns to attributes of modules: the model is as it was after it has been traced, and every step assigns again."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from regen._capture.traced.plain_state import PLAIN, Begun, Counted, Counts, Nothing, is_number, look_of
from regen._capture.traced.tensor import TracedTensor
from regen.errors import CaptureError

# What is in these dictionaries is put back; hooks that the forward pass installs in its first run would be there twice otherwise.
HOLDERS = (
    "_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks")


class Assigned(NamedTuple):
    """A tensor of the trace that an attribute holds."""

    path: str  # of the module
    name: str
    tensor: TracedTensor


class Replaced(NamedTuple):
    """A module or a plain value that the step has to assign."""

    path: str  # of the module that holds it
    name: str
    value: Any


def check_made(module: torch.nn.Module | None, name: str) -> None:
    tensors = [] if module is None else [*module.parameters(), *module.buffers()]
    if module is None or any(isinstance(t, TracedTensor) for t in tensors):
        raise CaptureError(
            f"the forward pass replaces the module {name} by one with parameters of its own; expected modules that stay (run the model once before it "
            "is captured)")


class ModuleState:
    """Attributes of all modules and hooks of all parameters, as they were before the trace."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.modules = [(path, m, dict(vars(m)), {h: dict(vars(m)[h]) for h in HOLDERS}) for path, m in model.named_modules()]
        self.hooks = [(p, p._backward_hooks) for p in model.parameters()]
        for parameter, _ in self.hooks:  # the user's own hooks run when real gradients arrive
            parameter._backward_hooks = None

    def assigned(self) -> list[Assigned]:
        """Tensors of the trace in attributes, in their order."""
        found = []
        for path, module, *_ in self.modules:
            attributes = [*vars(module).items(), *vars(module)["_buffers"].items(), *vars(module)["_parameters"].items()]
            found += [Assigned(path, name, value) for name, value in attributes if isinstance(value, TracedTensor)]
        return found

    def replaced(self) -> list[Replaced]:
        """What code has changed that builds modules, or notes something, in its forward pass: modules and plain values.

        Raises:
            CaptureError: a new module holds tensors of the trace.
        """
        modules = []
        for path, module, _, held in self.modules:
            now = vars(module)["_modules"]
            for name in {**now, **held["_modules"]}:
                if now.get(name) is not held["_modules"].get(name):
                    check_made(now.get(name), f"{path}.{name}".lstrip("."))
                    modules.append(Replaced(path, name, now.get(name)))
        attributes = [Replaced(path, name, now) for path, name, _, now in self.changes(always=bool(modules)) if isinstance(now, PLAIN)]
        return modules + attributes

    def changes(self, always: bool = False) -> list[tuple[str, str, Any, Any]]:
        """(path of a module, attribute, before, now), of tensors and plain values that look otherwise; no attribute: Nothing. Empty where objects or
        hooks have changed, too: these are put back, and what belongs to them has to be.
        """
        if not always and self.changes_objects():
            return []
        found = []
        for path, module, plain, held in self.modules:
            for before, now in ((plain, vars(module)), (held["_buffers"], vars(module)["_buffers"])):
                for name in {**before, **now}:
                    old, new = before.get(name, Nothing), now.get(name, Nothing)
                    if old is not new and None not in (look_of(old), look_of(new)) and look_of(old) != look_of(new):
                        found.append((path, name, old, new))
        return found

    def changes_objects(self) -> bool:
        """Hooks, or attributes with objects of which nothing is known."""
        hooks = [holder for holder in HOLDERS if holder not in ("_parameters", "_buffers", "_modules")]
        for _, module, plain, held in self.modules:
            now = vars(module)
            if any(list(now[holder]) != list(held[holder]) for holder in hooks):
                return True
            changed = [(plain.get(n, Nothing), now.get(n, Nothing)) for n in {**plain, **now} if now.get(n, Nothing) is not plain.get(n, Nothing)]
            if any(None in (look_of(old), look_of(new)) and not isinstance(new, Counted) for old, new in changed):
                return True
        return False

    def begun(self) -> list[Begun]:
        """What the attributes that have changed looked like."""
        return [Begun(path, name, look_of(old)) for path, name, old, _ in self.changes()]

    def numbers(self) -> list[tuple[str, str]]:
        """(path of a module, attribute) of those that have changed."""
        return [(path, name) for path, name, old, new in self.changes() if is_number(old) and is_number(new)]

    def count(self, numbers: Sequence[tuple[str, str]]) -> None:
        """Before the trace: these may be counted with, and are not read."""
        modules = {path: module for path, module, *_ in self.modules}
        for path, name in numbers:
            vars(modules[path])[name] = Counted()

    def counts(self) -> list[Counts]:
        """What the trace has counted.

        Raises:
            CaptureError: another attribute has a number that follows from one of these.
        """
        found = []
        for path, module, plain, _ in self.modules:
            for name, value in vars(module).items():
                if isinstance(value, Counted):
                    if not is_number(plain.get(name)):
                        value.read()
                    found.append(Counts(path, name, value.operations))
        return found

    def put_back(self) -> None:
        self.put_attributes_back()
        for parameter, hooks in self.hooks:
            parameter._backward_hooks = hooks

    def put_attributes_back(self) -> None:
        """Hooks of parameters apart."""
        for _, module, plain, held in self.modules:
            for holder, items in held.items():
                current = plain[holder]
                if len(current) != len(items) or any(current.get(name) is not value for name, value in items.items()):
                    current.clear()
                    current.update(items)
            attributes = vars(module)
            for name in [n for n in attributes if n not in plain]:
                del attributes[name]
            attributes.update(plain)
