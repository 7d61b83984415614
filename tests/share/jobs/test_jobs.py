"""Jobs that share a device under a real daemon: trainings in processes of their own, paused, killed and left without their daemon,
end with the bits of plain PyTorch."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regen
import wire
from eventually import eventually
from regen import _runtime
from regen._check import same_bits
from regen._session import job as job_module
from regen_program import BINARY
from share_daemon import Daemon
from small_training import Heads, Net, batch, make, pair, train

WORKER = pathlib.Path(__file__).parent / "share_worker.py"
EXHAUSTIVE = os.environ.get("REGEN_EXHAUSTIVE") == "1"
# Planners that recompute; that move over a fast link; that do both over a slow one.
KINDS = {"recompute": ("checkmate", None), "swap": ("vdnn", (1e12, 1e12, 2e12)), "both": ("vdnn", (1e8, 1e8, 2e8))}


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setenv("REGEN_CACHE", str(tmp_path / "cache"))


# --- gates in this process: at every quantum, and at random ones

def gate(opens):
    counts = {"asked": 0, "waits": 0}

    def is_open():
        counts["asked"] += 1
        return opens()

    def wait():
        counts["waits"] += 1

    return _runtime.FunctionGate(is_open, wait), counts


def gates():
    draw = random.Random(5)
    return [gate(lambda: False), gate(lambda: draw.random() < 0.6)]


def assert_same_training(model, left, plain_model, plain_left):
    for name, tensor in plain_model.state_dict().items():
        assert same_bits(model.state_dict()[name], tensor), name
    assert same_bits(left[1], plain_left[1]), "random numbers"


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrapped_model_paused_anywhere_trains_as_ever(kind):
    planner, link = KINDS[kind]
    for closing, counts in gates():
        plain, wrapped = pair(budget=0.75, planner=planner, link=link, cache=False, debug=True)
        wrapped.regen.active.session.set_gate(closing, 1e-9)
        left = train(wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1))
        assert counts["waits"] > 50
        assert 0 < wrapped.regen.active.session.pauses <= counts["waits"]  # planned again when the caller's memory is known
        assert_same_training(wrapped, left, plain, train(plain, torch.optim.SGD(plain.parameters(), lr=0.1)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_step_paused_anywhere_trains_as_ever(kind):
    planner, link = KINDS[kind]
    for closing, counts in gates():
        model, plain = make(), make()
        step = regen.step(model, F.cross_entropy, torch.optim.AdamW(model.parameters()), batch(seed=0), 0.75, planner=planner,
                          link=link, work_limit=20_000, cache=False, debug=True)
        step.active.session.set_gate(closing, 1e-9)
        torch.manual_seed(3)
        for number in range(3):
            step(*batch(seed=number))
        left = None, torch.get_rng_state()
        assert counts["waits"] > 50
        assert_same_training(model, left, plain, train(plain, torch.optim.AdamW(plain.parameters())))


def test_a_step_that_cannot_go_on_says_what_is_left():
    def fail():
        raise RuntimeError("told to stop")

    model = make(dropout=0.0)
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    step = regen.step(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1), batch(), 1.0, planner="keep_all", cache=False)
    asked = iter(range(10_000))
    step.active.session.set_gate(_runtime.FunctionGate(lambda: next(asked) < 3, fail), 1e-9)
    with pytest.raises(regen.RegenError, match="told to stop.*before its first update: parameters are as before"):
        step(*batch())
    assert all(same_bits(tensor, before[name]) for name, tensor in model.named_parameters())
    step.active.session.set_gate(None, 1e-3)
    step(*batch())
    assert not same_bits(model.last.weight, before["last.weight"])


# --- this process as a job

@pytest.fixture
def enrolled(daemon, monkeypatch):
    """A function that makes a job of this process."""

    def join(memory="1GiB", **options):
        values = {"SOCKET": daemon.socket, "NAME": "tested", "MEMORY": memory, **{k.upper(): str(v) for k, v in options.items()}}
        for name, value in values.items():
            monkeypatch.setenv(f"REGEN_SHARE_{name}", value)
        monkeypatch.setattr(job_module, "_ASKED", False)
        monkeypatch.setattr(job_module, "_JOB", None)
        return regen.share.job()

    return join


def jobs(daemon):
    asking = wire.Wire(daemon.socket)
    asking.send(wire.STATUS)
    _, report = asking.receive()
    asking.close()
    return {job["name"]: job for job in report["devices"][0]["jobs"]}


def the_job(daemon, name="tested"):
    return jobs(daemon)[name]


def test_a_program_that_is_no_job_is_told_so():
    assert regen.share.job() is None
    with pytest.raises(regen.RegenError, match="this program is no job: REGEN_SHARE_SOCKET .* to be started by `regen share run"):
        regen.share.job(required=True)
    with regen.share.hold():
        pass
    with pytest.raises(TypeError, match="budget=None; expected bytes .* only a job of `regen share run`"):
        regen.wrap(make(), batch()[:1], cache=False)


def test_bad_enrolments_are_one_line(enrolled, daemon):
    with pytest.raises(regen.RegenError, match="REGEN_SHARE_PRIORITY: .*-3"):
        enrolled(priority=-3)
    with pytest.raises(regen.BudgetError, match="'tested' asks for .* expected at most"):
        enrolled(memory="17GiB", priority=0)
    daemon.stop(signal.SIGKILL)
    with pytest.raises(regen.RegenError, match="no daemon at .*expected a running `regen share serve`"):
        enrolled(memory="1GiB")


def test_the_jobs_memory_is_budget_and_limit(enrolled):
    enrolled(memory="300KiB")
    wrapped = regen.wrap(make(), batch()[:1], planner="keep_all", cache=False)
    assert wrapped.regen.active.session.gross_budget == 300 << 10
    assert wrapped.regen.active.session.predicted_peak <= 300 << 10
    wrapped = regen.wrap(make(), batch()[:1], "auto", planner="keep_all", cache=False)
    assert wrapped.regen.active.session.gross_budget == 300 << 10
    with pytest.raises(regen.BudgetError, match="'1MiB' is 1,048,576 bytes, more than the 307,200 that job 'tested' was admitted with"):
        regen.wrap(make(), batch()[:1], "1MiB", cache=False)
    model = make()
    with pytest.raises(regen.BudgetError, match="more than the 307,200"):
        regen.step(model, F.cross_entropy, torch.optim.SGD(model.parameters()), batch(), 400_000, cache=False)


def test_steps_keep_the_device_until_somebody_wants_it(enrolled, daemon):
    job = enrolled()
    model = make()
    step = regen.step(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1), batch(), planner="keep_all", cache=False)
    for _ in range(20):
        step(*batch())
    found = the_job(daemon)
    assert (found["state"], found["grants"], job.returns) == ("holding", 2, 0), "once to measure, once since it has told its curve"
    other = wire.Wire(daemon.socket)
    other.register("other")
    other.send(wire.ACQUIRE)
    assert other.receive() == (wire.GRANTED, {}), "nobody calls anything here: the job gives the device back by itself"
    assert eventually(lambda: job.returns == 1)
    assert the_job(daemon)["state"] == "idle"
    with threading_asks(other):
        step(*batch())
    assert the_job(daemon)["grants"] == 3


class threading_asks:
    """The other job gives the device back while this one waits for it."""

    def __init__(self, other):
        self.thread = threading.Thread(target=lambda: (time.sleep(0.05), other.send(wire.IDLE)))

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *error):
        self.thread.join()


def test_held_work_is_not_interrupted(enrolled, daemon):
    job = enrolled()
    other = wire.Wire(daemon.socket)
    other.register("urgent", priority=1)
    with regen.share.hold():
        with regen.share.hold():
            other.send(wire.ACQUIRE)
            assert eventually(lambda: the_job(daemon)["asked_to_give_way"])
        assert the_job(daemon)["state"] == "holding"
    assert other.receive() == (wire.GRANTED, {})
    assert eventually(lambda: job.returns == 1)


def test_a_forked_child_is_no_job_and_keeps_no_connection(enrolled, daemon):
    enrolled()
    ends = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ends[1], b"1" if regen.share.job() is None else b"0")
        signal.pause()
    try:
        assert os.read(ends[0], 1) == b"1"
        job_module._JOB.abandon()  # as if this process had died
        assert eventually(lambda: not jobs(daemon)), "the child has the connection still"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ends[0])
        os.close(ends[1])


# --- inference

class Small(nn.Module):
    """Convolution and batch norm, dropout, several outputs: a view, an input, a number."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.last, self.dropout = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 4), nn.Dropout(0.5)

    def forward(self, x):
        h = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return {"logits": self.last(self.dropout(h)), "view": h.t(), "input": x, "number": 3}


def plainly(model, *args):
    with torch.no_grad():
        return model(*args)


def assert_same_outputs(ours, theirs):
    assert type(ours) is type(theirs)
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for name in theirs:
            assert_same_outputs(ours[name], theirs[name])
    elif isinstance(theirs, tuple):
        for mine, other in zip(ours, theirs, strict=True):
            assert_same_outputs(mine, other)
    elif isinstance(theirs, torch.Tensor):
        assert same_bits(ours, theirs) and not ours.requires_grad
    else:
        assert ours == theirs


@pytest.mark.parametrize("budget", [None, "1MiB"])
def test_inference_gives_what_the_model_gives(budget):
    torch.manual_seed(0)
    for model, request in [
            (Small(), lambda n: torch.randn(n, 3, 8, 8)), (make(Net), lambda n: batch(n)[0]), (make(Heads), lambda n: batch(n)[0]),
            (nn.LSTM(8, 8, batch_first=True), lambda n: torch.randn(n, 5, 8)),
            (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), lambda n: torch.randn(n, 5, 8))]:
        model.eval()
        predict = regen.share.infer(model, (request(2),), budget, work_limit=20_000, cache=False)
        for n in (2, 2, 5):  # another shape is planned when it comes
            x = request(n)
            assert_same_outputs(predict(x), plainly(model, x))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5)
        x = request(2)
        assert_same_outputs(predict(x), plainly(model, x))


def test_inference_within_the_least_budget():
    model, x = make().eval(), batch()[0]
    options = dict(planner="checkmate", work_limit=20_000, cache=False)
    roomy = regen.share.infer(model, (x,), "1MiB", **options)
    least = roomy.active.session.least_budget()
    tight = regen.share.infer(model, (x,), least, **options)
    assert tight.active.session.predicted_peak <= least < roomy.active.session.unplanned_bytes
    for predict in (roomy, tight):
        assert_same_outputs(predict(x), plainly(model, x))


def test_the_plan_of_an_inference_is_shown():
    model, x = make().eval(), batch()[0]
    within = str(regen.share.infer(model, (x,), "1MiB", cache=False).plan)
    assert "budget      1.00 MiB" in within and "peak" in within and "backward" not in within
    assert "budget      none" in str(regen.share.infer(model, (x,), cache=False).plan)


def test_inference_of_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="Net is in training mode; expected model.eval"):
        regen.share.infer(make(), (batch()[0],))
    with pytest.raises(regen.CaptureError, match="ReLU: it has no parameter"):
        regen.share.infer(nn.ReLU().eval(), (batch()[0],))
    with pytest.raises(regen.BudgetError):
        regen.share.infer(make().eval(), (batch()[0],), "1KiB", cache=False)


def test_a_request_has_the_device_and_gives_it_back(enrolled, daemon):
    job = enrolled(priority=2)
    model = make().eval()
    predict = regen.share.infer(model, (batch()[0],), cache=False)
    other = wire.Wire(daemon.socket)
    other.register("train")
    other.send(wire.ACQUIRE)
    assert other.receive() == (wire.GRANTED, {})
    expected = plainly(model, batch()[0])
    for _ in range(10):
        answers = []
        asking = threading.Thread(target=lambda answers=answers: answers.append(predict(batch()[0])))
        asking.start()
        assert eventually(lambda: not other.keep_going())
        other.send(wire.YIELD)
        assert other.receive() == (wire.GRANTED, {})
        asking.join()
        assert_same_outputs(answers[0], expected)
    assert job.returns == 11  # once after planning
    assert the_job(daemon, "train")["preemptions"] == 10


# --- processes

class Worker:
    def __init__(self, daemon, folder, name, kind, steps, *options, pauses=0, reconnections=0):
        self.out = folder / f"{name}.pt"
        command = [str(BINARY), "share", "run", "--socket", daemon.socket, "--name", name, "--memory", "1GiB", *options, "--",
                   sys.executable, str(WORKER), kind, str(steps), str(self.out), str(pauses), str(reconnections)]
        self.errors = open(folder / f"{name}.txt", "w+")  # noqa: SIM115  closed with the worker
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.steps = 0

    def reach(self, step):
        """Until it has made so many steps."""
        while self.steps < step:
            line = self.process.stdout.readline()
            assert line, self.said()
            self.steps = int(line) + 1

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def left(self):
        for _ in self.process.stdout:
            pass
        assert self.process.wait(120) == 0, self.said()
        return torch.load(self.out)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def trained_plainly(steps):
    model = make()
    _, numbers = train(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), steps)
    return model.state_dict(), numbers


def assert_undisturbed(left):
    state, numbers = trained_plainly(left["steps"])
    assert left["state"].keys() == state.keys()
    for name in state:
        assert same_bits(left["state"][name], state[name]), name
    assert same_bits(left["random"], numbers)


def test_a_thousand_preemptions_leave_the_weights_of_an_undisturbed_run(daemon, tmp_path):
    wanted = 10_000 if EXHAUSTIVE else 1_000
    training = Worker(daemon, tmp_path, "train", "step", 20, pauses=wanted)
    urgent = wire.Wire(daemon.socket)
    urgent.register("urgent", priority=5)
    try:
        training.reach(1)
        while training.process.poll() is None and not training.out.exists():
            urgent.send(wire.ACQUIRE)
            urgent.receive()
            urgent.send(wire.IDLE)
        left = training.left()
    finally:
        training.end()
    assert left["pauses"] >= wanted
    assert_undisturbed(left)


def has_served(daemon, name):
    """A job that a daemon only knows from the one before has not had the device yet."""
    return jobs(daemon).get(name, {}).get("grants", 0) > 0


def test_jobs_survive_each_other_and_their_daemon(daemon, tmp_path):
    """Three trainings of two priorities and two weights; two are killed at random moments and one of them started again, the daemon is
    killed and started again: a job that is not killed ends as if it had been alone."""
    draw = random.Random(20)
    steps = 120
    workers = [
        Worker(daemon, tmp_path, "light", "step", steps, "--weight", "1", reconnections=2),
        Worker(daemon, tmp_path, "heavy", "wrap", steps, "--weight", "3", reconnections=2),
        Worker(daemon, tmp_path, "urgent", "step", steps, "--priority", "1"),
    ]
    try:
        light, heavy, urgent = workers
        urgent.reach(draw.randrange(1, steps // 4))
        urgent.process.send_signal(signal.SIGKILL)
        urgent.process.wait()
        workers.append(Worker(daemon, tmp_path, "again", "wrap", steps, "--priority", "1"))
        heavy.reach(draw.randrange(1, steps // 4))
        for worker in (light, workers[3]):
            worker.reach(1)  # a job that has not met a daemon would not wait for one
        daemon.stop(signal.SIGKILL)
        again = Daemon(tmp_path, "--device", "gpu0:16GiB")
        try:
            heavy.reach(steps // 2)
            assert eventually(lambda: has_served(again, "light") and has_served(again, "heavy"))
            assert eventually(lambda: sum(job["preemptions"] for job in jobs(again).values()) > 0)  # they compete until it is gone
            again.stop(signal.SIGTERM)
            third = Daemon(tmp_path, "--device", "gpu0:16GiB", "--turn", "0.001")
            try:
                left = [worker.left() for worker in (light, heavy, workers[3])]
            finally:
                third.stop(signal.SIGKILL)
        finally:
            again.stop(signal.SIGKILL)
    finally:
        for worker in workers:
            worker.end()
    assert not urgent.out.exists()
    for outcome in left:
        assert outcome["steps"] >= steps
        assert_undisturbed(outcome)
    assert sum(outcome["pauses"] for outcome in left) > 0
    assert left[0]["reconnections"] >= 2 and left[1]["reconnections"] >= 2
