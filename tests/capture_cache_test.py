"""A graph from the cache gives the program that tracing would give, and whatever differs is traced again."""

import contextlib
import json
import os
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD, AdamW

from bitwise import assert_same_bits, single_thread  # noqa: F401  a fixture
from examples.models import build
from regen._capture import cache_folder, capture_cache, graph_key
from regen.capture import capture, capture_step


@pytest.fixture
def traced(monkeypatch):
    """A list that grows with every joint trace."""
    names, trace = [], capture_cache.trace_joint_graph

    def count(flat, name):
        names.append(name)
        return trace(flat, name)

    monkeypatch.setattr(capture_cache, "trace_joint_graph", count)
    return names


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
        (x,) = ctx.saved_tensors
        return gradient * x * 3  # not the true one: only this code says so


class Net(nn.Module):
    """As many ways as there are to bring tensors into a graph and out of it."""

    def __init__(self, width=8):
        super().__init__()
        self.first = nn.Linear(6, width)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.25)
        self.last = nn.Linear(width, 4)
        self.register_buffer("count", torch.zeros(3))
        self.scale = 2.0

    def hidden(self, x):
        return self.drop(F.relu(self.norm(self.first(x)))) * self.scale

    def forward(self, x):
        return self.last(self.hidden(x))


class ManyOutputs(Net):
    def forward(self, x, extra=1):
        self.count.add_(extra)
        h = Square.apply(self.hidden(x)) + torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
        y = self.last(h)
        return {"y": y, "rows": y.view(-1), "same": x, "part": x[1:], "weight": self.last.weight, "none": None, "seven": 7}


def sample(rows=5):
    torch.manual_seed(1)
    return (torch.randn(rows, 6),)


def made(kind=Net, *args):
    torch.manual_seed(0)
    return kind(*args).train()


def essence(captured):
    """All of a capture that is not a live tensor, in a form that can be compared."""
    recipes = [vars(recipe) for recipe in captured.outputs]
    return json.loads(json.dumps([
        captured.program, recipes, sorted(captured.input_values.items()), captured.output_results, captured.tangent_values,
        captured.gradient_results, str(captured.out_spec), str(captured.in_spec), sorted(captured.tensors)], default=str))


def assert_same_capture(one, other):
    assert essence(one) == essence(other)
    for storage, tensor in one.tensors.items():
        if one.program["storages"][storage]["role"] == "constant":
            assert_same_bits(f"constant {storage}", tensor, other.tensors[storage])
        else:
            assert tensor is other.tensors[storage]


# The same from the cache.

@pytest.mark.parametrize("kind", [Net, ManyOutputs])
def test_a_kept_graph_gives_the_same_program(kind, tmp_path, traced):
    model, args = made(kind), sample()
    plain = capture(model, args)
    assert_same_capture(plain, capture(model, args, cache=tmp_path))
    assert len(traced) == 2
    assert_same_capture(plain, capture(model, args, cache=tmp_path))
    assert len(traced) == 2


@pytest.mark.parametrize("name", ["resnet50", "gpt2_autocast", "lstm", "moe_noisy", "in_place", "view_heavy", "following_buffers"])
def test_kept_graphs_of_networks_give_the_same_step(name, tmp_path, traced):
    """As the trace that was kept; a second trace in one process may differ where PyTorch remembers results without data."""
    model, args, loss = build(name, tiny=True)
    model.train()
    kept, again = (
        capture_step(model, loss, SGD(model.parameters(), lr=0.1, momentum=0.9), args, cache=tmp_path).program for _ in range(2))
    assert len(traced) == 1
    assert kept == again


@pytest.mark.parametrize("options", [dict(clip_grad_norm=1.0), dict(clip_grad_value=0.5), dict(early=False)])
@pytest.mark.parametrize("kind, hyper", [
    (SGD, dict(lr=0.1)), (SGD, dict(lr=0.3, momentum=0.9, nesterov=True)), (AdamW, dict(lr=0.01)), (AdamW, dict(lr=0.02, amsgrad=True)),
    (AdamW, dict(lr=0.02, foreach=True)), (SGD, dict(lr=0.1, weight_decay=0.1, foreach=False))])
def test_any_optimizer_may_follow_a_kept_graph(kind, hyper, options, tmp_path, traced):
    """The update is not kept: it follows from the optimizer as it is now."""
    model, args = made(), (*sample(), torch.randn(5, 4))
    capture_step(model, F.mse_loss, SGD(model.parameters(), lr=1.0), args, cache=tmp_path)
    plain = capture_step(model, F.mse_loss, kind(model.parameters(), **hyper), args, **options)
    traced.clear()
    again = capture_step(model, F.mse_loss, kind(model.parameters(), **hyper), args, cache=tmp_path, **options)
    assert not traced
    assert again.program == plain.program


def test_names_of_models_are_not_kept(tmp_path, traced):
    model, args = made(), sample()
    capture(model, args, name="one", cache=tmp_path)
    assert capture(model, args, name="two", cache=tmp_path).program["name"] == "two"
    assert len(traced) == 1


def test_another_model_of_the_same_kind_brings_its_own_tensors(tmp_path, traced):
    args = sample()
    capture(made(ManyOutputs), args, cache=tmp_path)
    model = made(ManyOutputs)
    captured = capture(model, args, cache=tmp_path)
    assert len(traced) == 1
    own = {id(t) for t in [*model.parameters(), *model.buffers()]}
    roles = captured.program["storages"]
    assert all(id(t) in own for s, t in captured.tensors.items() if roles[s]["role"] in ("parameter", "buffer"))


# What differs is traced again.

class Scaled(Net):
    def __init__(self):
        super().__init__()
        self.scale = 3.0


class WholeScaled(Net):
    def __init__(self):
        super().__init__()
        self.scale = 2  # equal to the float, but another type


class OtherOp(Net):
    def hidden(self, x):
        return self.drop(F.gelu(self.norm(self.first(x)))) * self.scale


class OtherBackward(Net):
    def hidden(self, x):
        return Square.apply(super().hidden(x))


class Renamed(Net):
    def __init__(self):
        super().__init__()
        self.output = self.last
        del self.last

    def forward(self, x):
        return self.output(self.hidden(x))


class Twins(Net):
    """Two layers; tied or not, the code is the same."""

    def __init__(self, shared):
        super().__init__()
        self.twin = nn.Linear(8, 4)
        if shared == "parameter":
            self.twin.weight = self.last.weight
        if shared == "memory":
            self.twin.weight = nn.Parameter(self.last.weight.data)

    def forward(self, x):
        h = self.hidden(x)
        return self.last(h) + self.twin(h)


def frozen(model):
    model.last.weight.requires_grad_(False)
    return model


def with_value(layer, name, value):
    model = made()
    setattr(getattr(model, layer), name, value)
    return model


def with_dropout_off():
    model = made()
    model.drop.eval()
    return model


def transposed(model):
    model.last.weight = nn.Parameter(model.last.weight.detach().t().contiguous().t())
    return model


def offset(model):
    model.last.weight = nn.Parameter(torch.randn(5, 8)[1:])
    return model


MODELS = {
    "a constant": lambda: made(Scaled),
    "a type of constant": lambda: made(WholeScaled),
    "an operator": lambda: made(OtherOp),
    "a function of autograd": lambda: made(OtherBackward),
    "a name": lambda: made(Renamed),
    "a width": lambda: made(Net, 9),
    "a frozen parameter": lambda: frozen(made()),
    "the mode": lambda: made().eval(),
    "the mode of one module": with_dropout_off,
    "the rate of dropout": lambda: with_value("drop", "p", 0.5),
    "the momentum of a norm": lambda: with_value("norm", "momentum", 0.3),
    "the epsilon of a norm": lambda: with_value("norm", "eps", 0.3),
    "the layout of a parameter": lambda: transposed(made()),
    "the place of a parameter in its memory": lambda: offset(made()),
    "the type of numbers": lambda: made().double(),
}


@pytest.mark.parametrize("what", MODELS)
def test_another_model_is_traced_again(what, tmp_path, traced):
    args = sample()
    capture(made(), args, cache=tmp_path)
    other = MODELS[what]()
    args = tuple(a.to(other.first.weight.dtype) for a in args)
    captured = capture(other, args, cache=tmp_path)
    assert len(traced) == 2
    assert_same_capture(captured, capture(other, args, cache=tmp_path))
    assert len(traced) == 2


def test_shared_parameters_and_shared_memory_are_told_apart(tmp_path, traced):
    for count, shared in enumerate(("nothing", "parameter", "memory"), 1):
        model, args = made(Twins, shared), sample()
        captured = capture(model, args, cache=tmp_path)
        assert len(traced) == count, shared
        assert_same_capture(captured, capture(model, args, cache=tmp_path))
        assert len(traced) == count, shared


def test_another_backward_of_the_same_forward_is_traced_again(tmp_path, traced, monkeypatch):
    model, args = made(OtherBackward), sample()
    before = capture(model, args, cache=tmp_path)

    class Right(Square):
        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * x * 2

    monkeypatch.setitem(globals(), "Square", Right)
    after = capture(model, args, cache=tmp_path)
    assert len(traced) == 2
    assert before.program["nodes"] != after.program["nodes"]


INPUTS = {
    "a shape": (torch.zeros(7, 6),),
    "a layout": (torch.zeros(6, 5).t(),),
    "a window": (torch.zeros(5, 9)[:, 2:8],),
    "a gradient": (torch.zeros(5, 6, requires_grad=True),),
}


@pytest.mark.parametrize("what", INPUTS)
def test_other_inputs_are_traced_again(what, tmp_path, traced):
    model = made()
    capture(model, sample(), cache=tmp_path)
    capture(model, INPUTS[what], cache=tmp_path)
    assert len(traced) == 2


@pytest.mark.parametrize("extra", [2, 1.0, True])
def test_another_number_among_the_inputs_is_traced_again(extra, tmp_path, traced):
    model = made(ManyOutputs)
    capture(model, sample(), dict(extra=1), cache=tmp_path)
    capture(model, sample(), dict(extra=extra), cache=tmp_path)
    assert len(traced) == 2


LOSSES = {
    "another function": F.l1_loss,
    "another number": lambda y, target: F.mse_loss(y, target) * 2,
    "another option": lambda y, target: F.mse_loss(y, target, reduction="sum"),
}


@pytest.mark.parametrize("what", LOSSES)
def test_another_loss_is_traced_again(what, tmp_path, traced):
    model, args = made(), (*sample(), torch.randn(5, 4))
    for loss in (F.mse_loss, LOSSES[what]):
        capture_step(model, loss, SGD(model.parameters(), lr=0.1), args, cache=tmp_path)
    assert len(traced) == 2


@contextlib.contextmanager
def changed(read, write, value):
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


def other_environment():
    return changed(lambda: os.environ.get("PYTORCH_TESTED", ""), lambda v: os.environ.__setitem__("PYTORCH_TESTED", v), "1")


SURROUNDINGS = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "the type of autocast": lambda: torch.autocast("cpu", torch.float16),
    "deterministic algorithms": lambda: changed(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True),
    "the number of threads": lambda: changed(torch.get_num_threads, torch.set_num_threads, 3),
    "the default type": lambda: changed(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "cuDNN": lambda: torch.backends.cudnn.flags(enabled=False),
    "oneDNN": lambda: torch.backends.mkldnn.flags(enabled=False),
    "attention": lambda: torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]),
    "anomaly detection": lambda: torch.autograd.set_detect_anomaly(True),
    "the tracer's settings": lambda: torch._functorch.config.patch(functionalize_rng_ops=True),
    "the environment": other_environment,
}


@pytest.mark.parametrize("what", SURROUNDINGS)
def test_other_surroundings_have_another_key(what):
    """Not all of these change the graph at hand; they may change others."""
    plain = graph_key.surroundings()
    assert plain == graph_key.surroundings()
    with SURROUNDINGS[what]():
        assert graph_key.surroundings() != plain
    if what != "the environment":
        assert graph_key.surroundings() == plain


def test_a_graph_under_autocast_is_traced_again(tmp_path, traced):
    model, args = made(), sample()
    capture(model, args, cache=tmp_path)
    with SURROUNDINGS["autocast"]():
        capture(model, args, cache=tmp_path)
        assert len(traced) == 2
    with SURROUNDINGS["the type of autocast"]():
        capture(model, args, cache=tmp_path)
        assert len(traced) == 3
    capture(model, args, cache=tmp_path)
    assert len(traced) == 3


@pytest.mark.parametrize("name", ["__version__", "git_version", "cuda"])
def test_another_torch_traces_again(name, tmp_path, traced, monkeypatch):
    model, args = made(), sample()
    capture(model, args, cache=tmp_path)
    graph_key.versions.cache_clear()
    monkeypatch.setattr(torch if name == "__version__" else torch.version, name, "99")
    capture(model, args, cache=tmp_path)
    assert len(traced) == 2
    monkeypatch.undo()
    graph_key.versions.cache_clear()


def test_another_regen_traces_again(tmp_path, monkeypatch):
    """Its code counts, whatever its version says."""
    graph_key.versions.cache_clear()
    here = graph_key.versions()
    (tmp_path / "graph_key.py").write_text("other")
    monkeypatch.setattr(graph_key, "__file__", str(tmp_path / "graph_key.py"))
    graph_key.versions.cache_clear()
    assert graph_key.versions() != here
    monkeypatch.undo()
    graph_key.versions.cache_clear()


# What cannot be told apart is not kept.

@torch.library.custom_op("regen_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


doubled.register_fake(torch.empty_like)
doubled.register_autograd(lambda ctx, gradient: gradient * 2)


class WithOwnOperator(Net):
    def hidden(self, x):
        return doubled(super().hidden(x))


class Nothing(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


HIDDEN = {
    "an operator of the user's": (WithOwnOperator, contextlib.nullcontext),
    "a large constant": (ManyOutputs, lambda: changed(lambda: 1 << 20, set_most_constant_bytes, 8)),
    "a mode": (Net, Nothing),
    "a replaced operator": (Net, lambda: changed(lambda: False, replace_operator, True)),
    "hooks for saved tensors": (Net, lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)),
}


def set_most_constant_bytes(value):
    from regen._capture import conversion_file

    conversion_file.MOST_CONSTANT_BYTES = value


def replace_operator(on):
    (torch.library._impls.add if on else torch.library._impls.discard)("aten/relu/AutogradCPU")


@pytest.mark.parametrize("what", HIDDEN)
def test_what_code_may_hide_behind_is_not_kept(what, tmp_path, traced):
    kind, surroundings = HIDDEN[what]
    model, args = made(kind), sample()
    with surroundings():
        for _ in range(2):
            capture(model, args, cache=tmp_path)
    assert len(traced) == 2 and not list(tmp_path.iterdir())


def test_a_tensor_that_nobody_owns_has_no_key():
    """Its contents could be part of the graph."""
    graph = torch.fx.Graph()
    graph.output(graph.get_attr("held"))
    module = torch.fx.GraphModule({"held": torch.ones(2)}, graph)
    assert graph_key.graph(module, {"held": module.held})
    with pytest.raises(graph_key.NoKey):
        graph_key.graph(module, {})


# Files.

def the_file(folder):
    (path,) = folder.iterdir()
    return path


DAMAGE = {
    "empty": lambda content: b"",
    "cut off": lambda content: content[:-100],
    "cut off in its first line": lambda content: content[:20],
    "with another number": lambda content: content.replace(b'"sizes":[8', b'"sizes":[9', 1),
    "of another kind": lambda content: b'{"plan": 1}',
    "not text": lambda content: b"\xff\xfe" * 100,
    "longer": lambda content: content + b" ",
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_is_written_again(how, tmp_path, traced):
    model, args = made(), sample()
    plain = capture(model, args, cache=tmp_path)
    content = the_file(tmp_path).read_bytes()
    assert DAMAGE[how](content) != content
    the_file(tmp_path).write_bytes(DAMAGE[how](content))
    assert_same_capture(plain, capture(model, args, cache=tmp_path))
    assert len(traced) == 2
    assert the_file(tmp_path).read_bytes() == content


def test_there_is_no_pickle_in_a_file(tmp_path):
    capture(made(ManyOutputs), sample(), cache=tmp_path)
    head, body = the_file(tmp_path).read_bytes().split(b"\n", 1)
    assert head.startswith(b"regen-conversion 1 ")
    assert set(json.loads(body)) == {
        "storages", "values", "nodes", "live", "brought", "tangents", "outputs", "gradients", "mutations"}


def test_without_a_cache_nothing_is_read_or_written(tmp_path, monkeypatch):
    monkeypatch.setenv("REGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))

    def refuse(*args):
        raise AssertionError("the cache was used")

    for name in ("kept", "keep", "graph_key"):
        monkeypatch.setattr(capture_cache, name, refuse)
    capture(made(), sample(), cache=False)
    assert not list(tmp_path.iterdir())


def test_the_default_folder_is_that_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("REGEN_CACHE", str(tmp_path / "cache"))
    capture(made(), sample(), cache=None)
    assert the_file(tmp_path / "cache").name.startswith("graph-")


def test_a_full_disk_is_no_error_and_leaves_nothing(tmp_path, traced, monkeypatch):
    def full(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr(cache_folder.os, "replace", full)
    capture(made(), sample(), cache=tmp_path)
    assert len(traced) == 1 and not list(tmp_path.iterdir())


def test_writers_do_not_get_into_each_other(tmp_path):
    path, contents = tmp_path / "graph-x.json", [bytes([65 + i]) * 300_000 for i in range(4)]
    stop, broken = threading.Event(), []

    def read():
        while not stop.is_set():
            found = path.read_bytes() if path.exists() else contents[0]
            if found not in contents:
                broken.append(len(found))

    reader = threading.Thread(target=read)
    reader.start()
    writers = [threading.Thread(target=lambda c=c: [cache_folder.write_whole(path, c) for _ in range(30)]) for c in contents]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stop.set()
    reader.join()
    assert not broken and list(tmp_path.iterdir()) == [path]


def test_files_that_were_used_longest_ago_go_first(tmp_path):
    for age in range(5):
        path = tmp_path / f"graph-{age}.json"
        path.write_bytes(b"x" * 100)
        os.utime(path, (1000 - age, 1000 - age))
    (tmp_path / "plan-1.json").write_bytes(b"x" * 1000)
    cache_folder.drop_oldest(tmp_path, "graph-*.json", 250)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["graph-0.json", "graph-1.json", "plan-1.json"]


# Dynamo's part.

@torch._dynamo.assume_constant_result
def spoil(weight):
    with torch.no_grad():
        return float(weight.zero_().sum() + 2)


class AsksForValues(Net):
    def forward(self, x):
        return super().forward(x) * spoil(self.last.weight)


def test_functions_that_want_values_get_copies():
    model = made(AsksForValues)
    before = model.last.weight.detach().clone()
    capture(model, sample())
    assert_same_bits("weight", model.last.weight.detach(), before)


def test_parameters_are_not_copied_otherwise(monkeypatch):
    from regen._capture import dynamo_graph

    copies = []
    monkeypatch.setattr(dynamo_graph.dynamo_builder, "clone_input", lambda x, **options: copies.append(x) or x.clone())
    capture(made(), sample())
    assert not copies


def test_garbage_is_looked_for_again_after_a_capture():
    import gc

    assert gc.isenabled()
    capture(made(), sample())
    assert gc.isenabled()
    gc.disable()
    try:
        capture(made(), sample())
        assert not gc.isenabled()
    finally:
        gc.enable()
