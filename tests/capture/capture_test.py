"""A captured program computes, bit for bit, what eager PyTorch computes.

The programs run in tests/support/program_interpreter.py, which calls PyTorch's operators one by one, without
plans. Both sides start from copies of one model and the same seed; after two passes everything must agree: loss, outputs,
gradients, buffers and the state of the generator."""

import copy
import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from bitwise import assert_same_bits, assert_same_model, single_thread  # noqa: F401  a fixture
from examples.models import FAMILIES, build, names
from program_checks import check_rules
from program_interpreter import call
from regen.capture import capture, capture_step, save


def two_passes(forward, loss_of, seed=5):
    torch.manual_seed(seed)
    for _ in range(2):
        outputs = forward()
        loss = loss_of(outputs)
        loss.backward()
    return loss.detach(), outputs, torch.get_rng_state()


def assert_equal_to_eager(model, args, loss_of, kwargs=None, inputs_with_gradient=()):
    """Captures a model, runs it and its copy, and compares everything. Returns what was captured."""
    kwargs = kwargs or {}
    plain, plain_args, plain_kwargs = copy.deepcopy((model, args, kwargs))
    captured = capture(model, args, kwargs)
    check_rules(captured.program)
    ours = two_passes(lambda: call(captured, *args, **kwargs), loss_of)
    theirs = two_passes(lambda: plain(*plain_args, **plain_kwargs), loss_of)
    assert_same_bits("loss", ours[0], theirs[0])
    assert_same_outputs(ours[1], theirs[1])
    assert_same_bits("generator", ours[2], theirs[2])
    assert_same_model(model, plain)
    for mine, other in zip(tree_leaves((args, kwargs)), tree_leaves((plain_args, plain_kwargs))):
        if isinstance(mine, torch.Tensor):
            assert_same_bits("input", mine, other)
            if other.grad is not None:
                assert_same_bits("gradient of input", mine.grad, other.grad)
    return captured


def assert_same_outputs(ours, theirs):
    assert torch.utils._pytree.tree_structure(ours) == torch.utils._pytree.tree_structure(theirs)
    for mine, other in zip(tree_leaves(ours), tree_leaves(theirs)):
        if isinstance(other, torch.Tensor):
            assert_same_bits("output", mine, other)
            assert mine.requires_grad == other.requires_grad and mine.stride() == other.stride()
        else:
            assert mine == other


def sum_of_squares(outputs):
    tensors = [t for t in tree_leaves(outputs) if isinstance(t, torch.Tensor) and t.is_floating_point()]
    return sum((index + 1) * tensor.float().square().sum() for index, tensor in enumerate(tensors))


def test_there_are_thirty_models_of_twelve_families():
    assert len(names()) >= 30 and len(FAMILIES) >= 12


@pytest.mark.parametrize("name", names())
def test_every_model_is_bitwise_equal_to_eager(name):
    model, args, loss_fn = build(name)
    assert_equal_to_eager(model, args[:-1], lambda outputs: loss_fn(outputs, args[-1]))


class Everything(nn.Module):
    """Nested inputs, outputs of all kinds, buffers, a frozen and a shared layer, constants."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.shared = nn.Linear(4, 4)
        self.again = self.shared
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.register_buffer("count", torch.zeros(3))
        self.attribute = torch.arange(4.0)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, picture, extra, flag=True):
        y = F.relu(self.norm(self.conv(picture)), inplace=True).mean((2, 3))
        self.count.add_(1)
        z = self.again(self.shared(y)) + self.frozen(y) + torch.tensor([1.0, 2.0, 3.0, 4.0]) + self.attribute
        if flag:
            extra["counter"].add_(1)
        pieces = (z.view(-1), picture, 3, None, "text", y.detach(), y.argmax(), picture[0], z[0], self.frozen.weight, self.count)
        return {"z": z, "pieces": pieces}, extra["scale"], extra["scale"] * 2


@pytest.fixture(scope="module")
def everything():
    """(captured, model) of the model above, after it was compared with eager."""
    torch.manual_seed(0)
    model = Everything()
    extra = {"scale": torch.randn(3, requires_grad=True), "counter": torch.zeros(2)}
    return assert_equal_to_eager(model, (torch.randn(2, 3, 8, 8), extra), sum_of_squares, {"flag": True}), model


def test_names_and_roles_are_those_of_the_users_model(everything):
    program = everything[0].program
    by_role = {}
    for storage in program["storages"]:
        by_role.setdefault(storage["role"], []).append(storage["name"])
    assert set(by_role["parameter"]) == {
        "conv.weight", "conv.bias", "norm.weight", "norm.bias", "shared.weight", "shared.bias", "frozen.weight", "frozen.bias"}
    assert set(by_role["buffer"]) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "count", "attribute"}
    assert len(by_role["constant"]) == 1
    gradients = {result["name"] for result in program["results"] if result["kind"] == "gradient"}
    assert gradients == {"conv.weight", "conv.bias", "norm.weight", "norm.bias", "shared.weight", "shared.bias", "input.1"}


def test_live_tensors_are_the_users_own(everything):
    captured, model = everything
    by_name = {captured.program["storages"][s]["name"]: tensor for s, tensor in captured.tensors.items()}
    assert by_name["shared.weight"] is model.shared.weight
    assert by_name["count"] is model.count
    assert captured.constant_inputs == {3: True}


def test_buffer_updates_are_copies_before_the_boundary(everything):
    program = everything[0].program
    copies = [i for i, node in enumerate(program["nodes"]) if node["op"] in ("aten::copy_", "aten::_foreach_copy_")]
    written = [storage_name(program, item["value"]) for i in copies for item in as_list(program["nodes"][i]["args"][0])]
    assert sorted(written) == ["count", "input.2", "norm.num_batches_tracked", "norm.running_mean", "norm.running_var"]
    assert all(i < program["boundary"] for i in copies)
    # Statistics of the same type in one call.
    together = [node for node in program["nodes"] if node["op"] == "aten::_foreach_copy_"]
    assert any({storage_name(program, item["value"]) for item in node["args"][0]} >= {"norm.running_mean", "norm.running_var"} for node in together)


def as_list(argument):
    return argument if isinstance(argument, list) else [argument]


def storage_name(program, value):
    return program["storages"][program["values"][value]["storage"]]["name"]


def test_nodes_say_where_they_come_from(everything):
    program = everything[0].program
    assert next(node for node in program["nodes"] if node["op"] == "aten::convolution")["source"].startswith("capture_test.py:")


def modules_of(captured):
    return {node["name"]: node.get("module") for node in captured.program["nodes"]}


def test_nodes_say_in_which_module_they_run():
    inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    modules = modules_of(capture(nn.Sequential(inner, nn.Tanh()), (torch.ones(2, 4),)))
    assert modules["addmm"] == "0.0" and modules["relu"] == "0.1" and modules["tanh"] == "1"
    assert modules["tanh_backward"] == "1" and modules["threshold_backward"] == "0.1" and modules["mm"] == "0.0"


def test_what_runs_in_no_module_of_a_step_says_none():
    model = nn.Sequential(nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    modules = modules_of(capture_step(model, nn.CrossEntropyLoss(), optimizer, (torch.ones(2, 4), torch.zeros(2, dtype=torch.long))))
    assert modules["addmm"] == "0" and modules["nll_loss_forward"] is None and modules["nll_loss_backward"] is None


class Windows(nn.Module):
    """Outputs that are views of something which is not itself an output."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x):
        y = self.linear(x)
        return y[:, :4], y[:, 4:].view(-1, 2, 4), self.weight, self.weight[1:], y.detach(), x * 1.0


class DeadDraws(nn.Module):
    """Random numbers that are not used still move the generator."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        F.dropout(x, 0.5)
        torch.rand(3)
        return self.linear(x) + torch.rand(8)


class Checkpointed(nn.Module):
    """Recomputation by hand, and a part without gradients."""

    def __init__(self):
        super().__init__()
        self.linear, self.teacher, self.drop = nn.Linear(8, 8), nn.Linear(8, 8), nn.Dropout(0.3)

    def forward(self, x):
        with torch.no_grad():
            target = self.teacher(x)
        return torch.utils.checkpoint.checkpoint(lambda y: self.drop(F.relu(self.linear(y))), x, use_reentrant=False) * target, target


class OwnGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient * ctx.saved_tensors[0] * 2.5


class OwnFunction(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return OwnGradient.apply(self.linear(x))


class SharedUnderAutocast(nn.Module):
    """Autocast casts a parameter once for all its uses; gradients add up before the cast back."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for _ in range(3):
                x = F.relu(self.linear(x))
            return x.float()


@pytest.mark.parametrize("kind", [Windows, DeadDraws, Checkpointed, OwnFunction, SharedUnderAutocast])
def test_unusual_models_are_bitwise_equal_to_eager(kind):
    torch.manual_seed(1)
    assert_equal_to_eager(kind(), (torch.randn(4, 8, requires_grad=True),), sum_of_squares)


def test_an_input_may_be_a_window_on_a_larger_tensor():
    torch.manual_seed(1)
    window = torch.randn(6, 20)[2:, 3:11]
    captured = assert_equal_to_eager(nn.Linear(8, 3), (window,), sum_of_squares)
    assert next(s["bytes"] for s in captured.program["storages"] if s["role"] == "input") == (3 * 20 + 8) * 4


def test_a_saved_program_holds_every_byte(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))
    captured = capture(model, (torch.randn(6, 20)[2:, 3:11],), name="small")
    save(captured, tmp_path / "small")
    program = json.loads((tmp_path / "small" / "program.json").read_text())
    check_rules(program)
    content = (tmp_path / "small" / "data.bin").read_bytes()
    assert {entry["storage"] for entry in program["data"]} == {
        i for i, s in enumerate(program["storages"]) if s["role"] not in ("computed", "tangent")}
    for entry in program["data"]:
        storage = program["storages"][entry["storage"]]
        assert entry["bytes"] == storage["bytes"] and entry["offset"] % 64 == 0
        stored = content[entry["offset"]:entry["offset"] + entry["bytes"]]
        if storage["name"] == "0.weight":
            assert stored == model[0].weight.detach().numpy().tobytes()
    assert {path.name for path in (tmp_path / "small").iterdir()} == {"program.json", "data.bin"}
    save(captured, tmp_path / "small", with_data=False)
    assert [path.name for path in (tmp_path / "small").iterdir()] == ["program.json"]


def test_capture_leaves_the_world_as_it_was():
    torch.manual_seed(3)
    model, before = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout()), torch.get_rng_state()
    state = copy.deepcopy(model.state_dict())
    capture(model, (torch.zeros(2, 4),))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


class DrawingBackward(torch.autograd.Function):
    """Draws random numbers when its gradient arrives, as attention's backward pass is taken to do."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, *gradients):
        return gradients[0] + torch.rand_like(gradients[0]) * 1e-3


class CubicLayers(nn.Module):
    """Whose backward pass computes 3 x^2 from forward values alone."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = DrawingBackward.apply(torch.pow(layer(x), 3.0))
        return x


def test_a_draw_of_the_backward_pass_moves_nothing_before_it():
    """What a layer's backward pass computes from forward values alone is computed when that layer is reached, as in plain PyTorch."""
    captured = assert_equal_to_eager(CubicLayers(), (torch.randn(2, 4),), lambda y: y.sum())
    nodes = captured.program["nodes"]
    squares = [i for i, node in enumerate(nodes) if node["op"].startswith("aten::pow") and node["args"][1] == 2.0]
    draws = [i for i, node in enumerate(nodes) if node["random"]]
    assert len(squares) == len(draws) == 3
    assert all(draw < square for draw, square in zip(draws, squares))
    assert captured.program["boundary"] < squares[0]
