"""`regen.wrap(model, budget=...)`: the first training pass is the sample."""

import copy
import inspect
import pickle

import pytest
import torch
from torch.nn import functional as F

import regen
from regen import _runtime
from small_training import Heads, Net, assert_same, batch, make, train, wrap


def lazy(kind=Net, budget=0.8, **options):
    plain = make(kind)
    return plain, wrap(copy.deepcopy(plain), budget=budget, **options)


def test_the_first_training_pass_is_the_sample():
    """Evaluation before it plans nothing; random numbers are those of plain training from the first draw on."""
    plain, wrapped = lazy()
    for model in (plain, wrapped):
        with torch.no_grad():
            model(batch()[0])
    assert str(wrapped.regen.plan).startswith("no plan is in use: no step has been planned yet") and not wrapped.regen.shapes
    with pytest.raises(regen.UsageError, match="no plan is in use, expected a step that succeeds first"):
        wrapped.regen.plan.explain()
    for model in (plain, wrapped):
        model.load_state_dict(make().state_dict())
    expected, found = (train(model, torch.optim.AdamW(model.parameters(), lr=0.1)) for model in (plain, wrapped))
    assert torch.equal(expected[0], found[0]) and torch.equal(expected[1], found[1])
    assert_same(plain, wrapped)
    assert len(wrapped.regen.shapes) == 1 and "predicted" in str(wrapped.regen.plan)


def test_autocast_is_what_is_entered_at_the_first_pass():
    plain, wrapped = lazy()
    for model in (plain, wrapped):
        torch.manual_seed(0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            F.cross_entropy(model(batch()[0]), batch()[1]).backward()
    assert len(wrapped.regen.shapes) == 1
    assert_same(plain, wrapped)


def test_a_sample_of_keyword_arguments_alone_is_a_sample():
    plain = make(Heads)
    wrapped = wrap(copy.deepcopy(plain), budget=0.9, kwargs={"x": batch()[0], "scale": 2.0})
    assert len(wrapped.regen.shapes) == 1
    for model in (plain, wrapped):
        model(x=batch()[0], scale=2.0)["a"].sum().backward()
    assert_same(plain, wrapped)


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_wrapped_module_keeps_signature_type_and_copies(duplicate, planned):
    plain, wrapped = lazy()
    if planned:
        wrapped(batch()[0]).sum().backward()
        wrapped.zero_grad()
        wrapped.load_state_dict(plain.state_dict())
    twin = duplicate(wrapped)
    for model in (wrapped, twin):
        assert isinstance(model, Net) and isinstance(model, regen.WrappedModule)
        assert inspect.signature(model.forward) == inspect.signature(plain.forward)
        assert inspect.signature(type(model).forward) == inspect.signature(Net.forward)
        assert type(model).__name__ == "Net" and list(model.state_dict()) == list(plain.state_dict())
    assert twin.regen.options == wrapped.regen.options and not twin.regen.shapes
    expected = train(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    found = train(twin, torch.optim.SGD(twin.parameters(), lr=0.1))
    assert torch.equal(expected[0], found[0])
    assert_same(plain, twin)


@pytest.mark.parametrize("budget, message", [
    (None, "budget=None; expected bytes"), ("lots", "lots"), (1, "budget=1; expected"), (float("nan"), "expected bytes"), ([1], "expected bytes")])
def test_a_budget_that_is_none_is_refused_at_once(budget, message):
    with pytest.raises(regen.Error, match=message) as error:
        regen.wrap(make(), budget=budget)
    assert "\n" not in str(error.value)


def test_a_budget_that_cannot_be_kept_is_refused_at_the_first_batch():
    _, wrapped = lazy(budget="20KiB", planner="checkmate")
    before = [p.clone() for p in wrapped.parameters()]
    state = torch.get_rng_state()
    for _ in range(2):
        with pytest.raises(regen.BudgetError, match="no plan fits"):
            wrapped(batch()[0])
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) and b.grad is None for a, b in zip(before, wrapped.parameters()))
    assert torch.equal(wrapped.eval()(batch()[0]), make().eval()(batch()[0]))


def test_what_is_no_module_is_refused():
    with pytest.raises(regen.CaptureError, match="not a torch.nn.Module"):
        regen.wrap(lambda x: x, budget=0.5)  # pyright: ignore[reportArgumentType]


def test_a_step_without_a_sample_leaves_no_memory_behind():
    _, wrapped = lazy(budget=0.9, reserve=10_000)
    train(wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1), steps=1)
    wrapped.zero_grad()
    before = _runtime.memory_use("cpu")["allocated"]
    train(wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1))
    wrapped.zero_grad()
    assert _runtime.memory_use("cpu")["allocated"] == before
