"""`torch.compile(model, backend="regen", options={"budget": "6GiB"})`."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.backends import registry

from regen._wrap import wrap
from regen.errors import CaptureError, OptionError
from regen.integrations.planned_forward import checked_options
from regen.options import BackendOptions


def regen(graph: torch.fx.GraphModule, sample: Sequence[Any], *, options: BackendOptions | None = None) -> "GraphCall":
    """Called by `torch.compile` with one graph of the model.

    Every graph gets the whole budget, so a model that is to keep it should be one graph: `fullgraph=True` says so loudly. A graph between two
    breaks that has no parameter to train runs as it is; so does one that cannot be captured (it changes an input in place through which gradients
    flow), and a warning says so.

    Args:
        graph: of the model.
        sample: its inputs.
        options: those of `regen.wrap`; `budget` must be there.

    Returns:
        A function of the graph's inputs.

    Raises:
        OptionError: there is no budget, or an option has a name or a value that is not expected.
    """
    if not options or "budget" not in options:
        raise OptionError("torch.compile(backend='regen') has no budget; expected options={'budget': '6GiB'} or another size")
    checked_options("torch.compile(backend='regen')", options["budget"], {key: value for key, value in options.items() if key != "budget"})
    return GraphCall(graph, sample, options)


def register() -> None:
    """Makes the backend known, unless torch has found it by the entry point of the installed package: it registers what that leads to itself,
    and refuses a name that is there already.
    """
    if getattr(registry, "_BACKENDS", {}).get("regen") is None:
        registry.register_backend(regen)


register()


class GraphCall:
    """A graph whose parameters come as inputs, as a module that has them."""

    def __init__(self, graph: torch.fx.GraphModule, sample: Sequence[Any], options: BackendOptions) -> None:
        self.graph = graph
        self.options = options
        self.owned = [i for i, x in enumerate(sample) if isinstance(x, torch.nn.Parameter)]
        self.module: GraphModule | None = None
        self.planned: torch.nn.Module | None = None
        self.refused = False

    def __call__(self, *inputs: Any) -> Any:
        """What the graph returns; under a plan where parameters train."""
        parameters = [inputs[i] for i in self.owned]
        if self.refused or not (torch.is_grad_enabled() and any(p.requires_grad for p in parameters)):
            return self.graph(*inputs)
        others = [x for i, x in enumerate(inputs) if i not in set(self.owned)]
        try:
            planned = self.planned_with(parameters, others)
        except CaptureError as error:
            self.refused = True
            warnings.warn(f"regen: a graph of torch.compile runs without a plan: {error}", stacklevel=2)
            return self.graph(*inputs)
        return planned(*others)

    def planned_with(self, parameters: Sequence[torch.nn.Parameter], others: Sequence[Any]) -> torch.nn.Module:
        """The planned graph with these parameters."""
        if self.planned is None or self.module is None:
            self.module = GraphModule(self.graph, self.owned, parameters).train()
            self.planned = planned = wrap(self.module, **self.options)
            planned.regen.has_loss = False  # a graph that ends in a break returns a number beside other tensors: it is no loss
            planned.regen.prepare(planned, tuple(others), {})
        else:
            self.module.follow(parameters)
        return self.planned


class GraphModule(torch.nn.Module):
    """A graph that takes some of its inputs from its own parameters."""

    def __init__(self, graph: torch.fx.GraphModule, owned: Sequence[int], parameters: Sequence[torch.nn.Parameter]) -> None:
        super().__init__()
        self.graph = torch.fx.GraphModule(graph, graph.graph)  # one that is no lazy one: it will be traced again
        self.owned = owned
        self.follow(parameters)

    def follow(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """The parameters of the next call."""
        for index, parameter in zip(self.owned, parameters):
            self._parameters[f"p{index}"] = parameter

    def forward(self, *others: Any) -> Any:
        """What the graph returns."""
        rest = iter(others)
        count = len(self.owned) + len(others)
        return self.graph(*(
            self._parameters[f"p{i}"] if f"p{i}" in self._parameters else next(rest) for i in range(count)))
