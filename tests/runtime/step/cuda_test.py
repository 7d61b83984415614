"""All models of examples/models on a GPU, bit for bit, under plans that recompute and plans that move."""

import copy
import re

import pytest
import torch

import regen
from deep_models import BATCHES
from examples.models import build, names
from regen._check import one_step, same_bits

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

PLANNERS = {"recompute": {"planner": "checkmate", "time_limit": 0.5}, "move": {"planner": "vdnn", "link": (1e12, 1e12, 2e12)}}

# What cannot be captured on a GPU is said so.
REFUSED = {"lstm_bidirectional": "cuDNN draws from a state of its own"}


@pytest.fixture(autouse=True)
def deterministic_kernels():
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def made(name):
    model, args, _ = build(name, batch=BATCHES.get(name), device="cuda")
    return model.train(), args[:-1]


def repeats_itself(name):
    """Some kernels do not give the same bits twice, also in plain PyTorch."""
    first, second = (one_step(*made(name), {}, seed=0) for _ in range(2))
    return all(same_bits(first[key], second[key]) for key in first)


@pytest.mark.parametrize("kind", PLANNERS)
@pytest.mark.parametrize("name", names())
def test_a_step_has_the_bits_of_plain_pytorch(name, kind):
    if not repeats_itself(name):
        pytest.skip("plain PyTorch does not repeat itself")
    model, args = made(name)
    settings = dict(cache=False, debug=True, reserve=0, **PLANNERS[kind])
    if name in REFUSED:
        with pytest.raises(regen.CaptureError, match=REFUSED[name]):
            regen.check(model, args, 0.6, **settings)
        return
    try:
        regen.check(model, args, 0.6, **settings)
    except regen.BudgetError as error:  # parameters outweigh the rest
        least = re.search(r"least budget found to work is ([0-9,]+) bytes", str(error))
        regen.check(model, args, int(least[1].replace(",", "")), **settings)


class Convolutions(torch.nn.Module):
    """In the default layout, where cuDNN's fast algorithms take workspaces that outweigh everything else."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Conv2d(64, 64, 3, padding=1) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def convolutions(**options):
    torch.manual_seed(1)
    x = torch.randn(64, 64, 56, 56, device="cuda")
    model = Convolutions().cuda()
    return model, x, dict(reserve=0, time_limit=5, cache=False, **options)


def test_a_plan_with_other_algorithms_fits_where_the_default_ones_do_not():
    model, x, options = convolutions()
    expected = one_step(copy.deepcopy(model), (x,), {}, seed=0)
    default = regen.will_it_fit(model, (x,), "130GiB", **options)
    small = regen.will_it_fit(model, (x,), "130GiB", algorithms="any", **options)
    if small.least_budget >= default.least_budget:
        pytest.skip("no convolution here takes less workspace when it is refused some")
    wrapped = regen.wrap(copy.deepcopy(model), (x,), (small.least_budget + default.least_budget) // 2, algorithms="any", debug=True, **options)
    for _ in range(2):
        found = one_step(wrapped, (x,), {}, seed=0)
        for name in expected:
            assert torch.allclose(found[name].float(), expected[name].float(), rtol=0.02, atol=0.02 * float(expected[name].float().abs().max())), name
    session = wrapped.regen.plan.session
    assert session.report.other_algorithms > 0
    assert session.memory().unforeseen == 0
    again = one_step(wrapped, (x,), {}, seed=0)
    assert all(same_bits(again[name], found[name]) for name in found)


def test_choices_of_one_plan_reach_neither_plain_pytorch_nor_other_plans():
    model, x, options = convolutions()
    expected = one_step(copy.deepcopy(model), (x,), {}, seed=0)
    small = regen.will_it_fit(model, (x,), "130GiB", algorithms="any", **options)
    wrapped = regen.wrap(copy.deepcopy(model), (x,), small.least_budget, algorithms="any", **options)
    one_step(wrapped, (x,), {}, seed=0)
    wrapped.regen.release()
    plain = one_step(copy.deepcopy(model), (x,), {}, seed=0)
    assert all(same_bits(plain[name], expected[name]) for name in expected)
    default = regen.wrap(copy.deepcopy(model), (x,), "130GiB", **options)
    found = one_step(default, (x,), {}, seed=0)
    assert all(same_bits(found[name], expected[name]) for name in expected)
    assert default.regen.plan.session.memory().unforeseen == 0


def test_benchmark_mode_and_any_algorithm_exclude_each_other(monkeypatch):
    model, x, options = convolutions(algorithms="any")
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    with pytest.raises(regen.RegenError, match="cudnn.benchmark is on"):
        regen.wrap(model, (x,), "130GiB", **options)


def trained(step, model, batches, change):
    """Parameters and losses after steps over other batches each time; `change(number)` comes before each."""
    losses = []
    for number, batch in enumerate(batches):
        change(number)
        losses.append(step(*batch).detach().clone())
    torch.cuda.synchronize()
    return [*losses, *(p.detach().clone() for p in model.parameters()), *(b.detach().clone() for b in model.buffers())]


@pytest.mark.parametrize("changes", ["inputs", "rate", "weights"])
@pytest.mark.parametrize("name", ["resnet18", "gpt2_dropout", "vgg16"])
def test_stretches_launched_as_a_whole_have_the_same_bits(name, changes):
    """Twelve steps, long after stretches are captured, with other memory for the batch each time, and a learning rate or
    the memory of the weights that changes in between."""
    runs, captured = [], 0
    for planned in (False, True):
        torch.manual_seed(0)
        model, args, loss = build(name, batch=BATCHES.get(name), device="cuda")
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        batches = [tuple(a.clone() for a in args) for _ in range(12)]

        def change(number, model=model, optimizer=optimizer):
            if changes == "rate" and number in (6, 7):
                optimizer.param_groups[0]["lr"] *= 0.5
            if changes == "weights" and number == 6:
                for parameter in model.parameters():
                    parameter.data = parameter.data.clone()

        def plain(*batch, model=model, optimizer=optimizer, loss=loss):
            optimizer.zero_grad(set_to_none=True)
            value = loss(model(*batch[:-1]), batch[-1])
            value.backward()
            optimizer.step()
            return value

        step = regen.step(model, loss, optimizer, args, budget=1.0, cuda_graphs=True, cache=False, improve=False) if planned else None
        torch.manual_seed(1)
        runs.append(trained(step or plain, model, batches, change))
        captured = step.plan.session.memory().captured if step else 0
    assert captured > 0
    assert all(same_bits(a, b) for a, b in zip(*runs))
