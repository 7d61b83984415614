"""Trainings that share a device's memory under a real daemon: each in a process of its own, re-planned into the bytes that are left,
spilled, sent away and killed. A job that is not killed ends with the bits of plain PyTorch."""

import atexit
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings

import pytest
import torch

import regen
import wire
from eventually import eventually
from examples.models import build
from regen._check import same_bits
from regen_program import BINARY
from share_daemon import Daemon

WORKER = pathlib.Path(__file__).parent / "admission_worker.py"
# Model and batch: activations are most of their memory.
TRAININGS = {"gpt": ("gpt2_medium", 24), "small": ("gpt2_medium", 16), "resnet": ("resnet50", 16)}
# Of all trainings here: what is measured and captured once serves all, and gives all the same curves.
CACHE = pathlib.Path(tempfile.mkdtemp(prefix="regen-admission-"))
atexit.register(shutil.rmtree, CACHE, ignore_errors=True)
# What a step gives the caller, who has it beside the plan.
LOSS = 64


class Device:
    """A daemon with one device of so many bytes."""

    def __init__(self, folder, size, *options):
        self.daemon = Daemon(folder, "--device", f"cpu:{size}", *options)
        self.socket = self.daemon.socket
        self.size = size

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.daemon.stop(signal.SIGKILL)
        self.daemon.process.stdout.close()
        self.daemon.process.stderr.close()

    def status(self):
        asking = wire.Wire(self.socket)
        asking.send(wire.STATUS)
        _, report = asking.receive()
        asking.close()
        return report["devices"][0]

    def jobs(self):
        return {job["name"]: job for job in self.status()["jobs"]}


class Watch:
    """Looks at a device all the time: no job is ever over its bytes."""

    def __init__(self, device):
        self.device, self.faults, self.limits, self.ending = device, [], {}, False
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.ending:
            status = self.device.status()
            if status["used_bytes"] > status["bytes"]:
                self.faults.append(("device", status["used_bytes"]))
            for job in status["jobs"]:
                self.limits.setdefault(job["name"], set()).add(job["limit_bytes"])
                if job["over_limit"] and job["memory_state"] != "shrinking":  # which ends between two steps
                    self.faults.append(job)
            time.sleep(0.002)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.ending = True
        self.thread.join()


class Training:
    def __init__(self, device, folder, name, memory, *options, kind=None):
        self.name, self.kind = name, kind or name
        model, batch = TRAININGS[self.kind]
        self.out = folder / f"{name}.pt"
        command = [str(BINARY), "share", "run", "--socket", device.socket, "--name", name, "--memory", str(memory), *options, "--",
                   sys.executable, str(WORKER), model, str(batch), str(self.out)]
        self.errors = open(folder / f"{name}.txt", "w+")  # noqa: SIM115  closed with the worker
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                        env={**os.environ, "REGEN_CACHE": str(CACHE)})
        self.said = []

    def say(self, command):
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        assert line, self.complaint()
        self.said.append(json.loads(line))
        return self.said[-1]

    def planned(self):
        """Its curve; it has the device's memory then."""
        found = self.hear()
        self.points, self.fixed = found["points"], found["fixed"]
        return self

    def run(self, steps):
        self.say(steps)
        return [self.hear() for _ in range(steps)]

    def complaint(self):
        self.process.wait(60)
        self.errors.seek(0)
        return self.errors.read()

    def end(self):
        self.say("end")
        assert self.process.wait(60) == 0, self.complaint()
        return torch.load(self.out)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()


@pytest.fixture
def trainings(tmp_path):
    started = []

    def start(*args, **options):
        started.append(Training(args[0], tmp_path, *args[1:], **options))
        return started[-1]

    yield start
    for training in started:
        training.close()


def assert_as_alone(training, left):
    torch.set_num_threads(1)
    name, batch = TRAININGS[training.kind]
    model, args, loss_fn = build(name, batch=batch)
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(3)
    for loss in left["losses"]:
        optimizer.zero_grad()
        plain = loss_fn(model(*args[:-1]), args[-1])
        plain.backward()
        optimizer.step()
        assert loss == plain.item()
    for name, tensor in model.state_dict().items():
        assert same_bits(left["state"][name], tensor), name


@pytest.fixture(scope="session")
def curves(tmp_path_factory):
    """The curve of each training, from a job that had the device alone."""
    found = {}
    folder = tmp_path_factory.mktemp("alone")
    with Device(folder, 1 << 30) as device:
        for name in TRAININGS:
            alone = Training(device, folder, name, 1 << 30).planned()
            found[name] = alone.points
            last = alone.run(3)[-1]
            # The daemon leaves a job no more than it can use.
            assert last["limit"] == last["predicted"] == alone.points[-1][0]
            assert last["arena"] <= last["predicted"] and last["measured"] <= last["predicted"] + LOSS
            assert_as_alone(alone, alone.end())
            alone.close()
    return found


def whole(curves, name):
    return curves[name][-1][0]


def least(curves, name):
    return curves[name][0][0]


def test_three_trainings_live_in_what_two_would_not(tmp_path, trainings, curves):
    """Their memory for keeping everything sums to 1.6 times the device's."""
    names = list(TRAININGS)
    size = int(sum(whole(curves, name) for name in names) / 1.6)
    with Device(tmp_path, size) as device, Watch(device) as watch:
        running = []
        for name in names:
            stop = threading.Event()
            stepping = threading.Thread(target=keep_stepping, args=(list(running), stop))
            stepping.start()
            newcomer = trainings(device, name, whole(curves, name)).planned()
            stop.set()
            stepping.join()
            running.append(newcomer)
        first, second, third = running
        for training in running:
            training.say(5)
        for training in running:
            steps = [training.hear() for _ in range(5)]
            assert all(step["predicted"] <= step["limit"] for step in steps)
            assert all(step["measured"] <= step["limit"] + LOSS for step in steps), "really"
        together = device.jobs()
        assert sum(job["limit_bytes"] for job in together.values()) <= size, "side by side"
        assert together[first.name]["limit_bytes"] < whole(curves, first.name), "the first one has shrunk"
        for training in running:
            assert together[training.name]["used_bytes"] <= together[training.name]["limit_bytes"]
        left = [third.end()]
        assert eventually(lambda: sum(job["limit_bytes"] for job in device.jobs().values()) > sum(
            together[name]["limit_bytes"] for name in (first.name, second.name))), "others grow"
        left.append(second.end())
        assert eventually(lambda: device.jobs()[first.name]["limit_bytes"] == whole(curves, first.name))
        before, after = first.run(1)[0], first.run(2)[-1]
        assert after["limit"] == after["predicted"] == whole(curves, first.name)
        assert after["arena"] > min(step["arena"] for step in first.said if "arena" in step) and before["step"] + 2 == after["step"]
        left.append(first.end())
    assert not watch.faults
    assert len(watch.limits[first.name]) >= 3
    for training, outcome in zip([third, second, first], left):
        assert_as_alone(training, outcome)


def keep_stepping(running, stop):
    while running and not stop.is_set():
        for training in running:
            training.say(1)
        for training in running:
            training.hear()
        time.sleep(0.05)  # the newcomer needs a core, too


def test_an_idle_job_makes_room_too(tmp_path, trainings, curves):
    """No code runs there: the job waits for a line of its input."""
    name = "resnet"
    size = int(whole(curves, name) * 1.75)
    with Device(tmp_path, size) as device, Watch(device) as watch:
        idle = trainings(device, name, whole(curves, name)).planned()
        idle.run(2)
        other = trainings(device, "other", whole(curves, name), kind=name).planned()
        assert device.jobs()[name]["limit_bytes"] < whole(curves, name)
        other.run(3)
        steps = idle.run(3)
        assert all(step["limit"] < whole(curves, name) and step["measured"] <= step["limit"] + LOSS for step in steps)
        assert_as_alone(other, other.end())
        assert_as_alone(idle, idle.end())
    assert not watch.faults


def test_one_that_dies_while_others_shrink_is_forgotten(tmp_path, trainings, curves):
    name = "resnet"
    size = int(whole(curves, name) * 1.75)
    with Device(tmp_path, size) as device, Watch(device) as watch:
        first = trainings(device, name, whole(curves, name)).planned()
        first.run(1)
        dying = trainings(device, "dying", whole(curves, name), kind=name)
        assert eventually(lambda: device.jobs()[name]["limit_bytes"] < whole(curves, name)), "it is asked to shrink"
        dying.process.send_signal(signal.SIGKILL)
        dying.process.wait()
        assert eventually(lambda: device.jobs()[name]["limit_bytes"] == whole(curves, name))
        assert first.run(2)[-1]["limit"] == whole(curves, name)
        # And one that is killed before it has switched plans, while another waits for its bytes.
        first.say(1000)
        first.process.send_signal(signal.SIGSTOP)
        second = trainings(device, "second", whole(curves, name), kind=name)
        assert eventually(lambda: device.jobs()[name]["memory_state"] == "shrinking")
        assert device.status()["newcomers"][0]["name"] == "second"
        first.process.send_signal(signal.SIGKILL)
        second.planned()
        assert device.jobs()["second"]["limit_bytes"] == whole(curves, name)
        second.run(2)
        assert_as_alone(second, second.end())
    assert not watch.faults


def test_trainings_take_turns_with_their_memory_in_the_middle_of_their_steps(tmp_path, trainings, curves):
    """Three on a device that has room for what all keep for good, and for what one of them needs on top."""
    name = "gpt"
    asked = least(curves, name) + 20_000
    with Device(tmp_path, int(2.6 * least(curves, name)), "--turn", "0.002") as device, Watch(device) as watch:
        running = [trainings(device, f"{name}{i}", asked, kind=name).planned() for i in range(3)]
        assert device.status()["in_turns"]
        # Whether a turn ends inside of a step or between two is a matter of milliseconds, so that it may take some steps.
        for _ in range(10):
            for training in running:
                training.say(20)
            rounds = [[training.hear() for _ in range(20)] for training in running]
            assert all(step["predicted"] <= step["limit"] <= asked for steps in rounds for step in steps)
            if sum(steps[-1]["pauses"] for steps in rounds) > 0:
                break
        left = [training.end() for training in running]
    assert not watch.faults
    assert sum(outcome["rooms"] for outcome in left) > 3 and sum(outcome["pauses"] for outcome in left) > 0
    for training, outcome in zip(running, left):
        assert_as_alone(training, outcome)


def asked_by_hand(device, **options):
    """A job of the protocol that has the device and its memory, and outranks the trainings."""
    other = wire.Wire(device.socket)
    other.register(options.pop("name", "urgent"), priority=1, **options)
    other.send(wire.ACQUIRE)
    while (heard := other.receive()) == (wire.LIMIT, {}):
        pass
    assert heard == (wire.GRANTED, {})
    return other


def asked_when(device, name, resting, needs):
    """Again until the other job rests, or was asked to give way while it had the device: in the middle of a step or, now and then,
    between two of them. The urgent one, and the other."""
    for _ in range(200):
        before = device.jobs()[name]["preemptions"]
        urgent = asked_by_hand(device, **needs)
        job = device.jobs()[name]
        if job["state"] == "idle" if resting else job["preemptions"] > before:
            return urgent, job
        urgent.send(wire.IDLE, left_bytes=1000)
        urgent.close()
    raise AssertionError(f"{name} was never {'idle' if resting else 'asked to give way'}")


@pytest.mark.parametrize("resting", [False, True])
def test_a_job_spills_for_one_that_is_more_urgent(tmp_path, trainings, curves, resting):
    name = "gpt"
    with Device(tmp_path, whole(curves, name) + 1000) as device, Watch(device) as watch:
        training = trainings(device, name, whole(curves, name)).planned()
        before = training.run(2)[-1]
        if not resting:
            training.say(600)
        # Beside the least that it can live with this does not fit; beside what it keeps for good it does.
        needs = dict(memory=device.size - training.fixed, persistent_bytes=1000, deepest="spill")
        for ask in range(1 if resting else 10):  # one of them comes in the middle of a step
            other, job = asked_when(device, name, resting, needs | {"name": f"urgent{ask}"})
            assert job["held_bytes"] <= training.fixed < training.points[0][0]
            other.send(wire.IDLE, left_bytes=1000)
            other.close()
        if resting:
            training.say(600)
        steps = [training.hear() for _ in range(600)]
        assert steps[-1]["rooms"] > before["rooms"]
        assert resting or steps[-1]["pauses"] > before["pauses"], "in the middle of a step"
        assert_as_alone(training, training.end())
    assert not watch.faults


@pytest.mark.parametrize("resting", [False, True])
def test_a_job_leaves_for_one_that_needs_nearly_everything(tmp_path, trainings, curves, resting):
    name = "gpt"
    size = whole(curves, name) + 1000
    with Device(tmp_path, size) as device, Watch(device) as watch:
        training = trainings(device, name, whole(curves, name), "--deepest", "leave").planned()
        before = training.run(2)[-1]
        if not resting:
            training.say(40)
        other = asked_by_hand(device, memory=size - training.fixed + 20_000)
        job = device.jobs()[name]
        assert job["memory_state"] == "away" and job["held_bytes"] < training.fixed - 20_000
        other.send(wire.IDLE)
        other.close()
        if resting:
            training.say(40)
        steps = [training.hear() for _ in range(40)]
        assert steps[-1]["rooms"] > before["rooms"]
        assert_as_alone(training, training.end())
    assert not watch.faults


def test_what_cannot_be_is_refused_with_the_numbers(tmp_path, trainings, curves):
    name = "resnet"
    size = least(curves, name) // 2 + whole(curves, name)
    with Device(tmp_path, size) as device:
        first = trainings(device, name, whole(curves, name), "--deepest", "pause").planned()
        second = trainings(device, "second", whole(curves, name), kind=name)
        said = second.complaint()
        assert second.process.returncode == 1
        assert f"asks for {whole(curves, name):,} bytes on device 'cpu'" in said
        assert f"sum to {first.points[0][0] + whole(curves, name):,}, expected at most {size:,}" in said
        assert device.jobs()[name]["limit_bytes"] == whole(curves, name), "nobody shrinks for it"
        assert_as_alone(first, first.end())
        small = trainings(device, "too_small", least(curves, name) // 2, kind=name)
        assert "no plan" in small.complaint() and "BudgetError" in small.complaint()


def test_bad_depths_are_one_line(tmp_path):
    with Device(tmp_path, 1000) as device:
        ran = subprocess.run([str(BINARY), "share", "run", "--socket", device.socket, "--memory", "10", "--deepest", "far", "--", "true"],
                             capture_output=True, text=True)
    assert ran.returncode == 2 and len(ran.stderr.strip().splitlines()) == 1
    assert "--deepest" in ran.stderr and "'far', expected pause, spill or leave" in ran.stderr


def test_an_idle_job_joins_a_daemon_that_was_started_again(tmp_path, trainings, curves):
    name = "gpt"
    with Device(tmp_path, 4 << 20) as device:
        training = trainings(device, name, 4 << 20).planned()
        training.run(1)
    with Device(tmp_path, 4 << 20) as again:
        assert eventually(lambda: again.jobs().get(name, {}).get("memory_state") == "settled"), "it has said nothing but this"
        assert again.jobs()[name]["limit_bytes"] == whole(curves, name)
        training.run(1)
        assert_as_alone(training, training.end())


def test_a_job_with_two_models_takes_what_it_asked_for(tmp_path, monkeypatch):
    from regen._session import job as job_module
    from small_training import batch, make

    with Device(tmp_path, 1 << 20) as device:
        for key, value in {"SOCKET": device.socket, "NAME": "two", "MEMORY": "900KiB"}.items():
            monkeypatch.setenv(f"REGEN_SHARE_{key}", value)
        monkeypatch.setattr(job_module, "_ASKED", False)
        monkeypatch.setattr(job_module, "_JOB", None)
        model, other = make(), make()
        one = regen.step(model, torch.nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1), batch(), cache=False,
                         planner="keep_all")
        assert device.jobs()["two"]["limit_bytes"] == one.active.session.predicted_peak < 900 << 10
        two = regen.share.infer(other.eval(), (batch()[0],), cache=False)
        assert device.jobs()["two"]["limit_bytes"] == 900 << 10
        one(*batch())
        two(batch()[0])
        monkeypatch.setattr(job_module, "_JOB", None)


def step_that_cannot_spill(device, monkeypatch, **options):
    """A step of this process as a job that says it can spill, and whose arena is not releasable."""
    from regen._session import job as job_module
    from regen._session.admission import Admission
    from small_training import batch, make

    for key, value in {"SOCKET": device.socket, "NAME": "stuck", "MEMORY": "900KiB", "DEEPEST": "spill"}.items():
        monkeypatch.setenv(f"REGEN_SHARE_{key}", value)
    monkeypatch.setattr(job_module, "_ASKED", False)
    monkeypatch.setattr(job_module, "_JOB", None)
    monkeypatch.setattr(Admission, "options_of", lambda self, options: options)
    model = make()
    return regen.step(model, torch.nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1), batch(), cache=False,
                      planner="keep_all", **options)


def warnings_of(step, batch):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step(*batch)
    return [str(warning.message) for warning in caught if str(warning.message).startswith("regen: ")]


def test_memory_that_did_not_go_is_warned_of_once(tmp_path, monkeypatch):
    from small_training import batch

    with Device(tmp_path, 1 << 20) as device:
        step = step_that_cannot_spill(device, monkeypatch)
        assert warnings_of(step, batch()) == []
        memory = step.admission.memory
        everything = memory.make_room("pause")
        assert warnings_of(step, batch()) == [], "nothing was asked for"
        assert memory.make_room("spill") == everything == memory.make_room("spill")
        (warning,) = warnings_of(step, batch())
        assert "job 'stuck' could not move its memory" in warning and "cannot be spilled" in warning and "--deepest" in warning
        memory.make_room("spill")
        assert warnings_of(step, batch()) == [], "each reason once"


def test_memory_that_did_not_go_for_another_job_is_warned_of(tmp_path, monkeypatch):
    from small_training import batch

    with Device(tmp_path, 1 << 20) as device:
        step = step_that_cannot_spill(device, monkeypatch)
        step(*batch())
        urgent = wire.Wire(device.socket)
        persistent = step.active.session.fixed_bytes
        urgent.register("urgent", priority=1, memory=device.size - persistent, persistent_bytes=1000, deepest="spill")
        urgent.send(wire.ACQUIRE)
        assert eventually(lambda: regen.share.job().rooms > 1), "the idle job was asked, and again since nothing came"
        urgent.close()
        warned: list[str] = []  # the answer to the daemon comes before the reason is kept for the next step
        assert eventually(lambda: warned.extend(warnings_of(step, batch())) or warned)
        assert len(warned) == 1 and "cannot be spilled" in warned[0]
