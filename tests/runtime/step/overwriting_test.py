"""Results in place of what an op reads last, where PyTorch would fill fresh memory before a kernel reads."""

import re

import pytest
import torch

import regen
from deep_models import BATCHES
from examples.models import build


@pytest.fixture
def filled_memory():
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", ["in_place", "depthwise_se"])
def test_the_tightest_plan_is_bitwise_equal(name, filled_memory):
    model, args, _ = build(name, batch=BATCHES.get(name))
    options = dict(cache=False, debug=True, reserve=0, work_limit=20_000)
    with pytest.raises(regen.BudgetError) as refusal:
        regen.check(model.train(), args[:-1], "1000", **options)
    least = re.search(r"least budget found to work is ([0-9,]+) bytes", str(refusal.value))
    regen.check(model, args[:-1], int(least[1].replace(",", "")), **options)
    assert torch.utils.deterministic.fill_uninitialized_memory


def test_the_report_says_how_many_ops_do():
    model, args, _ = build("in_place", batch=BATCHES.get("in_place"))
    wrapped = regen.wrap(model.train(), args[:-1], "1GiB", cache=False, reserve=0)
    assert wrapped.regen.plan.session.report.in_place > 0
    assert "in place" in str(wrapped.regen.plan)
