"""Trainings that are killed at random moments, and trainings that move between processes: the same bits, each step applied once."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F

import regen
from regen.share import PackedState, resumable

WORKER = str(pathlib.Path(__file__).parent / "resume_worker.py")
KILLS = {"plain": 1000, "planned": 40} if os.environ.get("REGEN_EXHAUSTIVE") else {"plain": 50, "planned": 4}


@pytest.mark.parametrize("kind", KILLS)
def test_a_training_that_is_killed_again_and_again_ends_as_one_that_was_not(kind, tmp_path):
    done = subprocess.run([sys.executable, WORKER, "kill", kind, str(tmp_path / "state"), str(KILLS[kind]), "5"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert report["killed"] >= KILLS[kind]
    assert report["expected"]["each_once"]
    assert report["answers"] and all(answer == report["expected"] for answer in report["answers"])


class Remote:
    """A training in another process."""

    def __init__(self, kind, path):
        self.process = subprocess.Popen([sys.executable, WORKER, "serve", kind, str(path)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def answer(self):
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1][-2000:]
        return json.loads(line)

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize("kind", KILLS)
def test_a_training_goes_back_and_forth_between_two_processes(kind, tmp_path):
    alone = Remote(kind, tmp_path / "alone")
    first = Remote(kind, tmp_path / "shared")
    assert first.answer() == "ready"
    assert first.ask("run 7") == 7
    assert first.ask("hand_over") == 7
    second = Remote(kind, tmp_path / "shared")
    assert second.answer() == "ready"
    assert second.ask("run 8") == 15
    assert second.ask("hand_over") == 15
    assert first.ask("take_over") == 15
    assert first.ask("run 4") == 19
    assert first.ask("hand_over") == 19
    assert second.ask("take_over") == 19
    assert second.ask("run 1") == 20
    assert alone.answer() == "ready"
    assert alone.ask("run 20") == 20
    assert second.ask("report") == alone.ask("report")
    assert second.ask("report")["each_once"]
    for remote in (alone, first, second):
        remote.end()


# --- in one process


def made(width=4, kind=torch.optim.Adam):
    torch.manual_seed(0)
    model = torch.nn.Linear(width, 2)
    optimizer = kind(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


def run(train, steps, width=4):
    while train.steps_done < steps:
        generator = torch.Generator().manual_seed(train.steps_done)
        train(torch.randn(3, width, generator=generator), torch.randn(3, 2, generator=generator))


def begin(path, every=1, also=None, **options):
    model, optimizer, step = made(**options)
    return resumable(step, path, every, model=model, optimizer=optimizer, also=also)


def test_only_whole_groups_of_steps_count(tmp_path):
    train = begin(tmp_path / "state", every=4)
    run(train, 6)
    weight = train.model.weight.detach().clone()
    train.close()
    again = begin(tmp_path / "state", every=4)
    assert again.steps_done == 4
    run(again, 6)
    assert torch.equal(again.model.weight, weight)
    again.commit()
    again.close()
    assert begin(tmp_path / "state", every=4).steps_done == 6


def test_settings_of_the_optimizer_are_state(tmp_path):
    train = begin(tmp_path / "state")
    train.optimizer.param_groups[0].update(lr=0.25, betas=(0.5, 0.75))
    run(train, 1)
    train.close()
    again = begin(tmp_path / "state")
    group = again.optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["weight_decay"]) == (0.25, (0.5, 0.75), 0)
    assert again.optimizer.state[again.model.weight]["step"].item() == 1


def test_a_handed_over_training_takes_no_step(tmp_path):
    train = begin(tmp_path / "state")
    run(train, 2)
    train.hand_over()
    assert train.state.away
    with pytest.raises(regen.RegenError, match="expected take_over\\(\\) before the next step"):
        run(train, 3)
    other = begin(tmp_path / "state")
    with pytest.raises(regen.RegenError, match="another process writes it"):
        train.take_over()
    run(other, 3)
    weight = other.model.weight.detach().clone()
    other.hand_over()
    train.take_over()
    assert train.steps_done == 3 and torch.equal(train.model.weight, weight)


def test_what_does_not_fit_is_said_in_one_line(tmp_path):
    path = tmp_path / "state"
    train = begin(path)
    run(train, 1)
    with pytest.raises(regen.RegenError, match="another process writes it"):
        begin(path)
    train.close()

    def refused(message, **options):
        with pytest.raises(regen.RegenError, match=message) as error:
            begin(path, **options)
        assert "\n" not in str(error.value)

    refused(r"has 'model.weight' of float32 \(2, 4\) with strides \(4, 1\), expected 'model.weight' of float32 \(2, 5\)", width=5)
    model, _, step = made()
    with pytest.raises(regen.RegenError, match="has the state of an optimizer, expected a training without one"):
        resumable(step, path, model=model)
    schedule = torch.optim.lr_scheduler.StepLR(made()[1], 1)
    refused(r"has the state of \[\] beside the training, expected \['schedule'\]", also={"schedule": schedule})
    regen._runtime.StateFile(str(tmp_path / "foreign")).commit(1, "nothing of ours")
    with pytest.raises(regen.RegenError, match="not the state of a training"):
        begin(tmp_path / "foreign")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(regen.RegenError, match="expected a state file that regen has written"):
        begin(tmp_path / "text")
    for every in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="expected a number of steps"):
            begin(tmp_path / "new", every=every)
    with pytest.raises(ValueError, match="needs model="):
        resumable(step, path)
    assert begin(path).steps_done == 1  # nothing of all that has changed it


def test_an_object_that_json_cannot_hold_is_refused_and_the_last_commit_stays(tmp_path):
    class Odd:
        value = 1

        def state_dict(self):
            return {"value": self.value}

        def load_state_dict(self, state):
            self.value = state["value"]

    odd = Odd()
    train = begin(tmp_path / "state", also={"odd": odd})
    run(train, 2)
    odd.value = object()
    with pytest.raises(regen.RegenError, match="the state of one of odd cannot be saved"):
        run(train, 3)
    train.close()
    assert begin(tmp_path / "state", also={"odd": Odd()}).steps_done == 2


def test_the_image_of_one_state_can_be_given_to_another():
    left, right = made()[0], made(4)[0]
    with torch.no_grad():
        left.weight.normal_()
    a, b = PackedState(left), PackedState(right)
    b.arena.take_image(a.arena.image())
    assert torch.equal(left.weight, right.weight)
    with pytest.raises(regen.RegenError, match="an image of 3 bytes, expected"):
        b.arena.take_image(b"abc")
