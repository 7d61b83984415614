"""Budgets, what the caller holds beside them, plans that are kept, and what is said about them."""

import copy
import json
import pathlib

import pytest
import torch
from torch.nn import functional as F

import regen
from regen import _runtime
from small_training import assert_same, batch, check, in_use, make, pair, train, will_it_fit, wrap

LINK = (50e9, 50e9, 93e9)


# Budgets.

def test_a_budget_below_the_fixed_bytes():
    with pytest.raises(regen.BudgetError, match=r"no plan fits into 1,000 bytes: .* needs at least .* least budget found to work is"):
        pair(budget="1000")


@pytest.mark.parametrize("budget", ["6GiB", 0.9, "auto", 16e9, "500MB"])
def test_budgets_as_people_write_them(budget):
    plain, wrapped = pair(budget=budget)
    for model in (plain, wrapped):
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert_same(plain, wrapped)


@pytest.mark.parametrize("budget, error", [("6 apples", Exception), (-1, ValueError), (True, TypeError), (None, TypeError), (0, ValueError)])
def test_budgets_that_are_none(budget, error):
    with pytest.raises(error):
        pair(budget=budget)


def test_nothing_is_moved_without_room_on_the_host():
    plain, wrapped = pair(budget=0.7, host_budget=0, link=LINK, planner="auto")
    train(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    train(wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1))
    assert_same(plain, wrapped)
    assert "moved       0 B to the host and back" in str(wrapped.regen.plan) and "recomputed  0 ops" not in str(wrapped.regen.plan)
    _, moving = pair(budget=0.7, link=LINK, planner="auto")
    assert "moved       0 B" not in str(moving.regen.plan)


# What the caller holds.

def whole_step_peaks(wrapped, optimizer, base, steps=5):
    """Peaks since the plan in use was made, at the ends of whole steps, loss and optimizer included."""
    peaks, planned = [], []
    for step in range(steps):
        x, y = batch(seed=step)
        optimizer.zero_grad()
        loss = F.cross_entropy(wrapped(x), y)
        loss.backward()
        optimizer.step()
        peaks.append(_runtime.memory_use("cpu")["allocated_peak"] - base)
        planned.append(wrapped.regen.active.session.report.peak_bytes)
    return peaks, planned


@pytest.mark.parametrize("optimizer", [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.AdamW(p, foreach=True), lambda p: torch.optim.AdamW(p, fused=True)])
def test_what_the_caller_holds_is_measured(optimizer):
    model = make()
    x = batch()[0]
    fit = will_it_fit(model, (x,), 0.95, planner="checkmate")
    extra = 3 * sum(p.nbytes for p in model.parameters())
    wrapped = wrap(model, (x,), int(fit.least_budget * 1.02) + extra, planner="checkmate")
    base = in_use() - wrapped.regen.active.present_bytes()
    peaks, planned = whole_step_peaks(wrapped, optimizer(wrapped.parameters()), base)
    budget = wrapped.regen.active.session.gross_budget
    assert all(peak <= budget for peak in peaks[1:])
    assert len(set(planned[1:])) == 1  # planned again before the second step at most
    assert wrapped.regen.caller.bytes > 0
    assert wrapped.regen.plan.predicted_peak <= budget
    assert wrapped.regen.plan.predicted_peak == pytest.approx(max(peaks[1:]), rel=0.02)


def test_a_reserve_that_is_given_holds_from_the_first_step():
    model = make()
    x = batch()[0]
    extra = 3 * sum(p.nbytes for p in model.parameters())
    fit = will_it_fit(model, (x,), 0.95, reserve=extra, planner="checkmate")
    wrapped = wrap(model, (x,), fit.least_budget, planner="checkmate", reserve=extra)
    base = in_use() - wrapped.regen.active.present_bytes()
    peaks, planned = whole_step_peaks(wrapped, torch.optim.AdamW(wrapped.parameters(), fused=True), base)
    assert max(peaks) <= fit.least_budget and len(set(planned)) == 1


def test_a_caller_that_needs_too_much_is_told():
    fit = will_it_fit(make(), (batch()[0],), 0.95, planner="checkmate")
    _, wrapped = pair(budget=fit.least_budget)
    optimizer = torch.optim.AdamW(wrapped.parameters())
    with pytest.raises(regen.BudgetError, match="bytes that the caller holds"):
        train(wrapped, optimizer)


# Plans that are kept.

def test_plans_are_cached_on_disk(tmp_path):
    x = batch()[0]
    wrap(make(), (x,), 0.8, planner="checkmate", cache=tmp_path)
    plans = list(pathlib.Path(tmp_path).glob("plan-*.json"))
    assert len(plans) == 1
    stored = json.loads(plans[0].read_text())
    stored["report"]["note"] = "from the cache"
    plans[0].write_text(json.dumps(stored))
    again = wrap(make(), (x,), 0.8, planner="checkmate", cache=tmp_path)
    assert again.regen.active.session.report.note == "from the cache"
    other = wrap(make(), (x,), 0.9, planner="checkmate", cache=tmp_path)
    assert other.regen.active.session.report.note != "from the cache"


def test_damaged_plans_in_the_cache_are_made_again(tmp_path):
    x = batch()[0]
    wrap(make(), (x,), 0.8, planner="checkmate", cache=tmp_path)
    plan = next(pathlib.Path(tmp_path).glob("plan-*.json"))
    for text in ("", "{}", '{"plan": "{}", "report": {}}', "[1]", '{"plan": 3, "report": null}'):
        plan.write_text(text)
        wrapped = wrap(make(), (x,), 0.8, planner="checkmate", cache=tmp_path)
        wrapped(x).sum().backward()


def test_a_plan_from_a_file(tmp_path):
    plain, wrapped = pair(planner="checkmate")
    path = tmp_path / "plan.json"
    wrapped.regen.save_plan(path)
    again = wrap(copy.deepcopy(plain), (batch()[0],), 1.0, plan_file=path)
    assert again.regen.plan.predicted_peak == wrapped.regen.plan.predicted_peak
    for model in (plain, again):
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert_same(plain, again)
    with pytest.raises(regen.RegenError, match="another graph"):
        wrap(make(depth=4), (batch()[0],), 1.0, plan_file=path)
    with pytest.raises(regen.BudgetError, match="the plan in .* needs"):
        wrap(make(), (batch()[0],), 10_000, plan_file=path)


# What is printed.

def loss_of_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss

def test_the_report():
    _, wrapped = pair(link=LINK)
    before = str(wrapped.regen.plan)
    assert "predicted" in before and "measured" not in before
    optimizer = torch.optim.AdamW(wrapped.parameters())
    for step in range(3):  # and nothing else beside them: whatever the caller takes is counted
        loss_of_step(wrapped, optimizer, *batch(seed=step))
    text = str(wrapped.regen.plan)
    for word in ("peak", "predicted", "measured", "time", "proven at least", "no plan below", "kept", "recomputed", "moved", "budget"):
        assert word in text
    assert text.count("measured") == 2
    assert wrapped.regen.plan.measured_peak <= wrapped.regen.active.session.gross_budget
    assert wrapped.regen.plan.measured_seconds > 0
    assert "peak" in wrapped.regen.plan.explain()


def test_will_it_fit(tmp_path):
    x = batch()[0]
    model = make()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    before = in_use()
    fit = will_it_fit(model, (x,), "1GiB", cache=tmp_path)
    assert fit and str(fit).startswith("fits") and fit.least_budget < fit.unplanned < 2**30
    assert torch.equal(state, torch.get_rng_state())  # nothing was drawn
    assert all(p.grad is None for p in model.parameters()) and model.bn.num_batches_tracked == 0
    assert in_use() == before
    refused = will_it_fit(model, (x,), fit.least_budget - 1, cache=tmp_path)
    assert not refused and "least budget" in refused.message and refused.least_budget == fit.least_budget
    assert will_it_fit(model, (x,), fit.least_budget, cache=tmp_path)
    for planner in ("checkmate", "vdnn", "chain", "checkmate,vdnn"):  # which auto asks, too
        assert will_it_fit(model, (x,), "1GiB", planner=planner, cache=tmp_path).least_budget >= fit.least_budget


def test_check_passes_and_fails_loudly():
    check(make(), (batch()[0],), 0.8)
    from regen._check import compare
    with pytest.raises(regen.CheckError, match="output 0 differs"):
        compare({"output 0": torch.zeros(3)}, {"output 0": -torch.zeros(3)}, 0)
