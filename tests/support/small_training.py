"""Small models, plain and wrapped, trained side by side: what the tests of `regen.wrap` share."""

import copy
import functools
import gc

import torch
from torch import nn
from torch.nn import functional as F

import regen
from regen import _runtime
from regen._check import same_bits

# Planners get a counted amount of work, so that they are quick and give the same plans every time.
wrap, will_it_fit, check = (functools.partial(f, work_limit=20_000) for f in (regen.wrap, regen.will_it_fit, regen.check))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    """A few residual blocks with batch norm and dropout."""

    def __init__(self, width=16, depth=3, dropout=0.1):
        super().__init__()
        self.first = nn.Linear(8, width)
        self.bn = nn.BatchNorm1d(width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(width, 4)

    def forward(self, x):
        return self.last(self.dropout(self.blocks(self.bn(self.first(x)))))


class Heads(nn.Module):
    """Several outputs; each head has parameters of its own."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(8, 16)
        self.a = nn.Linear(16, 4)
        self.b = nn.Linear(16, 3)

    def forward(self, x, scale=1.0):
        h = torch.tanh(self.trunk(x)) * scale
        return {"a": self.a(h), "pair": (self.b(h), h.detach().mean()), "size": x.shape[0]}


def make(kind=Net, seed=0, **options):
    torch.manual_seed(seed)
    return kind(**options)


def batch(n=64, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 8, generator=generator), torch.randint(4, (n,), generator=generator)


def pair(kind=Net, x=None, budget=0.8, **options):
    """The same model twice: plain, and wrapped."""
    plain = make(kind)
    x = batch()[0] if x is None else x
    return plain, wrap(copy.deepcopy(plain), (x,), budget, planner=options.pop("planner", "checkmate"), **options)


def gradients(model):
    return {n: p.grad for n, p in model.named_parameters()}


def assert_same(a, b):
    """Of models: parameters, gradients and buffers; of dictionaries: their tensors. Bit for bit."""
    if isinstance(a, nn.Module):
        assert_same(dict(a.state_dict()), dict(b.state_dict()))
        return assert_same(gradients(a), gradients(b))
    assert a.keys() == b.keys()
    for name in a:
        if a[name] is None or b[name] is None:
            assert a[name] is b[name], name
        else:
            assert same_bits(a[name], b[name]), name


def train(model, optimizer, steps=3, loss_fn=F.cross_entropy, data=batch, seed=3):
    torch.manual_seed(seed)
    for step in range(steps):
        x, y = data(seed=step)
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.detach(), torch.get_rng_state()


def in_use():
    # After an exception autograd itself keeps gradients that were under way until the next backward pass on this thread.
    torch.ones(1, requires_grad=True).sum().backward()
    gc.collect()
    return _runtime.memory_use("cpu")["allocated"]
