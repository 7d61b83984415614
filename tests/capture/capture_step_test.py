"""A captured training step changes parameters, buffers and optimizer state exactly as plain PyTorch does."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD, Adam, AdamW

from bitwise import assert_same_bits, assert_same_model, single_thread  # noqa: F401  a fixture
from examples.models import build
from program_checks import check_rules, values_in
from program_interpreter import Interpreter
from regen.capture import capture_step

STEPS = 3


def run_step(captured, args, scalars):
    machine = Interpreter(captured.program, captured.tensors, scalars)
    for index, value in captured.input_values.items():
        machine.set_value(value, args[index])
    machine.run()
    return machine.values[captured.result_values(captured.output_results)[0]]


def train_captured(model, loss_fn, optimizer, args, steps=STEPS, scheduler=None, **options):
    captured = capture_step(model, loss_fn, optimizer, args, **options)
    check_rules(captured.program)
    torch.manual_seed(7)
    losses = []
    for _ in range(steps):
        losses.append(run_step(captured, args, captured.scalars(optimizer)))
        captured.advance(optimizer)
        if scheduler:
            scheduler.step()
    return captured, losses


def train_plainly(model, loss_fn, optimizer, args, steps=STEPS, scheduler=None, clip_grad_norm=None, clip_grad_value=None, early=True):
    torch.manual_seed(7)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_fn(model(*args[:-1]), args[-1]) if loss_fn else model(*args)
        loss.backward()
        if clip_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip_grad_norm)
        if clip_grad_value is not None:
            torch.nn.utils.clip_grad_value_(model.parameters(), clip_grad_value)
        optimizer.step()
        losses.append(loss.detach())
        if scheduler:
            scheduler.step()
    optimizer.zero_grad()
    return losses


def assert_same_state(model, optimizer, plain, plain_optimizer):
    for mine, other in zip(model.parameters(), plain.parameters()):
        theirs = {k: v for k, v in plain_optimizer.state[other].items() if v is not None}
        assert set(optimizer.state[mine]) == set(theirs)
        for key, tensor in theirs.items():
            assert_same_bits(key, optimizer.state[mine][key], tensor)


def assert_equal_training(model, args, loss_fn, make_optimizer, make_scheduler=None, **options):
    plain = copy.deepcopy(model)
    optimizer, plain_optimizer = make_optimizer(model), make_optimizer(plain)
    schedulers = [make_scheduler(o) if make_scheduler else None for o in (optimizer, plain_optimizer)]
    captured, ours = train_captured(model, loss_fn, optimizer, args, scheduler=schedulers[0], **options)
    theirs = train_plainly(plain, loss_fn, plain_optimizer, args, scheduler=schedulers[1], **options)
    for mine, other in zip(ours, theirs):
        assert_same_bits("loss", mine, other)
    assert_same_model(model, plain)
    assert_same_state(model, optimizer, plain, plain_optimizer)
    return captured


OPTIMIZERS = {
    "sgd": (SGD, dict(lr=0.1)),
    "momentum": (SGD, dict(lr=0.1, momentum=0.9)),
    "dampening and weight decay": (SGD, dict(lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.01)),
    "nesterov, maximize": (SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, maximize=True)),
    "nesterov by lists": (SGD, dict(lr=0.1, momentum=0.9, nesterov=True, foreach=True)),
    "sgd fused": (SGD, dict(lr=0.1, momentum=0.9, dampening=0.2, fused=True)),
    "adam": (Adam, dict(lr=0.01)),
    "adam amsgrad": (Adam, dict(lr=0.01, amsgrad=True, weight_decay=0.1, maximize=True)),
    "adam by lists": (Adam, dict(lr=0.01, foreach=True, weight_decay=0.1)),
    "adam fused": (Adam, dict(lr=0.01, fused=True)),
    "adamw": (AdamW, dict(lr=0.01)),
    "adamw by lists": (AdamW, dict(lr=0.01, foreach=True, amsgrad=True)),
    "adamw fused": (AdamW, dict(lr=0.01, fused=True)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_with_a_scheduler(name):
    kind, options = OPTIMIZERS[name]
    model, args, loss_fn = build("mlp")
    assert_equal_training(
        model, args, loss_fn, lambda m: kind(m.parameters(), **options), lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.7))


@pytest.mark.parametrize("options", [dict(clip_grad_norm=0.1), dict(clip_grad_norm=100.0), dict(clip_grad_value=0.01)])
@pytest.mark.parametrize("name", ["momentum", "adam by lists"])
def test_clipping(name, options):
    kind, settings = OPTIMIZERS[name]
    model, args, loss_fn = build("mlp")
    assert_equal_training(model, args, loss_fn, lambda m: kind(m.parameters(), **settings), **options)


@pytest.mark.parametrize("name", ["resnet18_frozen", "gpt2_dropout", "lstm", "moe", "shared_blocks"])
def test_whole_steps_of_models(name):
    model, args, loss_fn = build(name)
    assert_equal_training(model, args, loss_fn, lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4))


def test_gradients_take_the_layout_of_their_parameters():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2)).to(memory_format=torch.channels_last)
    args = (torch.randn(2, 3, 8, 8), torch.tensor([0, 1]))
    for options in (dict(clip_grad_norm=0.1), {}):
        assert_equal_training(copy.deepcopy(model), args, F.cross_entropy, lambda m: Adam(m.parameters(), lr=0.01), **options)


def test_updates_can_wait_for_the_end():
    model, args, loss_fn = build("mlp")
    captured = assert_equal_training(model, args, loss_fn, lambda m: SGD(m.parameters(), lr=0.1), early=False)
    phases = [node["phase"] for node in captured.program["nodes"]]
    assert phases == sorted(phases, key=["forward", "backward", "update"].index)


def test_early_updates_come_between_backward_nodes():
    model, args, loss_fn = build("mlp")
    captured = capture_step(model, loss_fn, SGD(model.parameters(), lr=0.1), args)
    phases = [node["phase"] for node in captured.program["nodes"]]
    assert phases.index("update") < len(phases) - 1 - phases[::-1].index("backward")
    assert captured.program["boundary"] is None


def forward_storages_made_from(program, parameter_storage):
    """Slow and plain: every storage that the forward pass made, however indirectly, from one parameter."""
    made = {parameter_storage}
    for node in program["nodes"]:
        if node["phase"] == "forward" and made & set(storages_read(program, node)):
            made |= {program["values"][v]["storage"] for v in node["outputs"] if v is not None}
    return made


def storages_read(program, node):
    return [program["values"][v]["storage"] for v in values_in(node["args"]) + values_in(list(node["kwargs"].values()))]


@pytest.mark.parametrize("name", ["gpt2_medium", "shared_blocks"])
def test_a_forward_node_can_be_run_again_until_its_results_have_had_their_last_use(name):
    model, args, loss_fn = build(name)
    program = capture_step(model, loss_fn, SGD(model.parameters(), lr=0.1), args).program
    writes = [i for i, node in enumerate(program["nodes"]) if node["phase"] == "update"]
    for position in writes:
        target = program["nodes"][position]["args"][0]["value"]
        made = forward_storages_made_from(program, program["values"][target]["storage"])
        later = [n for n in program["nodes"][position + 1:] if n["phase"] != "update"]
        assert not any(made & set(storages_read(program, node)) for node in later)


class ModelWithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.idle = nn.Linear(4, 4)

    def forward(self, x, y):
        return F.mse_loss(self.linear(x), y)


def test_a_model_that_returns_its_loss_and_has_parameters_without_gradient():
    torch.manual_seed(0)
    assert_equal_training(ModelWithLoss(), (torch.randn(3, 4), torch.randn(3, 4)), None, lambda m: Adam(m.parameters()))


def two_groups(model):
    head = list(model.layers[-1].parameters())
    rest = [p for layer in model.layers[:-1] for p in layer.parameters()]
    return SGD([{"params": rest, "lr": 0.01}, {"params": head, "momentum": 0.5}], lr=0.1)


def test_parameter_groups_keep_their_own_numbers():
    model, args, loss_fn = build("mlp")
    assert_equal_training(model, args, loss_fn, two_groups, lambda o: torch.optim.lr_scheduler.StepLR(o, 1, 0.5))


@pytest.mark.parametrize("name", ["dampening and weight decay", "adam", "adam fused"])
def test_training_goes_on_from_earlier_steps_and_the_state_can_be_saved(name):
    kind, options = OPTIMIZERS[name]
    model, args, loss_fn = build("mlp")
    plain = copy.deepcopy(model)
    optimizer, plain_optimizer = kind(model.parameters(), **options), kind(plain.parameters(), **options)
    train_plainly(model, loss_fn, optimizer, args, steps=2)
    train_captured(model, loss_fn, optimizer, args, steps=2)
    train_plainly(plain, loss_fn, plain_optimizer, args, steps=4)
    assert_same_model(model, plain)
    ours, theirs = optimizer.state_dict()["state"], plain_optimizer.state_dict()["state"]
    for index, state in theirs.items():
        for key, tensor in state.items():
            assert_same_bits(key, ours[index][key], tensor)


def test_scalars_of_a_later_step_can_be_asked_ahead():
    model, args, loss_fn = build("mlp")
    optimizer = Adam(model.parameters(), lr=0.01)
    captured = capture_step(model, loss_fn, optimizer, args)
    ahead = captured.scalars(optimizer, step=3)
    for _ in range(2):
        captured.advance(optimizer)
    assert captured.scalars(optimizer) == ahead
    names = [scalar["name"] for scalar in captured.program["scalars"]]
    # step_size = lr / (1 - beta1^t), as torch/optim/adam.py has it.
    assert ahead[names.index("group0.addcdiv_.value")] == -(0.01 / (1 - 0.9**3))
