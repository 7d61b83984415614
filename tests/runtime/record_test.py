"""What operators are measured with: indices as the step would have them, since times depend on where kernels gather from."""

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
