"""A better plan found beside the training takes the place of the first between two steps; whatever happens meanwhile, the training is the same.

The first plan is replaced by an expensive one, so that there is something to improve on every machine."""

import copy
import gc
import os
import pathlib
import pickle
import subprocess
import sys
import textwrap

import pytest
import torch
from torch.nn import functional as F

import regen
from regen import _runtime
from regen._check import same_bits
from regen._session.session import settings_of
from regen.options import Options
from small_training import Net, assert_same, batch, in_use, make, train

LINK = (1e7, 1e7, 2e7)  # so slow that moving is no way out
OPTIONS = dict(work_limit=20_000, improve=1.0, link=LINK, cache=False)
HOURS = 36_000.0


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def pair(depth=6, budget=0.7, expensive=True, **options):
    plain = make(Net, depth=depth)
    wrapped = regen.wrap(copy.deepcopy(plain), (batch()[0],), budget, **{**OPTIONS, "reserve": 40_000, **options})
    if expensive:
        take_expensive_plan(wrapped.regen.active)
    return plain, wrapped


def take_expensive_plan(shaped):
    """One that makes everything again whenever it is wanted."""
    plan = shaped.session
    assert plan.plan_by(["griewank"])
    shaped.make_ready()


def one_step(model, optimizer, number):
    torch.manual_seed(number)
    x, y = batch(seed=number)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


class Trained:
    """The same model twice, compared after every step; the peak of each step is within the budget."""

    def __init__(self, **options):
        self.plain, self.wrapped = pair(**options)
        self.run = self.wrapped.regen.active
        self.session = self.run.session
        self.optimizers = sgd(self.plain), sgd(self.wrapped)
        self.steps = 0

    def step(self, count=1):
        for _ in range(count):
            self.steps += 1
            # The plain step allocates from the same meter: it goes first, and is not measured.
            expected = one_step(self.plain, self.optimizers[0], self.steps)
            base = in_use() - self.held()
            _runtime.reset_memory_peak("cpu")
            assert same_bits(expected, one_step(self.wrapped, self.optimizers[1], self.steps))
            assert _runtime.memory_use("cpu")["allocated_peak"] - base <= self.session.gross_budget
            assert_same(self.plain, self.wrapped)

    def held(self):
        """What the wrapped model's process would hold between two steps: the plan's, gradients and momentum."""
        own = self.run.present_bytes() if self.session.compiled else self.run.present
        state = sum(t.nbytes for s in self.optimizers[1].state.values() for t in s.values() if isinstance(t, torch.Tensor))
        gradients = sum(p.grad.nbytes for p in self.wrapped.parameters() if p.grad is not None)
        in_arena = self.session.lent_bytes + self.session.room_bytes if self.session.compiled else 0
        return own + state + gradients - in_arena - batch()[0].nbytes

    def wait(self):
        self.session.search.wait()


# The swap.

def test_a_better_plan_is_swapped_in_between_two_steps():
    trained = Trained()
    first = trained.session.report
    trained.step()  # during which the search begins; a plan may take another's place when a step begins, however soon it is found
    assert trained.session.report is first
    assert "a search runs beside the training" in str(trained.wrapped.regen.plan)
    trained.wait()
    assert trained.session.report is first  # until the next step
    trained.step()
    found = trained.session.report
    assert found.cost < first.cost and found.peak_bytes <= trained.session.budget
    assert found.improved.step == 2 and found.improved.cost == first.cost
    assert "improved    before step 2" in str(trained.wrapped.regen.plan)
    trained.step(2)
    assert trained.session.report is found and trained.session.search is None


def test_the_step_is_improved_too():
    plain = make(Net, depth=6)
    planned = copy.deepcopy(plain)
    optimizers = sgd(plain), sgd(planned)
    step = regen.step(planned, F.cross_entropy, optimizers[1], batch(), 0.7, **OPTIONS)
    take_expensive_plan(step.active)
    first = step.active.session.report

    def compare(number):
        expected = one_step(plain, optimizers[0], number)
        torch.manual_seed(number)
        assert same_bits(expected, step(*batch(seed=number)))
        assert_same(dict(plain.state_dict()), dict(planned.state_dict()))
        assert step.plan.measured_peak <= step.active.session.budget

    compare(1)
    step.active.session.search.wait()
    compare(2)
    report = step.active.session.report
    assert report.cost < first.cost and report.improved.step == 2
    compare(3)
    assert "improved    before step 2" in str(step.plan)


def test_not_while_a_backward_pass_is_to_come():
    plain, wrapped = pair()
    session = wrapped.regen.active.session
    first = session.report
    x, y = batch()
    torch.manual_seed(0)
    loss = F.cross_entropy(wrapped(x), y)
    session.search.wait()
    loss.backward()
    torch.manual_seed(0)
    F.cross_entropy(plain(x), y).backward()
    assert_same(plain, wrapped)
    assert session.report is first
    pending = None
    session.stop_search()
    wrapped.zero_grad()
    F.cross_entropy(wrapped(x), y).backward()
    wrapped.zero_grad()
    pending = wrapped(x)
    session.search.wait()
    F.cross_entropy(wrapped(x), y).backward()
    assert session.report is first
    with pytest.warns(UserWarning, match="its forward pass runs again"):
        F.cross_entropy(pending, y).backward()  # under the better plan
    assert session.report.cost < first.cost


def test_memory_is_where_it_was():
    _, wrapped = pair(reserve=None, budget=0.9)
    optimizer = sgd(wrapped)
    for number in range(1, 4):
        one_step(wrapped, optimizer, number)
    session = wrapped.regen.active.session
    session.search.wait()
    optimizer.zero_grad()
    before = in_use() - session.memory().arena_bytes
    first = session.report
    for number in range(4, 7):
        one_step(wrapped, optimizer, number)
    optimizer.zero_grad()
    assert session.report.cost < first.cost
    assert in_use() - session.memory().arena_bytes == before


def test_a_plan_that_cannot_be_better_is_left_alone():
    _, wrapped = pair(budget=1.0, expensive=False)
    wrapped(batch()[0]).sum().backward()
    assert wrapped.regen.active.session.search is None
    assert "improved" not in str(wrapped.regen.plan)


def test_a_search_that_finds_nothing_is_not_repeated():
    _, wrapped = pair(planner="chain", expensive=False)  # which has no more to say
    session = wrapped.regen.active.session
    first = session.report
    for number in range(1, 4):
        one_step(wrapped, sgd(wrapped), number)
        if session.search is not None:
            session.search.wait()
    assert session.search is None and session.report.cost == first.cost
    assert session.report.lower_bound >= first.lower_bound


def test_a_plan_made_anew_is_improved_anew():
    """The caller turns out to hold more: what was looked for is of no use."""
    _, wrapped = pair(improve=HOURS)
    x, y = batch()
    F.cross_entropy(wrapped(x), y).backward()
    session = wrapped.regen.active.session
    search = session.search
    wrapped.regen.caller.bytes += session.budget - session.bound_bytes - (session.report.peak_bytes - session.bound_bytes) // 2
    F.cross_entropy(wrapped(x), y).backward()
    assert session.predicted_peak <= session.gross_budget
    assert session.search is not search and session.searched_for == session.planned_for


# Plans that are kept.

def test_the_better_plan_is_kept_for_the_next_process(tmp_path):
    wrapped = pair(cache=tmp_path)[1]
    first = wrapped.regen.active.session.report
    wrapped(batch()[0]).sum().backward()
    wrapped.regen.active.session.search.wait()
    wrapped.zero_grad()
    wrapped(batch()[0]).sum().backward()
    found = wrapped.regen.active.session.report
    assert found.cost < first.cost
    again = pair(cache=tmp_path, expensive=False)[1]
    again(batch()[0]).sum().backward()
    assert again.regen.active.session.report.cost == found.cost
    assert "improved    by an earlier process" in str(again.regen.plan)
    assert again.regen.active.session.search is None


# What happens while a search runs.

@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_and_checkpoints(duplicate):
    plain, wrapped = pair(improve=HOURS)
    train(wrapped, sgd(wrapped)), train(plain, sgd(plain))
    twin = duplicate(wrapped)
    make(Net, depth=6).load_state_dict(wrapped.state_dict())
    train(twin, sgd(twin)), train(plain, sgd(plain))
    assert_same(plain, twin)


def test_a_search_goes_with_its_model():
    def use():
        _, wrapped = pair(improve=HOURS)
        wrapped(batch()[0]).sum().backward()
        assert wrapped.regen.active.session.search is not None and _runtime.num_searches() == 1

    use()
    before = in_use()
    use()
    assert in_use() == before and _runtime.num_searches() == 0


def test_release_and_evaluation():
    trained = Trained()
    trained.step()
    trained.wrapped.regen.release()
    trained.plain.eval(), trained.wrapped.eval()
    with torch.no_grad():
        assert torch.equal(trained.plain(batch()[0]), trained.wrapped(batch()[0]))
    trained.plain.train(), trained.wrapped.train()
    trained.wait()
    assert not trained.session.compiled
    trained.step(2)
    assert trained.session.report.improved is not None


def test_new_shapes():
    plain, wrapped = pair()
    optimizers = sgd(plain), sgd(wrapped)
    for number, n in enumerate((64, 64, 17, 64, 17, 64)):
        x, y = batch(n, seed=number)
        for model, optimizer in zip((plain, wrapped), optimizers):
            torch.manual_seed(number)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        assert_same(plain, wrapped)
        if number > 2:
            for level in wrapped.regen.sized.levels():
                if level.entry.session.search is not None:
                    level.entry.session.search.wait()
    assert [level.entry.session.report.improved is not None for level in wrapped.regen.sized.levels()] == [True]


def test_a_search_that_fails_is_said_and_harmless():
    trained = Trained()
    trained.session.settings.planners = ["guesswork"]
    first = trained.session.report
    with pytest.warns(UserWarning, match="regen: unknown planner 'guesswork'.*; the plan in use stays") as warned:
        trained.step()
    assert "\n" not in str(warned[0].message)
    trained.step(2)
    assert trained.session.report is first and trained.session.search is None


SCRIPT = """
    import os, sys, torch
    import regen
    from small_training import Net, batch, make
    torch.set_num_threads(1)
    model = regen.wrap(make(Net, depth=60), (batch()[0],), 0.6, reserve=0, work_limit=1, improve=36_000.0, link=(50e9, 50e9, 93e9), cache=False)
    model(batch()[0]).sum().backward()
    search = model.regen.active.session.search
    assert not search.ended
    """


def run_script(ending):
    root = pathlib.Path(__file__).resolve().parents[3]
    paths = os.pathsep.join(str(p) for p in (root / "python", root / "tests" / "support", root))
    return subprocess.run([sys.executable, "-c", textwrap.dedent(SCRIPT) + textwrap.dedent(ending)], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": paths}, timeout=120)


@pytest.mark.parametrize("ending, status", [
    ("print('done')", 0),
    ("print('done'); sys.exit(7)", 7),
    ("print('done', flush=True); raise KeyboardInterrupt", -2),
    # A child that was forked has the search but not its thread, as the workers of a data loader do.
    ("""
     child = os.fork()
     if child == 0:
         del search
         model.regen.active.session.stop_search()
         os._exit(5)
     assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
     print('done')
     """, 0),
])
def test_a_process_ends_while_a_search_runs(ending, status):
    ran = run_script(ending)
    assert ran.stdout == "done\n" and ran.returncode == status, ran.stderr
    assert "terminate" not in ran.stderr


# The setting.

@pytest.mark.parametrize("improve", ["soon", -1, float("nan"), float("inf"), (3,)])
def test_settings_that_are_none(improve):
    with pytest.raises(ValueError, match="improve=.*; expected True, False, or seconds"):
        pair(improve=improve)


def test_where_it_is_on():
    def seconds(kind, **options):
        return settings_of(Options(budget=1.0, **options)).background_seconds(kind == "cpu")

    assert seconds("cpu") == 0 and seconds("cuda") == _runtime.BACKGROUND_SECONDS
    assert seconds("cuda", work_limit=100) == 0 and seconds("cuda", improve=False) == 0
    assert seconds("cpu", improve=True) == _runtime.BACKGROUND_SECONDS and seconds("cpu", improve=3) == 3
    assert seconds("cuda", improve=True, plan_file="plan.json") == 0


def test_off_on_a_cpu():
    _, wrapped = pair(improve=None)
    wrapped(batch()[0]).sum().backward()
    gc.collect()
    assert wrapped.regen.active.session.search is None and _runtime.num_searches() == 0
