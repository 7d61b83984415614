"""What the graph of a step says: times with indices as the step would have them, and what may run again."""

import json

import torch
from torch import nn
from torch.nn import functional as F

import regen

seen = []


@torch.library.custom_op("regen_test::watched", mutates_args=())
def watched(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    seen.append(indices.detach().clone())
    return x.clone()


@watched.register_fake
def _(x, indices):
    return torch.empty_like(x)


watched.register_autograd(lambda context, gradient: (gradient, None))


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        pooled, indices = F.max_pool2d(x * self.scale, 2, return_indices=True)
        return watched(pooled, indices)


def test_indices_are_those_of_the_node_that_makes_them():
    x = torch.rand(2, 3, 8, 8)
    seen.clear()
    regen.wrap(Pooled(), (x,), 1.0, cache=False, reserve=0)
    measured = [indices for indices in seen if type(indices) is torch.Tensor]
    assert measured and all(indices.shape == (2, 3, 4, 4) for indices in measured)
    for indices in measured:
        assert indices.min() >= 0 and indices.max() < 64
        # Each of sixteen windows has its maximum inside itself.
        rows, columns = indices // 8, indices % 8
        window = torch.arange(4)
        assert torch.equal(rows // 2, window[:, None].expand(2, 3, 4, 4))
        assert torch.equal(columns // 2, window.expand(2, 3, 4, 4))


class Normalized(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())))

    def forward(self, x):
        return self.layers(x).mean()


def test_batch_norm_can_run_again_after_its_statistics_were_written():
    wrapped = regen.wrap(Normalized(), (torch.rand(2, 4, 8, 8),), 1.0, cache=False, reserve=0)
    graph = json.loads(wrapped.regen.active.session.graph_json())
    names = [tensor["name"] for tensor in graph["tensors"]]
    norms = [op for op in graph["ops"] if "batch_norm" in op["type"] and op.get("phase", "forward") == "forward"]
    assert len(norms) == 3 and all(op.get("recomputable", True) for op in norms)
    for op in norms:
        assert not [names[t] for t in op["inputs"] if "running" in names[t]]
    writers = [op for op in graph["ops"] if "copy" in op["type"]]
    assert len(writers) == 2  # statistics in one call, counts of batches in another
