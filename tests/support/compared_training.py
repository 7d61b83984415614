"""Training under a plan beside plain training, step by step: what each step leaves behind, and budgets to try."""

import copy

import torch

import regen
from regen._check import same_bits

OPTIONS = {"work_limit": 20_000, "improve": False}
RESERVE = 1 << 20


def left_behind(model, loss):
    state = {"loss": loss.detach().clone(), "generator": torch.get_rng_state()}
    return state | {n: t.detach().clone() for n, t in [*model.named_parameters(), *model.named_buffers()]}


def train_by_passes(model, data, optimizer, left=left_behind):
    found = []
    for batch in data:
        optimizer.zero_grad()
        loss = model(*batch)
        loss.backward()
        gradients = {f"gradient of {n}": p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        found.append({**left(model, loss), **gradients})
    return found


def assert_same(ours, theirs, all_keys=True):
    for step, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        assert mine.keys() == other.keys() or not all_keys
        for name in mine:
            assert same_bits(mine[name], other[name]), f"step {step}: {name} differs"


def budget_at(fraction, model, args):
    fit = regen.will_it_fit(copy.deepcopy(model), args, 1 << 40, reserve=RESERVE, work_limit=20_000)
    least = fit.least_budget or fit.unplanned
    return int(least + fraction * max(0, fit.unplanned - least))


def step_within(fraction, model, optimizer, args):
    """A step under the smallest of some budgets that works."""
    for budget in (fraction, 0.9, 0.95, 1.0):
        try:
            return regen.step(model, None, optimizer, args, budget, **OPTIONS)
        except regen.BudgetError:
            continue
    raise AssertionError("no budget works")
