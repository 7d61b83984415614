"""`torch.compile(model, backend="regen", options={"budget": "6GiB"})`."""

import torch
from torch._dynamo import register_backend

from regen._wrap import wrap


@register_backend
def regen(graph, sample, *, options=None):
    """Called by torch.compile with one graph of the model. Every graph gets the whole budget, so a model that is to keep
    it should be one graph: `fullgraph=True` says so loudly."""
    options = dict(options or {})
    if "budget" not in options:
        raise ValueError("torch.compile(backend='regen') has no budget; expected options={'budget': '6GiB'} or another size")
    return GraphCall(graph, sample, options)


class GraphCall:
    """A graph whose parameters come as inputs, as a module that has them."""

    def __init__(self, graph, sample, options):
        self.graph = graph
        self.options = options
        self.owned = [i for i, x in enumerate(sample) if isinstance(x, torch.nn.Parameter)]
        self.planned = None

    def __call__(self, *inputs):
        trains = torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)
        if not trains:
            return self.graph(*inputs)
        parameters = [inputs[i] for i in self.owned]
        others = [x for i, x in enumerate(inputs) if i not in set(self.owned)]
        if self.planned is None:
            self.planned = wrap(GraphModule(self.graph, self.owned, parameters).train(), tuple(others), **self.options)
        else:
            self.planned.follow(parameters)
        return self.planned(*others)


class GraphModule(torch.nn.Module):
    def __init__(self, graph, owned, parameters):
        super().__init__()
        self.graph = torch.fx.GraphModule(graph, graph.graph)  # one that is no lazy one: it will be traced again
        self.owned = owned
        self.follow(parameters)

    def follow(self, parameters):
        for index, parameter in zip(self.owned, parameters):
            self._parameters[f"p{index}"] = parameter

    def forward(self, *others):
        rest = iter(others)
        count = len(self.owned) + len(others)
        return self.graph(*(
            self._parameters[f"p{i}"] if f"p{i}" in self._parameters else next(rest) for i in range(count)))
