"""What a forward pass notes in attributes of its modules is as in plain PyTorch: flags, counters, what is None before the first pass.

Each model trains three steps on three batches, plain, by `wrap` and by `step`; loss, gradients, buffers and generator have plain PyTorch's bits."""

import copy

import pytest
import torch
from torch import nn

import regen
from compared_training import OPTIONS, RESERVE, assert_same, budget_at, left_behind, step_within, train_by_passes


class Base(nn.Module):
    """Two layers; subclasses say what happens between them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.second(self.between(torch.tanh(self.first(x)))).square().mean()

    def between(self, h):
        return h


class RemembersTheLast(Base):
    """An attribute is None before the first pass, and a tensor from then on."""

    def __init__(self):
        super().__init__()
        self.last = None

    def between(self, h):
        if self.last is not None:
            h = h + self.last
        self.last = h.detach().mean(0)
        return h


class StartsAnAverage(Base):
    """The same of a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("average", None)

    def between(self, h):
        mean = h.detach().mean(0)
        self.average = mean if self.average is None else 0.9 * self.average + 0.1 * mean
        return h - self.average


class WarmsUp(Base):
    """Reads a number that it counts, and sets a flag."""

    def __init__(self):
        super().__init__()
        self.passes, self.is_warm = 0, False

    def between(self, h):
        self.passes += 1
        if self.passes == 2:
            self.is_warm = True
        return h * 2 if self.is_warm else h / self.passes


class InstallsHooks(Base):
    """In its first pass, with a flag that says so: neither may be there without the other."""

    def __init__(self):
        super().__init__()
        self.installed, self.seen = False, []

    def between(self, h):
        if not self.installed:
            self.second.register_forward_pre_hook(lambda module, inputs: self.seen.append(inputs[0].shape[0]))
            self.installed = True
        before = len(self.seen)
        self.second(h)
        return h * (len(self.seen) - before)


class CountsPasses(Base):
    """Numbers that nobody reads."""

    def __init__(self):
        super().__init__()
        self.passes, self.decay = 0, 1.0

    def between(self, h):
        self.passes += 1
        self.decay = self.decay * 0.9 - 0.01
        return h


def batches():
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(32, 8, generator=generator),) for _ in range(3)]


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


@pytest.mark.parametrize("kind", [RemembersTheLast, StartsAnAverage, WarmsUp, InstallsHooks, CountsPasses])
def test_training_is_the_same(kind):
    torch.manual_seed(0)
    model, data = kind(), batches()
    plain = copy.deepcopy(model)
    theirs = train_by_passes(plain, data, sgd(plain))
    wrapped = regen.wrap(copy.deepcopy(model), data[0], budget_at(0.7, model, data[0]), reserve=RESERVE, **OPTIONS)
    assert_same(train_by_passes(wrapped, data, sgd(wrapped)), theirs)
    whole = copy.deepcopy(model)
    step = step_within(0.8, whole, sgd(whole), data[0])
    assert_same([left_behind(whole, step(*batch)) for batch in data], theirs, all_keys=False)


def test_attributes_are_as_in_plain_pytorch():
    """Numbers that are only counted with need no other capture; what the caller puts in the place of a tensor counts."""
    data = batches()
    counts, remembers = (regen.wrap(kind(), data[0], 1.0, reserve=RESERVE, **OPTIONS) for kind in (CountsPasses, RemembersTheLast))
    plain = [CountsPasses(), RemembersTheLast()]
    plain[1].load_state_dict(remembers.state_dict())
    for _ in range(3):
        for batch in data:
            counts(*batch).backward()
            plain[0](*batch)
            assert torch.equal(plain[1](*batch), remembers(*batch))
            plain[1].last = remembers.last = plain[1].last * 2
    assert (counts.passes, counts.decay) == (plain[0].passes, plain[0].decay) == (9, plain[0].decay)
    assert (len(counts.regen.shapes), len(remembers.regen.shapes)) == (1, 2)
