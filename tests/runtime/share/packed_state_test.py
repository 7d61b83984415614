"""State in one arena: trainings whose state goes and comes between steps end with the bits of an undisturbed one."""

import copy
import io

import pytest
import torch
from torch.nn import functional as F

import regen
from regen import _runtime
from regen._step import TrainingStep
from regen.share import PackedState

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "adam": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
}


class Net(torch.nn.Module):
    """Buffers, dropout, tied weights and a parameter that is not contiguous."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.convolutions = torch.nn.ModuleList(torch.nn.Conv2d(8 if i else 3, 8, 3, padding=1) for i in range(4))
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(8) for _ in range(4))
        self.first = torch.nn.Linear(8, 8)
        self.second = torch.nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.mixed = torch.nn.Parameter(torch.randn(5, 8).t())

    def forward(self, x):
        for convolution, norm in zip(self.convolutions, self.norms):
            x = F.relu(norm(convolution(x)))
        return F.dropout(self.second(torch.tanh(self.first(x.mean((2, 3))))), 0.2) @ self.mixed


def batches(count):
    generator = torch.Generator().manual_seed(7)
    return [(torch.randn(8, 3, 10, 10, generator=generator), torch.randint(5, (8,), generator=generator)) for _ in range(count)]


def everything(model, optimizer):
    state = [*model.state_dict().values(), torch.get_rng_state()]
    for own in optimizer.state_dict()["state"].values():
        state += [value for _, value in sorted(own.items()) if isinstance(value, torch.Tensor)]
    return [tensor.detach().clone() for tensor in state]


def same(left, right):
    return len(left) == len(right) and all(a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b) for a, b in zip(left, right))


def plain_step(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def planned_step(model, optimizer):
    return regen.step(model, F.cross_entropy, optimizer, batches(1)[0], budget=0.8, planner="checkmate", work_limit=20_000, releasable=True)


def train(make_step, kind, between, steps=4):
    """All that a training leaves, with `between(state, step)` called after each step."""
    model = Net()
    optimizer = OPTIMIZERS[kind](model.parameters())
    step = make_step(model, optimizer)
    state = None
    torch.manual_seed(3)
    losses = []
    for x, y in batches(steps):
        losses.append(step(x, y))
        if between is not None:
            state = state or PackedState(model, optimizer)
            between(state, step)
    return [*losses, *everything(model, optimizer)]


def leave_and_come_back(state, step):
    held = _runtime.memory_use("cpu")["allocated"]
    freed = state.leave()
    assert freed == state.bytes > 2000
    assert held - _runtime.memory_use("cpu")["allocated"] >= freed
    assert state.away
    state.come_back()


def move(state, step):
    state.to("cpu")


def spill_and_leave(state, step):
    """As a job that gives way with all it has."""
    if isinstance(step, TrainingStep):
        held = _runtime.memory_use("cpu")["allocated"]
        freed = step.spill()
        assert freed > 0 and held - _runtime.memory_use("cpu")["allocated"] == freed
    state.leave()
    state.come_back()


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("make_step", [plain_step, planned_step])
@pytest.mark.parametrize("between", [leave_and_come_back, move, spill_and_leave])
def test_a_training_whose_state_moves_has_the_same_bits(kind, make_step, between):
    assert same(train(make_step, kind, between), train(make_step, kind, None))


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_planned_step_and_a_plain_one_agree_in_the_arena(kind):
    left, right = train(planned_step, kind, leave_and_come_back), train(plain_step, kind, None)
    assert same(left, right)


def test_a_step_while_the_state_is_away_is_refused_and_nothing_is_lost():
    model = Net()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    step = planned_step(model, optimizer)
    x, y = batches(1)[0]
    step(x, y)
    state = PackedState(model, optimizer)
    before = everything(model, optimizer)
    state.leave()
    with pytest.raises(RuntimeError, match="has no memory now, expected state that has come back"):
        step(x, y)
    with pytest.raises(RuntimeError, match="the memory of this tensor is away from its device"):
        model(x)
    with pytest.raises(RuntimeError):
        everything(model, optimizer)
    state.come_back()
    torch.set_rng_state(before[len(model.state_dict())])
    assert same(everything(model, optimizer), before)
    step(x, y)


@pytest.mark.parametrize("make_step", [plain_step, planned_step])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_checkpoints_are_saved_and_loaded_as_ever(make_step, kind):
    def run(packed):
        model = Net()
        optimizer = OPTIMIZERS[kind](model.parameters())
        step = make_step(model, optimizer)
        torch.manual_seed(3)
        data = batches(5)
        step(*data[0])
        state = PackedState(model, optimizer) if packed else None
        step(*data[1])
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        step(*data[2])
        saved = torch.load(io.BytesIO(file.getvalue()))
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])  # replaces its tensors
        if packed:
            arena = state.bytes
            state.leave()
            assert state.bytes == arena
            state.come_back()
        step(*data[3])
        if packed:
            state.leave()
            state.come_back()
        step(*data[4])
        return everything(model, optimizer)

    assert same(run(True), run(False))


def test_the_first_step_of_an_optimizer_makes_state_that_is_taken_in():
    model = Net()
    optimizer = OPTIMIZERS["adam"](model.parameters())
    state = PackedState(model, optimizer)
    small = state.bytes
    plain_step(model, optimizer)(*batches(1)[0])
    before = everything(model, optimizer)
    state.leave()
    assert state.bytes > 2 * small
    state.come_back()
    assert same(everything(model, optimizer), before)


def test_gradients_follow_a_move():
    model = Net()
    F.cross_entropy(model(batches(1)[0][0]), batches(1)[0][1]).backward()
    before = {name: p.grad.clone() for name, p in model.named_parameters()}
    PackedState(model).to("cpu")
    assert all(torch.equal(before[name], p.grad) for name, p in model.named_parameters())


def test_a_copy_of_a_packed_model_has_memory_of_its_own():
    model = Net()
    state = PackedState(model)
    other = copy.deepcopy(model)
    state.leave()
    assert same([other.mixed], [Net().mixed])


def test_what_cannot_be_packed_is_named():
    model = Net()
    optimizer = torch.optim.LBFGS(model.parameters())
    optimizer.state[model.mixed]["old_dirs"] = [torch.ones(2)]
    with pytest.raises(regen.RegenError, match="'state.*old_dirs' of the optimizer is of list, expected a tensor"):
        PackedState(model, optimizer)
