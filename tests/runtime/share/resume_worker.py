"""Trainings in processes of their own, for resume_test.py.

    resume_worker.py kill KIND FILE KILLS SEED    trains again and again in children that are killed with -9 at random moments; prints JSON
    resume_worker.py serve KIND FILE              obeys lines of its input: "run N", "hand_over", "take_over", "report"
"""

import hashlib
import json
import os
import pathlib
import random
import signal
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "python")]

import torch
from torch.nn import functional as F

import regen
from regen.share import resumable

STEPS = {"plain": 300, "planned": 40}
EVERY = 3


class Net(torch.nn.Module):
    """Beside what it learns, it notes which steps were applied, and how often: each takes 1 from its own place of `applied`."""

    def __init__(self, steps):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = torch.nn.Linear(6, 12), torch.nn.Linear(12, 3)
        self.norm = torch.nn.BatchNorm1d(12)
        self.applied = torch.nn.Parameter(torch.zeros(steps))

    def forward(self, x, place):
        y = self.last(F.dropout(torch.relu(self.norm(self.first(x))), 0.3))
        return y, (self.applied * place).sum()


def loss_fn(outputs, target):
    return F.cross_entropy(outputs[0], target) + outputs[1]


class Training:
    def __init__(self, kind, path, steps):
        torch.manual_seed(1)
        random.seed(1)
        self.steps = steps
        self.model = Net(steps)
        learnt = [p for p in self.model.parameters() if p is not self.model.applied]
        self.optimizer = torch.optim.SGD([{"params": learnt, "lr": 0.05, "momentum": 0.9}, {"params": [self.model.applied], "lr": 1.0}])
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, [lambda step: 1 / (1 + step), lambda step: 1.0])
        step = self.planned() if kind == "planned" else self.plain
        self.train = resumable(step, path, EVERY, model=self.model, optimizer=self.optimizer, also={"schedule": Schedule(self.schedule)})

    def planned(self):
        settings = dict(budget=1.0, planner="checkmate", work_limit=20_000, releasable=True)
        return regen.step(self.model, loss_fn, self.optimizer, self.batch(0), **settings)

    def plain(self, x, place, target):
        self.optimizer.zero_grad()
        loss = loss_fn(self.model(x, place), target)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def batch(self, index):
        generator = torch.Generator().manual_seed(index)
        x, target = torch.randn(8, 6, generator=generator), torch.randint(3, (8,), generator=generator)
        return x, F.one_hot(torch.tensor(index), self.steps).float(), target

    def run(self, count):
        for index in range(self.train.steps_done, min(self.steps, self.train.steps_done + count)):
            x, place, target = self.batch(index)
            self.schedule.step() if index % 50 == 49 else None  # its place among the steps is saved, too
            self.train(x + 0.1 * random.random() + 0.1 * torch.rand(()), place, target)

    def report(self):
        digest = hashlib.sha256()
        for _, tensor in sorted(self.model.state_dict().items()):
            digest.update(tensor.numpy().tobytes())
        for _, own in sorted(self.optimizer.state_dict()["state"].items()):
            for _, value in sorted(own.items()):
                digest.update(value.numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value).encode())
        digest.update(torch.get_rng_state().numpy().tobytes() + repr((random.getstate(), self.schedule.last_epoch)).encode())
        applied = self.model.applied.detach()
        done = self.train.steps_done
        once = bool((applied[:done] == -1).all()) and bool((applied[done:] == 0).all())
        return {"steps_done": done, "each_once": once, "digest": digest.hexdigest()}


class Schedule:
    """A scheduler's state without its functions, which it would list as None."""

    def __init__(self, schedule):
        self.schedule = schedule

    def state_dict(self):
        return {key: value for key, value in self.schedule.state_dict().items() if key != "lr_lambdas"}

    def load_state_dict(self, state):
        self.schedule.load_state_dict({**state, "lr_lambdas": [None, None]})


def child(kind, path, steps, answer):
    """In a fork: trains to the end and leaves its report."""
    training = Training(kind, path, steps)
    training.run(steps)
    temporary = answer + ".part"
    pathlib.Path(temporary).write_text(json.dumps(training.report()))
    os.rename(temporary, answer)
    os._exit(0)


def start(*args):
    process = os.fork()
    if process == 0:
        try:
            child(*args)
        finally:
            os._exit(1)
    return process


def train_undisturbed(kind, path, steps):
    begin = time.perf_counter()
    _, status = os.waitpid(start(kind, path, steps, path + ".answer"), 0)
    assert status == 0, status
    return json.loads(pathlib.Path(path + ".answer").read_text()), time.perf_counter() - begin


def kill_many(kind, path, kills, seed):
    """Nothing of torch runs in this process: its children are forked with everything imported."""
    chance = random.Random(seed)
    steps = STEPS[kind]
    expected, seconds = train_undisturbed(kind, path + ".undisturbed", steps)
    killed, answers = 0, []
    while killed < kills:
        own = f"{path}.{len(answers)}"
        while True:
            process = start(kind, own, steps, own + ".answer")
            time.sleep(chance.uniform(0, 0.15 if kind == "plain" else 1.2) * seconds if killed < kills else 0)
            if killed < kills:
                os.kill(process, signal.SIGKILL)
            _, status = os.waitpid(process, 0)
            killed += os.WIFSIGNALED(status)
            if not os.WIFSIGNALED(status):
                assert status == 0, status
                break
        answers.append(json.loads(pathlib.Path(own + ".answer").read_text()))
    print(json.dumps({"killed": killed, "expected": expected, "answers": answers}))


def serve(kind, path):
    training = Training(kind, path, STEPS[kind])
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        command, *args = line.split()
        if command == "run":
            training.run(int(args[0]))
        elif command == "report":
            print(json.dumps(training.report()), flush=True)
            continue
        else:
            getattr(training.train, command)()
        print(json.dumps(training.train.steps_done), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "kill":
        kill_many(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        serve(*sys.argv[2:])
