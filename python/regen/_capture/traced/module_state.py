"""What the forward pass assigns to attributes of modules: the model is as it was after it has been traced, and every step assigns again."""

from typing import NamedTuple

import torch

from regen._capture.traced.tensor import TracedTensor
from regen.errors import CaptureError

HOLDERS = ("_parameters", "_buffers", "_modules")


class Assigned(NamedTuple):
    """A tensor of the trace that an attribute holds."""

    path: str  # of the module
    name: str
    tensor: TracedTensor


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

    def check_structure(self) -> None:
        """Code that builds modules in the first forward pass would build them again at every step.

        Raises:
            CaptureError: modules were added or replaced.
        """
        for path, module, _, held in self.modules:
            now = vars(module)["_modules"]
            changed = [n for n in {**now, **held["_modules"]} if now.get(n) is not held["_modules"].get(n)]
            if changed:
                raise CaptureError(
                    f"the forward pass replaces the module {f'{path}.' if path else ''}{changed[0]}; expected modules that stay (run the model once "
                    "before it is captured)")

    def put_back(self) -> None:
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
        for parameter, hooks in self.hooks:
            parameter._backward_hooks = hooks
