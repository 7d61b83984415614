"""Budgets raised from nothing until one works: every refusal is one clear line, and the budget that it names then works.

Models of six families, in turn under `wrap` and `step`; REGEN_EXHAUSTIVE=1 runs each under both."""

import copy
import functools
import os
import re

import pytest
import torch
from step_test import assert_same_training, in_use, plain_step, sgd

import regen
from deep_models import build_deep
from regen import _runtime
from regen._check import same_bits

MODELS = ["resnet50", "gpt2_medium", "lstm", "gcn", "vae", "in_place"]
BOTH = os.environ.get("REGEN_EXHAUSTIVE") == "1"
CASES = [(name, way) for i, name in enumerate(MODELS) for j, way in enumerate(("wrap", "step")) if BOTH or (i + j) % 2]
RAISES = 3
OPTIONS = dict(work_limit=20_000)
# The op, what it needs, at least one tensor with its bytes, and the way out.
MESSAGE = re.compile(
    r"no plan (fits into [\d,]+ bytes|was found): .*op \d+ '\S+' needs at least [\d,]+ bytes \([\d,]+ fixed, [\d,]+ workspace, "
    r"tensor \d+ '[^']+' \([\d,]+\).*; the least budget found to work is ([\d,]+) bytes")


def least_of(error):
    """What a refusal says to be enough; the refusal must be the clean one."""
    text = str(error)
    assert "\n" not in text and len(text) < 2000
    found = MESSAGE.match(text)
    assert found, text
    return int(found.group(2).replace(",", ""))


class Way:
    """A model that is to train under a budget, by `wrap` with an optimizer of the caller's or by `step`."""

    def __init__(self, name, way):
        self.way = way
        self.model, self.args, self.loss_fn = build_deep(name)
        self.plain = copy.deepcopy(self.model)
        self.optimizer, self.plain_optimizer = sgd(self.model), sgd(self.plain)
        self.reserve = 0

    def plan(self, budget):
        if self.way == "step":
            return regen.step(self.model, self.loss_fn, self.optimizer, self.args, budget, **OPTIONS)
        return functools.partial(plain_step, regen.wrap(
            self.model, self.args[:-1], budget, reserve=self.reserve, **OPTIONS), self.loss_fn, self.optimizer)

    def train(self, planned):
        torch.manual_seed(0)
        found = planned(*self.args) if self.way == "step" else planned(self.args)
        torch.manual_seed(0)
        assert same_bits(found, plain_step(self.plain, self.loss_fn, self.plain_optimizer, self.args))
        assert_same_training(self.plain, self.plain_optimizer, self.model, self.optimizer)


@pytest.mark.parametrize("name, way", CASES)
def test_budgets_raised_until_one_works(name, way):
    case = Way(name, way)
    before = in_use()
    least = refused_least(case)
    budget, refusals = 0, 0
    while True:
        budget = min(least, budget + least // RAISES)
        try:
            planned = case.plan(budget)
            break
        except regen.BudgetError as error:
            assert least_of(error) == least and budget < least
            refusals += 1
        assert in_use() <= before, "a refusal left memory behind"
    assert refusals >= RAISES - 1
    case.train(planned)


def refused_least(case):
    # The exception is not kept: its traceback holds what was captured.
    try:
        case.plan("2")
    except regen.BudgetError as error:
        return least_of(error)
    pytest.fail("two bytes were enough")


def test_the_least_budget_holds_while_it_runs():
    case = Way("in_place", "step")
    least = refused_least(case)
    base = in_use() - sum(t.nbytes for t in [*case.model.parameters(), *case.model.buffers(), *case.args])
    step = case.plan(least)
    _runtime.reset_memory_peak("cpu")
    step(*case.args)
    assert _runtime.memory_use("cpu")["allocated_peak"] - base <= least


def test_a_refused_budget_is_refused_again():
    """Also by a model that was planned before: the caller turned out to hold too much."""
    model, args, loss_fn = build_deep("vae")
    least = regen.will_it_fit(model, args[:-1], 0.9, **OPTIONS).least_budget
    wrapped = regen.wrap(model, args[:-1], least, **OPTIONS)
    optimizer = torch.optim.AdamW(wrapped.parameters())
    plain_step(wrapped, loss_fn, optimizer, args)
    for _ in range(3):
        with pytest.raises(regen.BudgetError, match="bytes that the caller holds"):
            plain_step(wrapped, loss_fn, optimizer, args)
