"""All models of examples/models on a GPU, bit for bit, under plans that recompute and plans that move."""

import re

import pytest
import torch

import regen
from deep_models import BATCHES
from examples.models import build, names
from regen.check import one_step, same_bits

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

PLANNERS = {"recompute": {"planner": "checkmate", "time_limit": 0.5}, "move": {"planner": "vdnn", "link": (1e12, 1e12, 2e12)}}


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
    try:
        regen.check(model, args, 0.6, **settings)
    except regen.BudgetError as error:  # parameters outweigh the rest
        least = re.search(r"least budget found to work is ([0-9,]+) bytes", str(error))
        regen.check(model, args, int(least[1].replace(",", "")), **settings)
