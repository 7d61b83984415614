"""What the forward pass assigns to attributes of modules: the model is as it was after it has been traced, and every step assigns again."""

from typing import Any, NamedTuple

import torch

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
    """A module or a plain value that the first step has to assign."""

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
        """What code that builds modules in its first forward pass has changed: modules, and with them the attributes by which it knows that it has
        done so. Empty: no module was added or replaced.

        Raises:
            CaptureError: a new module holds tensors of the trace.
        """
        modules, attributes = [], []
        for path, module, plain, held in self.modules:
            now = vars(module)["_modules"]
            for name in {**now, **held["_modules"]}:
                if now.get(name) is not held["_modules"].get(name):
                    check_made(now.get(name), f"{path}.{name}".lstrip("."))
                    modules.append(Replaced(path, name, now.get(name)))
            attributes += [
                Replaced(path, n, v) for n, v in vars(module).items() if isinstance(v, (bool, int, float, str)) and plain.get(n, self) != v]
        return modules + attributes if modules else []

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
