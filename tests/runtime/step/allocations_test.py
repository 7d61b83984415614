"""Operators that allocate otherwise than when they were recorded: a library's heuristics, or contents, decide anew. The step goes on
while the bytes are there, with plain PyTorch's bits, and never over the budget.
"""

import copy

import pytest
import torch
from torch import nn

import regen

KIB = 1 << 10
RESERVE = 256 * KIB  # for what the caller of a wrapped module holds
STEPS = 3
OPTIONS = dict(work_limit=20_000, improve=False, cache=False)


class Scratch:
    """What `regen_test::moody` allocates beside its result: bytes before and after it."""

    before: int = 0
    after: int = 0


def touched(size):
    return torch.full((size,), 0x5A, dtype=torch.uint8) if size else None


@torch.library.custom_op("regen_test::moody", mutates_args=())
def moody(x: torch.Tensor) -> torch.Tensor:
    """2 x, with scratch memory that is written to."""
    first = touched(Scratch.before)
    result = x * 2
    last = touched(Scratch.after)
    del first, last
    return result


@moody.register_fake
def _(x):
    return torch.empty_like(x)


moody.register_autograd(lambda ctx, gradient: gradient * 2)


class Net(nn.Module):
    """Dropout before and after, so that generators matter when a step begins anew."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(12))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            x = self.drop(torch.tanh(layer(x)))
            if index == 5:
                x = moody(x)
        return x.square().mean()


class NetWithState(Net):
    """Buffers that the forward pass changes before it comes to the operator whose allocations differ: by batch norm, and by hand."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.register_buffer("passes", torch.zeros(2))

    def forward(self, x):
        x = self.norm(x)
        self.passes += x.detach().mean()
        return super().forward(x)


def batch(step):
    return torch.randn(128, 64, generator=torch.Generator().manual_seed(step))


def changed_by_training(model):
    return [*model.parameters(), *model.buffers()]


def allocate(before=0, after=0):
    Scratch.before, Scratch.after = before, after


@pytest.fixture
def start():
    torch.manual_seed(0)
    allocate()
    yield Net()
    allocate()


def plain_training(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1)
    losses = []
    for number in range(STEPS):
        optimizer.zero_grad()
        loss = model(batch(number))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, torch.get_rng_state()


class ByStep:
    """Training by `regen.step`."""

    reserve = 0

    def __init__(self, model, budget):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.step = regen.step(model, None, optimizer, (batch(0),), budget=budget, **OPTIONS)
        self.session = self.step.active.session

    def __call__(self, number):
        return self.step(batch(number))


class ByWrap:
    """Training by `regen.wrap`."""

    reserve = RESERVE

    def __init__(self, model, budget):
        self.model = regen.wrap(model, (batch(0),), budget=budget, reserve=RESERVE, **OPTIONS)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.session = self.model.regen.active.session

    def __call__(self, number):
        self.optimizer.zero_grad()
        loss = self.model(batch(number))
        loss.backward()
        self.optimizer.step()
        return loss.detach()


RECORDED_AND_NOW = [
    ({}, {"before": 1 << 20}),  # far more than the reserve
    ({}, {"after": 1 << 20}),
    ({}, {"before": 300, "after": 500}),  # what the reserve serves
    ({"before": 1 << 20}, {}),  # the result comes where scratch was expected
    ({"before": 300 * KIB}, {"before": 200 * KIB}),
    ({"before": 128 * 64 * 4}, {"after": 128 * 64 * 4}),  # of the result's own size
    ({"before": 300 * KIB}, {"before": 300 * KIB, "after": 900 * KIB}),
]


def unforeseen(recorded, now):
    """Bytes of the requests that are of no recorded size."""
    return sum(size for size in now.values() if size not in recorded.values())


@pytest.mark.parametrize("kind", [ByStep, ByWrap])
@pytest.mark.parametrize("now", [{"before": 1 << 20}, {"after": 1 << 20}])
def test_a_step_that_begins_anew_changes_buffers_once(now, kind):
    torch.manual_seed(0)
    allocate()
    start = NetWithState()
    plain = copy.deepcopy(start)
    losses, generator = plain_training(plain)
    trained = kind(start, full_budget(kind, start, {}, now))
    allocate(**now)
    torch.manual_seed(1)
    found = [trained(number) for number in range(STEPS)]
    assert start.norm.num_batches_tracked == STEPS
    assert all(torch.equal(a, b) for a, b in zip(losses, found, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(changed_by_training(plain), changed_by_training(start), strict=True))
    assert torch.equal(generator, torch.get_rng_state())
    assert trained.session.memory().unforeseen == 0, "the operator's memory is a part of a new plan"


def full_budget(kind, model, recorded, now):
    """What keeping everything takes as recorded, and a little less than what comes on top: the first plan has no room for it, another one has."""
    return kind(copy.deepcopy(model), "64MiB").session.predicted_peak + max(0, unforeseen(recorded, now) - 16 * KIB)


@pytest.mark.parametrize("kind", [ByStep, ByWrap])
@pytest.mark.parametrize("room", [True, False], ids=["room", "full"])
@pytest.mark.parametrize("recorded, now", RECORDED_AND_NOW)
def test_other_allocations_change_no_bit(start, recorded, now, room, kind):
    plain = copy.deepcopy(start)
    losses, generator = plain_training(plain)
    allocate(**recorded)
    budget = 64 << 20 if room else full_budget(kind, start, recorded, now)
    trained = kind(start, budget)
    allocate(**now)
    torch.manual_seed(1)
    found = [trained(number) for number in range(STEPS)]
    assert all(torch.equal(a, b) for a, b in zip(losses, found, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), start.parameters(), strict=True))
    assert torch.equal(generator, torch.get_rng_state())
    assert trained.session.predicted_peak <= budget
    if unforeseen(recorded, now) > RESERVE:
        assert (trained.session.memory().unforeseen > 0) == room, "beside the plan, or a part of it"


@pytest.mark.parametrize("kind", [ByStep, ByWrap])
@pytest.mark.parametrize("model", [Net, NetWithState])
def test_what_no_plan_has_room_for_is_named_and_changes_nothing(model, kind):
    torch.manual_seed(0)
    allocate()
    start = model()
    trained = kind(start, full_budget(kind, start, {}, {}))
    before, generator = copy.deepcopy(start.state_dict()), torch.get_rng_state()
    allocate(before=8 << 20)
    with pytest.raises(regen.BudgetError, match=r"'moody' asks for 8.00 MiB more than when it was recorded; .*no plan fits"):
        trained(0)
    assert all(torch.equal(before[key], value) for key, value in start.state_dict().items())
    assert torch.equal(generator, torch.get_rng_state())
    allocate()
    assert all(torch.isfinite(trained(number)) for number in range(STEPS))
