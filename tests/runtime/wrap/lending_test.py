"""The arena's memory between two steps: gradients in it, and room for what optimizers make. Whatever the loop keeps stays as it was."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regen
from regen import _runtime
from regen._check import same_bits
from regen._session import lending
from regen._session.lending import tensors_in
from small_training import assert_same, gradients, make, wrap


@pytest.fixture(autouse=True)
def lent_on_the_host(monkeypatch, request):
    """As on a GPU."""
    if request.node.get_closest_marker("as_on_the_host") is None:
        monkeypatch.setattr(lending, "LENDS_ON_HOST", True)


class Wide(nn.Module):
    """Parameters of some kilobytes each: their gradients and an optimizer's scratch are no small change."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))
        self.last = nn.Linear(64, 4)

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.last(x)


def batch(n=128, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 64, generator=generator), torch.randint(4, (n,), generator=generator)


def pair(budget=1.0, **options):
    plain = make(Wide)
    return plain, wrap(copy.deepcopy(plain), (batch()[0],), budget, planner="checkmate", **options)


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)


def session_of(wrapped):
    return wrapped.regen.active.session


def backward(model, seed=1):
    x, y = batch(seed=seed)
    F.cross_entropy(model(x), y).backward()




def test_gradients_lie_in_the_arena_until_they_are_dropped():
    plain, wrapped = pair()
    for model in (plain, wrapped):
        backward(model)
    assert_same(plain, wrapped)
    every = sum(p.numel() * 4 for p in wrapped.parameters())
    assert session_of(wrapped).lent_bytes == every
    assert len(session_of(wrapped).lent_results()) == len(list(wrapped.parameters()))
    wrapped.zero_grad()
    assert session_of(wrapped).lent_bytes == 0


def test_gradients_take_no_bytes_of_their_own():
    _, lent = pair()
    kept = make(Wide)
    kept = wrap(kept, (batch()[0],), 1.0, planner="checkmate", releasable=True)  # whose gradients are the caller's
    assert not session_of(kept).lent_results()
    every = sum(p.numel() * 4 for p in kept.parameters())
    assert session_of(kept).fixed_bytes - session_of(lent).fixed_bytes == pytest.approx(every, abs=64 * 14)
    assert session_of(lent).unplanned_bytes <= session_of(kept).unplanned_bytes  # of which a budget may be a fraction: the same


@pytest.mark.parametrize("budget", [1.0, 0.8])
@pytest.mark.parametrize("optimizer", [
    adam,
    lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    lambda model: torch.optim.Adam(model.parameters(), lr=0.01, foreach=False, amsgrad=True),
    lambda model: torch.optim.Adam(model.parameters(), lr=0.01, fused=True),
    lambda model: torch.optim.RMSprop(model.parameters(), lr=0.01, centered=True),
    lambda model: torch.optim.Adafactor(model.parameters(), lr=0.01),
])
def test_the_state_of_an_optimizer_moves_out_and_is_what_it_was(budget, optimizer):
    def trained(model):
        its = optimizer(model)
        for seed in range(5):
            its.zero_grad()
            backward(model, seed)
            its.step()
        return its

    plain = make(Wide)
    expected = trained(plain)  # alone: the plan leaves room for all that is allocated beside it
    wrapped = wrap(make(Wide), (batch()[0],), budget, planner="checkmate")
    found = trained(wrapped)
    for mine, other in zip(*(list(tensors_in(list(o.state.values()))) for o in (found, expected))):
        assert same_bits(mine, other)
    assert_same(plain, wrapped)
    wrapped.zero_grad()
    assert session_of(wrapped).lent_bytes == 0 and session_of(wrapped).room_bytes == 0
    assert session_of(wrapped).lent_results()  # the loop drops them, so they still are the plan's


def test_scratch_of_an_optimizer_is_served_from_the_arena():
    _, wrapped = pair()
    optimizer = adam(wrapped)
    for seed in range(3):
        optimizer.zero_grad()
        backward(wrapped, seed)
        optimizer.step()
    optimizer.zero_grad()
    backward(wrapped)
    gc.collect()
    _runtime.reset_memory_peak("cpu")
    before = _runtime.memory_use("cpu")["allocated"]
    optimizer.step()
    scratch = _runtime.memory_use("cpu")["allocated_peak"] - before
    assert scratch < sum(p.numel() * 4 for p in wrapped.parameters()) / 4  # foreach takes as much as the parameters have


@pytest.mark.parametrize("budget", [1.0, 0.8])
def test_the_budget_is_kept_from_the_first_step_on(budget):
    """State that an optimizer makes in its first step has the arena's room until the next plan leaves room for it."""
    model = make(Wide)
    gc.collect()
    outside = _runtime.memory_use("cpu")["allocated"] - sum(p.numel() * 4 for p in model.parameters())
    least = wrap(copy.deepcopy(model), (batch()[0],), 1.0, planner="checkmate")
    bytes_ = int(session_of(least).unplanned_bytes * budget) + 3 * sum(p.numel() * 4 for p in model.parameters())
    del least
    gc.collect()
    x, y = batch()
    wrapped = wrap(model, (x,), bytes_, planner="checkmate")
    optimizer = adam(wrapped)
    inputs = x.nbytes + y.nbytes
    for _ in range(4):
        _runtime.reset_memory_peak("cpu")
        optimizer.zero_grad()
        F.cross_entropy(wrapped(x), y).backward()
        optimizer.step()
        assert _runtime.memory_use("cpu")["allocated_peak"] - outside - inputs <= bytes_


def test_gradients_that_are_kept_until_the_next_forward_pass_stay_and_are_added_to():
    plain, wrapped = pair()
    for model in (plain, wrapped):
        for seed in range(3):
            backward(model, seed)
    assert_same(plain, wrapped)
    assert not session_of(wrapped).lent_results()  # beside the plan from the second pass on


def test_gradients_that_are_cleared_after_the_forward_pass():
    plain, wrapped = pair()
    for model in (plain, wrapped):
        optimizer = adam(model)
        for seed in range(4):
            x, y = batch(seed=seed)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert_same(plain, wrapped)


@pytest.mark.parametrize("whole", [True, False])
def test_gradients_that_somebody_keeps_do_not_change(whole):
    plain, wrapped = pair()
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    backward(plain, 7)
    backward(wrapped, 7)
    kept = {name: g if whole else g[:1] for name, g in gradients(wrapped).items()}
    for seed in range(3):
        optimizer.zero_grad()
        backward(wrapped, seed)
        optimizer.step()
    for name, gradient in gradients(plain).items():
        assert same_bits(kept[name], gradient if whole else gradient[:1])


def test_evaluation_between_the_backward_pass_and_the_update():
    plain, wrapped = pair()
    for model in (plain, wrapped):
        optimizer = adam(model)
        for seed in range(4):
            optimizer.zero_grad()
            backward(model, seed)
            with torch.no_grad():
                model.eval()(batch(seed=9)[0])
                model.train()
            optimizer.step()
    assert_same(plain, wrapped)
    wrapped.zero_grad()
    backward(wrapped)
    assert session_of(wrapped).lent_results()  # they were dropped before each training pass


def test_an_update_that_fails_leaves_the_thread_as_it_was():
    class Fails(torch.optim.SGD):
        def _init_group(self, *args, **kwargs):
            self.held = torch.ones(1 << 14)
            raise RuntimeError("not today")

    plain, wrapped = pair()
    fails = Fails(wrapped.parameters(), lr=0.1)
    backward(wrapped)
    with pytest.raises(RuntimeError, match="not today"):
        fails.step()
    wrapped.zero_grad()
    held = fails.held.clone()
    for model in (plain, wrapped):
        optimizer = adam(model)
        for seed in range(3):
            optimizer.zero_grad()
            backward(model, seed)
            optimizer.step()
    assert_same(plain, wrapped)
    assert torch.equal(fails.held, held)


def test_what_an_optimizer_keeps_outside_of_its_state_stays_where_it_is():
    class Keeps(torch.optim.SGD):
        def step(self, closure=None):
            if not hasattr(self, "averages"):
                self.averages = [torch.zeros_like(p) for g in self.param_groups for p in g["params"]]
            for average, p in zip(self.averages, [p for g in self.param_groups for p in g["params"]]):
                average.mul_(0.9).add_(p.detach(), alpha=0.1)
            return super().step(closure)

    plain, wrapped = pair("1GiB")
    optimizers = {model: Keeps(model.parameters(), lr=0.1) for model in (plain, wrapped)}
    for seed in range(4):
        for model, optimizer in optimizers.items():
            optimizer.zero_grad()
            backward(model, seed)
            optimizer.step()
    assert_same(plain, wrapped)
    for mine, other in zip(*(o.averages for o in optimizers.values())):
        assert same_bits(mine, other)


def test_an_optimizer_that_evaluates_the_model_itself():
    plain, wrapped = pair()
    for model in (plain, wrapped):
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

        def closure(model=model, optimizer=optimizer):
            optimizer.zero_grad()
            x, y = batch()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
    assert_same(plain, wrapped)


def test_two_models_in_turn():
    pairs = [pair(), pair()]
    for models in zip(*pairs):
        optimizers = [adam(model) for model in models]
        for seed in range(4):
            for model, optimizer in zip(models, optimizers):
                optimizer.zero_grad()
                backward(model, seed)
            for optimizer in optimizers:
                optimizer.step()
    for plain, wrapped in pairs:
        assert_same(plain, wrapped)


def test_lengths_that_vary():
    plain, wrapped = pair()
    for model in (plain, wrapped):
        optimizer = adam(model)
        for n in (128, 100, 64, 128, 90, 256, 40):
            optimizer.zero_grad()
            x, y = batch(n, seed=n)
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert_same(plain, wrapped)
    assert session_of(wrapped).lent_results()


def test_gradients_move_under_a_link_and_are_whole_when_they_are_handed_over():
    plain, _ = pair()
    model = copy.deepcopy(plain)
    wrapped = regen.wrap(model, (batch()[0],), 0.65, planner="vdnn,auto", link=(1e12, 1e12, 2e12), work_limit=50_000)
    for each in (plain, wrapped):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
        for seed in range(3):
            optimizer.zero_grad()
            backward(each, seed)
            optimizer.step()
    assert_same(plain, wrapped)


def test_a_plan_file_for_either_kind_of_gradients(tmp_path):
    plain, wrapped = pair(0.9)
    backward(wrapped)
    wrapped.regen.save_plan(tmp_path / "lent.json")
    backward(wrapped)  # with gradients there: beside the plan from now on
    wrapped.regen.save_plan(tmp_path / "kept.json")
    for name, lends in (("lent", True), ("kept", False)):
        again = wrap(copy.deepcopy(plain), (batch()[0],), "1GiB", plan_file=tmp_path / f"{name}.json")
        assert bool(session_of(again).lent_results()) == lends


@pytest.mark.as_on_the_host
def test_arrays_of_gradients_on_the_host_stay_what_they_were():
    plain, wrapped = pair(budget="4MiB")
    arrays = {id(model): [] for model in (plain, wrapped)}
    optimizers = [adam(model) for model in (plain, wrapped)]
    for seed in range(4):
        for model, optimizer in zip((plain, wrapped), optimizers):
            optimizer.zero_grad()
            backward(model, seed=seed)
            arrays[id(model)] += [p.grad.numpy() for p in model.parameters()]
            optimizer.step()
    assert not session_of(wrapped).lent_results()
    assert all((ours == theirs).all() for ours, theirs in zip(arrays[id(wrapped)], arrays[id(plain)], strict=True))


def test_the_optimizers_of_planned_steps_are_recorded_as_ever():
    """The hooks by which room is lent are no reason to run an update beside the plan."""
    _, wrapped = pair()
    backward(wrapped)
    model = make(Wide)
    step = regen.step(model, F.cross_entropy, adam(model), batch(), 1.0, work_limit=20_000)
    assert step.active.captured.updates is not None
