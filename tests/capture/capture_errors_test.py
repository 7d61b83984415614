"""What cannot be captured is refused in one line that names the place and what was expected."""

import random
import re
import threading

import pytest
import torch
from torch import nn

import regen
from regen.capture import capture, capture_step, save


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))


class Branches(Linear):
    def forward(self, x):
        if self.linear(x).sum() > 0:
            return self.linear(x)
        return self.linear(x) * 2


class CountsNonzero(Linear):
    def forward(self, x):
        return self.linear(x)[torch.nonzero(self.linear(x)[:, 0] > 0)]


class ReadsValue(Linear):
    def forward(self, x):
        return self.linear(x) * self.linear(x).sum().item()


class ReadsValues(Linear):
    def forward(self, x):
        return self.linear(x) * self.linear(x).tolist()[0][0]


class DrawsElsewhere(Linear):
    def forward(self, x):
        return self.linear(x) * random.random()


class SeedsItself(Linear):
    def forward(self, x):
        torch.manual_seed(0)
        return self.linear(x) * torch.rand(4)


class BuildsModules(Linear):
    def forward(self, x):
        self.linear = nn.Linear(4, 4)
        return self.linear(x)


class WrongShape(Linear):
    def forward(self, x):
        return self.linear(x[:, :3])


class ReturnsObject(Linear):
    def forward(self, x):
        return threading.Lock()


class Detached(Linear):
    def forward(self, x):
        return self.linear(x).detach()


class ChangesTrainedInput(Linear):
    def forward(self, x):
        x.mul_(2)
        return self.linear(x)


def refusal(what, *args, **kwargs):
    with pytest.raises(regen.CaptureError) as caught:
        what(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message and "expected" in message
    return message


# What no program can hold runs as an island; these models have no smaller function than their forward pass.
ISLANDS = [
    (Branches, "a branch depends on the values of a tensor", "capture_errors_test.py"),
    (CountsNonzero, "the size of a tensor depends on the values of another", "capture_errors_test.py"),
    (ReadsValue, "value", "capture_errors_test.py"),
    (ReadsValues, "values", "capture_errors_test.py"),
    (DrawsElsewhere, "Python's or NumPy's generator", ""),
]
LOCATED = [
    (SeedsItself, "seeded inside the forward pass", "capture_errors_test.py"),
    (BuildsModules, "replaces the module linear", ""),
    (WrongShape, r"2x3 and 4x4", "capture_errors_test.py"),
    (ReturnsObject, "an object of lock that cannot be copied", ""),
    (Detached, "no output depends on a parameter", ""),
]


@pytest.mark.parametrize("kind, what, where", ISLANDS, ids=[case[0].__name__ for case in ISLANDS])
def test_models_that_are_islands(kind, what, where, tmp_path):
    captured = capture(kind(), (torch.ones(2, 4),))
    (island,) = captured.islands
    assert island.name == "forward"
    check_message(island.reason, kind, what, where)
    assert "'forward' is an island" in refusal(save, captured, tmp_path)


@pytest.mark.parametrize("kind, what, where", LOCATED, ids=[case[0].__name__ for case in LOCATED])
def test_models_that_cannot_be_captured(kind, what, where):
    check_message(refusal(capture, kind(), (torch.ones(2, 4),)), kind, what, where)


def check_message(message, kind, what, where):
    assert message.startswith(f"cannot capture {kind.__name__}")
    assert re.search(what, message), message
    if where:
        line = int(re.search(rf"{where}:(\d+)", message).group(1))
        first = kind.forward.__code__.co_firstlineno
        assert first < line <= first + 4


def test_gradients_through_a_changed_input():
    message = refusal(capture, ChangesTrainedInput(), (torch.ones(2, 4, requires_grad=True) * 1,))
    assert "changed in place" in message or "in-place" in message


def test_models_and_inputs_on_two_devices():
    split = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, device="meta"))
    assert "0.weight is on cpu, 1.weight on meta" in refusal(capture, split, (torch.ones(2, 4),))
    assert "input 0 is on meta" in refusal(capture, nn.Linear(4, 4), (torch.ones(2, 4, device="meta"),))


def test_nothing_to_train():
    frozen = nn.Linear(4, 4).requires_grad_(False)
    assert "no parameter requires a gradient" in refusal(capture, frozen, (torch.ones(2, 4),))
    assert "no parameter requires a gradient" in refusal(capture, nn.ReLU(), (torch.ones(2, 4),))
    assert "not a torch.nn.Module" in refusal(capture, torch.relu, (torch.ones(2, 4),))


def test_optimizers():
    model, args = nn.Linear(4, 4), (torch.ones(2, 4), torch.ones(2, 4))
    message = refusal(capture_step, model, nn.functional.mse_loss, torch.optim.LBFGS(model.parameters()), args)
    assert "LBFGS" in message and "closure" in message and "regen.wrap" in message
    message = refusal(capture_step, model, nn.functional.mse_loss, torch.optim.Adafactor(model.parameters()), args)
    assert "Adafactor" in message and ".item()" in message and "regen.step" in message
    capturable = torch.optim.Adam(model.parameters(), capturable=True)
    assert "capturable=True" in refusal(capture_step, model, nn.functional.mse_loss, capturable, args)  # on a CPU torch refuses it too
    assert not capturable.state
    assert "not a torch.optim.Optimizer" in refusal(capture_step, model, nn.functional.mse_loss, model, args)


def test_a_loss_must_be_one_number():
    model, args = nn.Linear(4, 4), (torch.ones(2, 4), torch.ones(2, 4))
    message = refusal(capture_step, model, lambda made, target: made - target, torch.optim.SGD(model.parameters()), args)
    assert "not a single number" in message


def test_options_that_change_the_update_are_noticed():
    model, args = nn.Linear(4, 4), (torch.ones(2, 4), torch.ones(2, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    captured = capture_step(model, nn.functional.mse_loss, optimizer, args)
    optimizer.param_groups[0]["weight_decay"] = 0.1
    assert "capture again" in refusal(captured.scalars, optimizer)
