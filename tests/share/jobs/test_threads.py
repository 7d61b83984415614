"""Several threads in one planned function: requests are answered one after the other, training steps are refused beside another one."""

import copy
import itertools
import pathlib
import pickle
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regen
from eventually import eventually
from regen import _runtime
from regen._check import same_bits
from regen._session.turns import Turns
from regen_program import BINARY
from share_daemon import Daemon
from small_training import batch, make, pair

THREADS = 16
WORKER = pathlib.Path(__file__).parent / "threads_worker.py"


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setenv("REGEN_CACHE", str(tmp_path / "cache"))


def in_threads(count, work):
    """What each call raised, if anything."""
    errors = []

    def run(number):
        try:
            work(number)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


# --- requests

def test_every_thread_gets_the_answer_to_its_own_request():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    predict = regen.share.infer(model, (torch.zeros(4, 32),), cache=False)
    requests = [torch.randn(4 if number % 2 else 2, 32) for number in range(THREADS)]  # two shapes: the arena changes hands
    with torch.no_grad():
        answers = [model(x) for x in requests]
    right = [0] * THREADS

    def ask(number):
        for _ in range(125):
            right[number] += same_bits(predict(requests[number]), answers[number])

    assert not in_threads(THREADS, ask)
    assert right == [125] * THREADS


def test_the_plan_can_be_read_beside_requests():
    model = nn.Linear(8, 8).eval()
    predict = regen.share.infer(model, (torch.zeros(2, 8),), cache=False)
    texts = []

    def ask(number):
        for _ in range(50):
            if number == 0:
                texts.append(str(predict.plan))
                predict.release()
            else:
                predict(torch.zeros(2, 8))

    assert not in_threads(4, ask)
    assert len(texts) == 50


def test_a_jobs_threads_get_their_own_answers(tmp_path):
    daemon = Daemon(tmp_path, "--device", "cpu:1GiB")
    try:
        done = subprocess.run(
            [str(BINARY), "share", "run", "--socket", daemon.socket, "--memory", "100MiB", "--", sys.executable, str(WORKER)],
            capture_output=True, text=True, timeout=300)
    finally:
        daemon.stop()
    assert (done.returncode, done.stdout.split()) == (0, ["right", "2000", "of", "2000"]), done.stderr


def test_a_request_inside_of_a_request_is_refused():
    turns = Turns("regen.share.infer")
    with turns.request(), pytest.raises(regen.errors.UsageError, match="called inside of its own call; expected the first one to return"):
        with turns.request():
            pass
    with turns.request():
        pass


# --- the order

def test_turns_go_to_the_thread_that_has_waited_longest():
    turns, order, threads = Turns("f"), [], []

    def wait(number):
        with turns.request():
            order.append(number)

    with turns.request():
        for number in range(THREADS):
            threads.append(threading.Thread(target=wait, args=(number,)))
            threads[-1].start()
            assert eventually(lambda: len(turns.waiting) == len(threads))
    for thread in threads:
        thread.join()
    assert order == list(range(THREADS))


def test_a_thread_that_always_comes_again_does_not_overtake():
    turns, order = Turns("f"), []

    def again(number):
        for _ in range(50):
            with turns.request():
                order.append(number)

    with turns.request():
        threads = [threading.Thread(target=again, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        assert eventually(lambda: len(turns.waiting) == 2)
    for thread in threads:
        thread.join()
    # Handed over each time, the two alternate; a thread that has not yet come back is not waited for.
    assert sum(a != b for a, b in itertools.pairwise(order)) > 1
    assert sorted(order) == [0] * 50 + [1] * 50


def test_a_wait_that_is_given_up_leaves_nothing(monkeypatch):
    turns = Turns("f")

    class Interrupted:
        """A lock whose second wait is cut short, as by Ctrl-C."""

        def __init__(self):
            self.calls = 0

        def acquire(self):
            self.calls += 1
            if self.calls == 2:
                raise KeyboardInterrupt

        def release(self):
            pass

    held, go = threading.Event(), threading.Event()

    def hold():
        with turns.request():
            held.set()
            go.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(30)
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Lock", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            with turns.request():
                pass
    assert not turns.waiting
    go.set()
    holder.join()
    with turns.request():
        assert turns.depth == 1
    assert turns.owner is None


# --- training

def stopped_inside(session):
    """Stops the next step in its middle: (it is there, it may go on)."""
    inside, go = threading.Event(), threading.Event()

    def wait():
        inside.set()
        go.wait(60)

    session.set_gate(_runtime.FunctionGate(lambda: go.is_set(), wait), 1e-9)
    return inside, go


def test_a_training_step_beside_another_one_is_refused():
    left = []
    for disturbed in (False, True):
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = regen.step(model, F.cross_entropy, optimizer, batch(seed=0), budget=0.8, planner="checkmate", work_limit=20_000, cache=False)
        torch.manual_seed(3)
        if disturbed:
            inside, go = stopped_inside(step.active.session)
            first = threading.Thread(target=step, args=batch(seed=1), name="first")
            first.start()
            assert inside.wait(60)
            with pytest.raises(regen.errors.UsageError, match="regen.step was called by thread 'MainThread' while thread 'first' is inside"):
                step(*batch(seed=2))
            go.set()
            first.join()
        else:
            step(*batch(seed=1))
        step(*batch(seed=3))
        left.append(model.state_dict())
    for name, tensor in left[0].items():
        assert same_bits(left[1][name], tensor), name


def test_a_planned_pass_beside_another_one_is_refused():
    _, wrapped = pair(budget=0.8, planner="checkmate", work_limit=20_000, cache=False)
    x, y = batch(seed=1)
    inside, go = stopped_inside(wrapped.regen.active.session)
    first = threading.Thread(target=lambda: F.cross_entropy(wrapped(x), y).backward(), name="first")
    torch.manual_seed(3)
    first.start()
    assert inside.wait(60)
    with pytest.raises(regen.errors.UsageError, match="regen.wrap was called by thread 'MainThread' while thread 'first' is inside"):
        wrapped(x)
    with torch.no_grad():
        wrapped(x)  # the plain model, which needs no plan, does not take the arena away
    go.set()
    first.join()
    assert all(p.grad is not None for p in wrapped.parameters())


def test_copies_have_turns_of_their_own():
    _, wrapped = pair(budget=0.8, planner="checkmate", work_limit=20_000, cache=False)
    for other in (copy.deepcopy(wrapped), pickle.loads(pickle.dumps(wrapped.regen.turns))):
        turns = getattr(other, "regen", None)
        assert (turns.turns if turns else other) is not wrapped.regen.turns
