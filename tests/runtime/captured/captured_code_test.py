"""Whatever Python does in a forward pass, training under a plan is training: loss, gradients, buffers and generator are plain PyTorch's bits.

Each model below does one thing that a tracer could get wrong. It returns its loss and trains three steps on three batches, plain, by `wrap` and by
`step`, with everything kept and at 70 % of the range between the least budget and that."""

import copy
import dataclasses
import functools
import inspect
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import regen
from compared_training import OPTIONS, RESERVE, assert_same, budget_at, left_behind, step_within, train_by_passes
from regen import _runtime
from regen._check import same_bits

STEPS = 3


class Base(nn.Module):
    """A few layers; subclasses say what happens between them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.second(self.between(torch.tanh(self.first(x)), x)).square().mean()

    def between(self, h, x):
        return h


class WritesWhole(Base):
    def between(self, h, x):
        h = h * 2
        flat = h.view(-1)
        h.add_(1).mul_(0.5)
        flat.sub_(0.25)  # through another view: h follows
        F.relu(h, inplace=True)
        return h + flat.view_as(h)


class WritesParts(Base):
    def between(self, h, x):
        h = h * 1
        window = h[1:]
        corner = window[:, 2:5]
        corner.add_(h[1:, 5:8].detach())
        h[0] = 0
        h[:, 3] *= 2
        h.t()[4:6].mul_(3)
        window[0, 1] = h[2, 2]
        return h * window.sum() + corner.sum()


class WritesByIndex(Base):
    def between(self, h, x):
        h = h.clone()
        h[x[:, 0] > 0] = 0.5
        h.masked_fill_(h > 0.9, 0.0)
        h.index_fill_(1, torch.tensor([0, 2]), 1.5)
        h.index_add_(0, torch.tensor([0, 1]), h[2:4].clone())
        return h.scatter_(1, torch.zeros(len(h), 1, dtype=torch.long), 2.0)


class WritesNewTensors(Base):
    def between(self, h, x):
        made = torch.zeros(4, 16)
        made[1:3] = torch.arange(16.0)
        made += torch.tensor([1.0, 2.0, 3.0, 4.0]).mul_(2)[:, None]
        total = h.new_empty(h.shape)
        total.copy_(h)
        total[:4] += made
        with torch.no_grad():
            out = torch.empty(16)
            torch.add(made[0], made[1], out=out)
            torch._foreach_add_([out, made], 1.0)  # pyright: ignore[reportPrivateImportUsage]
        return total + out + made.sum()


class ChangesShapeInPlace(Base):
    def between(self, h, x):
        h = h * 1
        h.unsqueeze_(0)
        h.transpose_(1, 2)
        return h.squeeze_(0).t().contiguous()


class Draws(Base):
    """Dropout and noise in several layouts; the drawn numbers are those of eager, in its order."""

    def between(self, h, x):
        h = F.dropout(h, 0.3)
        h = F.dropout(h.t(), 0.3).t()
        h = h + 0.1 * torch.rand_like(h) + torch.randn(16) * 0.01
        noise = torch.empty(16, len(h)).t().normal_()
        part = torch.zeros(len(h), 20)
        part[:, 2:18].uniform_(-1, 1)
        return F.rrelu(h, training=True) + noise * 0.01 + part[:, 2:18]


class NormalizesAndCounts(Base):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(16)
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def between(self, h, x):
        h = self.norm(self.norm(h))
        self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        self.mean[2:4] = 1.0
        self.count += 1
        return h - self.mean


class AssignsAttributes(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))
        self.seen = None

    def between(self, h, x):
        self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
        self.seen = h * 2
        return h - self.mean


class TiesWeights(Base):
    def __init__(self):
        super().__init__()
        self.again = nn.Linear(8, 16)
        self.again.weight = self.first.weight
        self.table = torch.arange(16.0)  # an attribute that is no buffer

    def between(self, h, x):
        return h + self.again(x) + self.first.weight.sum(1) + self.table


class UsesAutocast(Base):
    def between(self, h, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = h @ self.first.weight @ self.first.weight.t()
            return self.first(self.second(h)).float() + h.float()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight.sum()

    @staticmethod
    def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        return gradient * 2, (gradient * x).sum() * torch.ones_like(weight)


class OwnGradients(Base):
    def between(self, h, x):
        with torch.no_grad():
            target = self.first(x).sigmoid()
        return Doubled.apply(h, self.first.bias) * target


class Checkpoints(Base):
    def between(self, h, x):
        block = lambda y: F.dropout(F.gelu(self.first(self.second(y))), 0.3)  # noqa: E731
        h = checkpoint(block, h, use_reentrant=False)
        return checkpoint(block, F.dropout(h, 0.1), use_reentrant=False)


class ReentrantCheckpoints(Base):
    """Of one block twice, of a sequence, and of one without an input that requires a gradient: that trains nothing."""

    def __init__(self):
        super().__init__()
        self.more = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 16), nn.Tanh())
        self.alone = nn.Linear(8, 16)

    def between(self, h, x):
        block = lambda y, scale: F.dropout(F.gelu(self.first(self.second(y))), 0.3) * scale  # noqa: E731
        h = checkpoint(block, h, 0.5, use_reentrant=True)
        h = checkpoint_sequential(self.more, 2, checkpoint(block, F.dropout(h, 0.1), 2.0, use_reentrant=True), use_reentrant=True)
        return h + checkpoint(self.alone, x, use_reentrant=True)


class HasHooks(Base):
    def __init__(self):
        super().__init__()
        self.first.register_forward_hook(lambda module, args, output: output * 1.5)
        self.second.register_forward_pre_hook(lambda module, args: (args[0] + 1,))


class Branches(Base):
    """On the values of a batch: the second one goes another way."""

    def between(self, h, x):
        if (x[:, 0] < 100).all():
            return h * 2
        return h.sin()


class Skips(Base):
    """A layer at random, as layer drop does."""

    def between(self, h, x):
        h = F.dropout(h, 0.2)
        for _ in range(3):
            if torch.rand([]) < 0.5:
                continue
            h = F.dropout(self.first(self.second(h)), 0.2)
        return h


class ReadsNumbers(Base):
    def between(self, h, x):
        sizes = (x[:2, 0] > -100).tolist()
        return h * x.shape[0] * sum(sizes) + int((x > -100).sum())


class SelectsByMask(Base):
    """As many rows in each batch, but others."""

    def between(self, h, x):
        mask = x[:, 0] > x[:, 0].median()
        return h[mask] + torch.masked_select(h, mask[:, None]).sum() + h[torch.nonzero(mask)[:, 0]]


class Recurrent(Base):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 16, 2)

    def between(self, h, x):
        return self.lstm(h[None])[0][0]


class Selects(Base):
    """Views of views of parameters, chunks, unbinding, complex numbers."""

    def between(self, h, x):
        a, b = h.chunk(2, 1)
        c, d = torch.view_as_real(torch.view_as_complex(h.reshape(len(h), 8, 2).contiguous()) * torch.polar(torch.ones(8), torch.arange(8.0))).unbind(-1)
        return torch.cat([a * self.first.weight[1, 2], c], 1) + torch.cat([d, b], 1)


class ReadsTheLoss(Base):
    def between(self, h, x):
        return h * float(h.sum())


MODELS = [
    WritesWhole, WritesParts, WritesByIndex, WritesNewTensors, ChangesShapeInPlace, Draws, NormalizesAndCounts, AssignsAttributes, TiesWeights,
    UsesAutocast, OwnGradients, Checkpoints, ReentrantCheckpoints, HasHooks, Branches, Skips, ReadsNumbers, SelectsByMask, Recurrent, Selects, ReadsTheLoss,
]


def batches(n=32):
    generator = torch.Generator().manual_seed(1)
    found = [(torch.randn(n, 8, generator=generator),) for _ in range(STEPS)]
    found[1][0][0, 0] = 200.0
    return found


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train_by_step(step, model, data):
    return [left_behind(model, step(*batch)) for batch in data]


@pytest.mark.parametrize("fraction", [1.0, 0.7])
@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_training_is_the_same(kind, fraction):
    torch.manual_seed(0)
    model, data = kind(), batches()
    torch.manual_seed(3)
    plain = copy.deepcopy(model)
    theirs = train_by_passes(plain, data, sgd(plain))
    torch.manual_seed(3)
    wrapped = regen.wrap(copy.deepcopy(model), data[0], budget_at(fraction, model, data[0]), reserve=RESERVE, **OPTIONS)
    assert_same(train_by_passes(wrapped, data, sgd(wrapped)), theirs)
    torch.manual_seed(3)
    whole = copy.deepcopy(model)
    step = step_within(0.8 if fraction < 1 else 1.0, whole, sgd(whole), data[0])
    assert_same(train_by_step(step, whole, data), theirs, all_keys=False)


def test_another_outcome_is_another_capture():
    torch.manual_seed(0)
    data = batches()
    wrapped = regen.wrap(Branches(), data[0], 1.0, reserve=RESERVE, **OPTIONS)
    for batch in (*data, *data):
        wrapped(*batch).backward()
    assert len(wrapped.regen.shapes) == 2
    (decision,) = wrapped.regen.active.captured.conditions.decisions
    assert decision.source.startswith("captured_code_test.py:")


class ReadsTheBatch(Base):
    def between(self, h, x):
        return h * x.sum().item()


def test_values_that_the_model_computes_are_read_in_an_island():
    wrapped = regen.wrap(ReadsTheLoss(), batches()[0], 1.0, reserve=RESERVE, **OPTIONS)
    (island,) = wrapped.regen.active.captured.islands
    assert island.name == "between"
    assert re.search(r"captured_code_test.py:\d+: a tensor's value is read into Python that the model computes", island.reason)


def test_a_number_that_is_new_in_every_batch_ends_in_one_line():
    wrapped = regen.wrap(ReadsTheBatch(), batches(4)[0], 1.0, reserve=RESERVE, planner="keep_all", **OPTIONS)
    with pytest.raises(regen.CaptureError, match="different ways for one shape"):
        for seed in range(20):
            torch.manual_seed(seed)
            wrapped(torch.randn(4, 8)).backward()


# Inputs and outputs.

@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    others: list
    name: str = "batch"


@dataclasses.dataclass
class Result:
    loss: torch.Tensor
    logits: torch.Tensor
    cache: object = None


class Cache:
    """As a model's cache of keys and values: no container that PyTorch knows."""

    def __init__(self):
        self.layers = []
        self.note = "kept"

    def add(self, tensor):
        self.layers.append({"keys": tensor, "half": tensor[: len(tensor) // 2]})


class Objects(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, batch, labels=None, cache=None):
        cache = Cache() if cache is None else cache
        h = self.linear(batch.x) + batch.others[0][1]
        cache.add(h)
        return Result((h - labels).square().mean(), h.sigmoid(), cache)


def object_batch(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(32, 8, generator=generator)
    return Batch(x, [[None, torch.randn(8, generator=generator)]])


def test_objects_go_in_and_come_out():
    torch.manual_seed(0)
    model = Objects()
    plain = copy.deepcopy(model)
    sample = object_batch(0)
    wrapped = regen.wrap(model, (sample,), 1.0, kwargs={"labels": sample.x}, reserve=RESERVE, **OPTIONS)
    for seed in range(3):
        batch = object_batch(seed)
        mine, other = wrapped(batch, labels=batch.x), plain(batch, labels=batch.x)
        assert type(mine) is Result and type(mine.cache) is Cache and mine.cache.note == "kept"
        assert same_bits(mine.loss, other.loss) and same_bits(mine.logits, other.logits)
        (layer,), (expected,) = mine.cache.layers, other.cache.layers
        assert same_bits(layer["keys"], expected["keys"]) and same_bits(layer["half"], expected["half"])
        assert layer["half"].untyped_storage().data_ptr() == layer["keys"].untyped_storage().data_ptr()
        mine.loss.backward()
        other.loss.backward()
    for mine, other in zip(wrapped.parameters(), plain.parameters()):
        assert same_bits(mine.grad, other.grad)
    assert len(wrapped.regen.shapes) == 1


def test_what_the_loss_does_not_use_has_no_gradient():
    torch.manual_seed(0)
    model, batch = Objects(), object_batch(0)
    plain = copy.deepcopy(model)
    wrapped = regen.wrap(model, (batch,), "64MiB", kwargs={"labels": batch.x}, reserve=RESERVE, **OPTIONS)
    program = wrapped.regen.active.captured.program
    assert sum(storage["role"] == "tangent" for storage in program["storages"]) == 1
    returned = wrapped(batch, labels=batch.x)
    assert returned.logits.requires_grad
    returned.loss.backward()
    wrapped.zero_grad()
    for model in (plain, wrapped):  # captured again, with gradients for all
        returned = model(batch, labels=batch.x)
        (returned.loss + returned.logits.sum()).backward()
    for mine, other in zip(wrapped.parameters(), plain.parameters()):
        assert same_bits(mine.grad, other.grad)


class Scored(nn.Module):
    """A loss that the training loop may not use, statistics, a counter that the forward pass reads, and dropout."""

    def __init__(self):
        super().__init__()
        self.first, self.bn, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x, y):
        self.steps += 1
        logits = self.last(nn.functional.dropout(self.bn(self.first(x)), 0.3, self.training)) * (1 + self.steps)
        return {"loss": nn.functional.cross_entropy(logits, y), "logits": logits}


@pytest.mark.parametrize("autocast", [False, True])
def test_a_loop_with_a_loss_of_its_own(autocast):
    """The first pass is captured for the model's loss, and runs again when the gradient arrives elsewhere."""
    torch.manual_seed(0)
    plain, draws = Scored(), []
    wrapped = regen.wrap(copy.deepcopy(plain), budget="1MiB", gradient_chunk=1, **OPTIONS)
    for model in (plain, wrapped):
        torch.manual_seed(1)
        for _ in range(3):
            x, y = torch.randn(8, 8), torch.randint(4, (8,))
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                returned = model(x, y)
            noise = torch.rand(())  # the loop draws too
            (returned["logits"].float().square().mean() * noise + returned["loss"]).backward()
            draws.append(noise)
    assert wrapped.regen.passes == 4 and len(wrapped.regen.shapes) == 2
    for mine, other in zip(wrapped.parameters(), plain.parameters()):
        assert same_bits(mine.grad, other.grad)
    for mine, other in zip(wrapped.buffers(), plain.buffers()):
        assert same_bits(mine, other)
    assert all(same_bits(a, b) for a, b in zip(draws[:3], draws[3:]))


def test_a_model_in_another_mode_cannot_run_its_pass_again():
    torch.manual_seed(0)
    wrapped = regen.wrap(Scored(), budget="1MiB", **OPTIONS)
    returned = wrapped(torch.randn(8, 8), torch.randint(4, (8,)))
    wrapped.bn.eval()
    with pytest.raises(regen.UsageError, match="a gradient arrived for output"):
        returned["logits"].sum().backward()


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(16, 8), nn.Linear(8, 16)

    def forward(self, input_ids, labels):
        return F.cross_entropy(self.head(self.table(input_ids)).view(-1, 16), labels.view(-1))


def test_the_same_tensor_twice_and_then_two():
    torch.manual_seed(0)
    model = Language()
    plain = copy.deepcopy(model)
    first, second = torch.randint(16, (2, 4, 6)).unbind()
    wrapped = regen.wrap(model, (), 1.0, kwargs={"input_ids": first, "labels": first}, reserve=RESERVE, **OPTIONS)
    for labels in (first, second, first, first.clone()):
        mine, other = wrapped(input_ids=first, labels=labels), plain(input_ids=first, labels=labels)
        assert same_bits(mine, other)
        mine.backward()
        other.backward()
    for mine, other in zip(wrapped.parameters(), plain.parameters()):
        assert same_bits(mine.grad, other.grad)


def test_a_step_takes_keywords_and_finds_the_loss():
    torch.manual_seed(0)
    model = Objects()
    plain, sample = copy.deepcopy(model), object_batch(0)
    optimizer = sgd(plain)
    step = regen.step(model, None, sgd(model), (sample,), 1.0, kwargs={"labels": sample.x}, **OPTIONS)
    for seed in range(3):
        batch = object_batch(seed)
        optimizer.zero_grad()
        loss = plain(batch, labels=batch.x).loss
        loss.backward()
        optimizer.step()
        assert same_bits(step(batch, labels=batch.x), loss)
    for mine, other in zip(model.parameters(), plain.parameters()):
        assert same_bits(mine, other)


def test_the_wrapped_forward_has_the_models_signature():
    wrapped = regen.wrap(Objects(), (object_batch(0),), 1.0, kwargs={"labels": object_batch(0).x}, reserve=RESERVE, **OPTIONS)
    assert list(inspect.signature(wrapped.forward).parameters) == ["batch", "labels", "cache"]


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 1024)

    def forward(self, x):
        return self.linear(x).relu().square().mean()


def test_capturing_needs_no_memory_for_activations():
    x = torch.zeros(1).expand(1 << 20, 1)  # activations of 4 GiB each
    _runtime.reset_memory_peak("cpu")
    before = _runtime.memory_use("cpu")["allocated"]
    program = regen.capture.capture(Wide(), (x,)).program
    assert max(storage["bytes"] for storage in program["storages"]) == 4 << 30
    assert _runtime.memory_use("cpu")["allocated_peak"] - before < 1 << 20


@functools.lru_cache
def table(n):
    return torch.arange(float(n)).mul_(2) + torch.tensor([1.0] * n)


KEPT = []


class KeepsTensors(Base):
    def between(self, h, x):
        KEPT.append(h)
        return h + table(16)


def test_caches_of_the_users_code():
    torch.manual_seed(0)
    model = KeepsTensors()
    plain, data = copy.deepcopy(model), batches()
    table.cache_clear()
    wrapped = regen.wrap(model, data[0], 1.0, reserve=RESERVE, **OPTIONS)
    kept = KEPT[-1]
    for batch in (*data, (data[0][0][:5],)):  # the last is another shape, captured with a table from the cache
        mine, other = wrapped(*batch), plain(*batch)
        assert same_bits(mine, other)
        mine.backward()
        other.backward()
    for mine, other in zip(wrapped.parameters(), plain.parameters()):
        assert same_bits(mine.grad, other.grad)
    with pytest.raises(regen.UsageError, match="only there while a model was captured"):
        kept + 1


class TwoInputs(Base):
    def forward(self, x, y):  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(x) + super().forward(y)


def test_inputs_that_are_views_of_one_tensor():
    torch.manual_seed(0)
    model = TwoInputs()
    plain = copy.deepcopy(model)
    both = torch.randn(4, 16, requires_grad=True)
    wrapped = regen.wrap(model, (both[:, :8], both[:, 8:]), 1.0, reserve=RESERVE, **OPTIONS)
    found = []
    for each in (plain, wrapped):
        leaf = both.detach().clone().requires_grad_()
        each(leaf[:, :8], leaf[:, 8:]).backward()
        found.append(leaf.grad)
    assert same_bits(*found)


def test_autocast_around_the_model():
    torch.manual_seed(0)
    model, data = TiesWeights(), batches()
    plain = copy.deepcopy(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wrapped = regen.wrap(model, data[0], 1.0, reserve=RESERVE, **OPTIONS)
    for batch in data:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mine, other = wrapped(*batch), plain(*batch)
        assert same_bits(mine, other)
        mine.backward()
        other.backward()
    for mine, other in zip(wrapped.parameters(), plain.parameters()):
        assert same_bits(mine.grad, other.grad)


class LeavesAutocast(Base):
    def between(self, h, x):
        with torch.autocast("cpu", enabled=False):
            weight = self.first.weight.float()
            return h.float() @ weight @ weight.t()


def test_operators_are_measured_outside_of_the_callers_autocast():
    torch.manual_seed(0)
    model, data = LeavesAutocast(), batches()
    plain = copy.deepcopy(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # casts the product above, and those of its backward pass, were it around them
        wrapped = regen.wrap(model, data[0], 1.0, reserve=RESERVE, **OPTIONS)
    for batch in data:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mine, other = wrapped(*batch), plain(*batch)
        assert same_bits(mine, other)
        mine.backward()
        other.backward()
    for mine, other in zip(wrapped.parameters(), plain.parameters()):
        assert same_bits(mine.grad, other.grad)


class AsksWhetherItIsTraced(Base):
    def between(self, h, x):
        self.answers = (
            torch.jit.is_tracing(), torch.compiler.is_compiling(), isinstance(h, torch._subclasses.FakeTensor),  # pyright: ignore[reportPrivateImportUsage]
            isinstance(h, torch.fx.Proxy), torch.overrides.has_torch_function((h, x)), type(self.first.weight) is nn.Parameter)
        ANSWERS.append(self.answers)
        return h


ANSWERS = []


def test_the_model_does_not_notice():
    regen.capture.capture(AsksWhetherItIsTraced(), batches()[0])
    assert ANSWERS[-1] == (False, False, False, False, False, True)
