"""`regen.step`: the whole step under a plan is the plain step, bit for bit and within the budget, whatever happens around it.

Six models run by default; REGEN_EXHAUSTIVE=1 runs all of examples/models."""

import copy
import functools
import gc
import os

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regen
from deep_models import build_deep
from examples.models import names
from regen import _runtime
from regen._check import same_bits

MODELS = names() if os.environ.get("REGEN_EXHAUSTIVE") == "1" else ["resnet50", "denoising_autoencoder", "vit", "lstm", "moe", "in_place"]
LINKS = {"recompute": ("checkmate", None), "swap": ("vdnn", (1e12, 1e12, 2e12)), "both": ("vdnn", (1e8, 1e8, 2e8))}
make_step = functools.partial(regen.step, work_limit=20_000, debug=True)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, dampening=0.1)


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


class Net(nn.Module):
    def __init__(self, width=16, depth=4):
        super().__init__()
        self.table = nn.Embedding(10, width)
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.Tanh(), nn.Dropout(0.1)) for _ in range(depth)))
        self.last = nn.Linear(width, 4)

    def forward(self, index):
        return self.last(self.layers(self.table(index)))


def batch(n=64, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(10, (n,), generator=generator), torch.randint(4, (n,), generator=generator)


class Pair:
    """The same model and optimizer twice: trained plainly, and by a planned step."""

    def __init__(self, optimizer=sgd, budget=0.8, **options):
        torch.manual_seed(0)
        self.plain = Net()
        self.planned = copy.deepcopy(self.plain)
        self.optimizers = [optimizer(self.plain), optimizer(self.planned)]
        self.step = make_step(self.planned, F.cross_entropy, self.optimizers[1], batch(), budget, **{"planner": "checkmate", **options})

    def each(self, change):
        for model, optimizer in zip((self.plain, self.planned), self.optimizers):
            change(model, optimizer)

    def train(self, *sizes):
        for number, n in enumerate(sizes or (64, 64)):
            args = batch(n, seed=number)
            torch.manual_seed(number)
            expected = plain_step(self.plain, F.cross_entropy, self.optimizers[0], args)
            torch.manual_seed(number)
            assert same_bits(expected, self.step(*args)), f"loss of step {number}"
        self.compare()

    def compare(self):
        assert_same_training(self.plain, self.optimizers[0], self.planned, self.optimizers[1])


def plain_step(model, loss_fn, optimizer, args):
    optimizer.zero_grad()
    loss = loss_fn(model(*args[:-1]), args[-1])
    loss.backward()
    optimizer.step()
    return loss.detach()


def assert_same_training(plain, plain_optimizer, planned, optimizer):
    for name, tensor in plain.state_dict().items():
        assert same_bits(tensor, planned.state_dict()[name]), name
    for (name, mine), other in zip(plain.named_parameters(), planned.parameters()):
        for key, tensor in plain_optimizer.state[mine].items():
            if isinstance(tensor, torch.Tensor):
                assert same_bits(tensor, optimizer.state[other][key]), f"{key} of {name}"


def in_use():
    gc.collect()
    return _runtime.memory_use("cpu")["allocated"]


# The promise.

@pytest.mark.parametrize("name", MODELS)
def test_steps_are_the_same_and_within_the_budget(name):
    kind = list(LINKS)[MODELS.index(name) % 3]
    make_optimizer = (sgd, adamw)[MODELS.index(name) % 2]
    model, args, loss_fn = build_deep(name)
    plain, state = copy.deepcopy(model), torch.Generator().manual_seed(0).get_state()
    base = in_use() - sum(t.nbytes for t in [*model.parameters(), *model.buffers(), *args])
    optimizer, plain_optimizer = make_optimizer(model), make_optimizer(plain)
    planner, link = LINKS[kind]
    step = whole_step(model, loss_fn, optimizer, args, planner, link)
    torch.set_rng_state(state)
    _runtime.reset_memory_peak("cpu")
    found = [step(*args).item() for _ in range(3)]  # a number holds no memory of the device
    measured = _runtime.memory_use("cpu")["allocated_peak"] - base
    left = torch.get_rng_state()
    torch.set_rng_state(state)
    assert found == [plain_step(plain, loss_fn, plain_optimizer, args).item() for _ in range(3)]
    assert torch.equal(left, torch.get_rng_state()), "generator state"
    assert_same_training(plain, plain_optimizer, model, optimizer)
    report = step.active.session.report
    assert report.recomputed > 0 or report.offloaded_bytes > 0 or name in MODELS[6:]
    assert measured <= step.active.session.budget
    assert report.peak_bytes == pytest.approx(measured, rel=0.02)
    assert step.plan.measured_peak == pytest.approx(measured, rel=0.02) and step.plan.measured_peak <= step.active.session.budget


def whole_step(model, loss_fn, optimizer, args, planner, link):
    """At 70 % of the unplanned memory, or the least that works."""
    options = dict(planner=planner, link=link, cache=False)
    try:
        return make_step(model, loss_fn, optimizer, args, 0.7, **options)
    except regen.BudgetError as error:
        return make_step(model, loss_fn, optimizer, args, least_of(error), **options)


def least_of(error):
    return int(str(error).split("found to work is ")[1].split(" bytes")[0].replace(",", ""))


# What happens around it.

@pytest.mark.parametrize("optimizer", [sgd, adamw])
def test_shapes_and_modes_are_planned_on_first_sight(optimizer):
    pair = Pair(optimizer)
    pair.train(64, 64, 17, 64)
    levels = pair.step.sized.levels()
    assert [level.sizes for level in levels] == [(64,)] and levels[0].entry.session.compiled and not pair.step.shapes
    pair.each(lambda model, _: model.layers[1].eval())
    pair.train()
    assert len(pair.step.shapes) == 1 and not levels[0].entry.session.compiled
    pair.each(lambda model, _: model.table.requires_grad_(False))
    pair.train()


@pytest.mark.parametrize("optimizer", [sgd, adamw])
def test_storage_that_changes(optimizer):
    """Parameters, buffers and optimizer state in other memory than they were captured in."""
    pair = Pair(optimizer)
    pair.train()

    def move(model, optimizer):
        model.last.weight.data = model.last.weight.data * 2
        model.layers[0][1].running_mean = torch.zeros_like(model.layers[0][1].running_mean)
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    pair.each(move)
    pair.train()


def test_a_checkpoint_loaded_before_the_first_step():
    trained = Pair()
    trained.train()
    state = [copy.deepcopy(x.state_dict()) for x in (trained.plain, trained.optimizers[0])]
    pair = Pair()
    pair.each(lambda model, optimizer: (model.load_state_dict(state[0]), optimizer.load_state_dict(copy.deepcopy(state[1]))))
    pair.train()


def test_a_refused_step_leaves_the_optimizer_as_it_was():
    model = Net()
    optimizer = sgd(model)
    with pytest.raises(regen.BudgetError):
        make_step(model, F.cross_entropy, optimizer, batch(), "1000")
    assert not any(optimizer.state.values())


def test_another_shape_in_the_first_step():
    """What the first capture made is not taken for the state of an optimizer that has made steps."""
    Pair().train(17, 64)


def test_state_that_is_gone_is_said():
    pair = Pair()
    pair.optimizers[1].load_state_dict(sgd(Net()).state_dict())
    with pytest.raises(RuntimeError, match="the optimizer has no 'momentum_buffer'") as error:
        pair.step(*batch())
    assert "\n" not in str(error.value)


def test_a_momentum_that_is_none_begins_again():
    """As torch itself keeps a momentum that has not begun."""
    pair = Pair()
    pair.train()
    pair.each(lambda model, optimizer: optimizer.state[model.last.weight].update(momentum_buffer=None))
    pair.train()


def test_another_parameter_is_refused():
    pair = Pair()
    pair.planned.last.weight = nn.Parameter(pair.planned.last.weight.detach().clone())
    with pytest.raises(RuntimeError, match="'last.weight' was replaced by another; expected the one that the optimizer"):
        pair.step(*batch())


def test_another_shape_of_a_parameter_is_refused():
    pair = Pair()
    pair.planned.last.weight.data = torch.zeros(8, 8)  # as many bytes as before
    with pytest.raises(RuntimeError, match=r"'last.weight' is now .*\(8, 8\).*; expected .*\(4, 16\)"):
        pair.step(*batch())


def test_an_operator_that_fails():
    pair = Pair()
    pair.train()
    index, y = batch()
    before = in_use()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="index out of range"):
            pair.step(index + 5, y)
    assert in_use() == before
    pair.planned.load_state_dict(pair.plain.state_dict())  # batch norm may have seen the batch that failed
    pair.train()


def test_a_plan_from_a_file(tmp_path):
    pair = Pair()
    path = tmp_path / "plan.json"
    pair.step.save_plan(path)
    again = Pair(plan_file=path, budget=1.0)
    assert again.step.plan.predicted_peak == pair.step.plan.predicted_peak
    assert again.step.active.session.report.recomputed > 0
    again.train()
    with pytest.raises(regen.RegenError, match="another graph"):
        Pair(adamw, plan_file=path, budget=1.0)
    with pytest.raises(regen.BudgetError, match="the plan in .* needs .*expected at most the budget of 10,000"):
        Pair(plan_file=path, budget=10_000)


def test_the_report():
    pair = Pair()
    assert "predicted" in str(pair.step.plan) and "measured" not in str(pair.step.plan)
    pair.train(64)
    text = str(pair.step.plan)
    assert text.count("measured") == 2 and text.count("predicted") == 2
    assert pair.step.plan.measured_seconds > 0
    assert pair.step.plan.predicted_peak == pytest.approx(pair.step.plan.measured_peak, rel=0.02)
    peak = pair.step.plan.measured_peak
    hog = torch.zeros(1 << 20)  # the caller's own business
    pair.train(64)
    del hog
    assert pair.step.plan.measured_peak == peak
    pair.train(17)  # another plan, of which nothing was known
    assert pair.step.plan.measured_peak < peak


def test_two_devices():
    model = Net()
    model.last.to("meta")
    with pytest.raises(regen.CaptureError, match="expected a model on one device"):
        make_step(model, F.cross_entropy, sgd(model), batch(), 0.8)
