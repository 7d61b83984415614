"""All models of examples/models on a GPU, bit for bit, under plans that recompute and plans that move."""

import copy
import re

import pytest
import torch

import regen
from deep_models import BATCHES
from examples.models import build, names
from regen.check import one_step, same_bits

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
    """Some kernels do not give the same bits twice, whoever calls them."""
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
    runner = wrapped.regen.plan.runner
    assert runner.report["other_algorithms"] > 0
    assert runner.step.memory()["deviations"] == 0
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
    assert default.regen.plan.runner.step.memory()["deviations"] == 0


def test_benchmark_mode_and_any_algorithm_exclude_each_other(monkeypatch):
    model, x, options = convolutions(algorithms="any")
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    with pytest.raises(regen.RegenError, match="cudnn.benchmark is on"):
        regen.wrap(model, (x,), "130GiB", **options)
