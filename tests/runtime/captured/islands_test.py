"""Parts of a model that cannot be captured run as Python between planned parts: training has plain PyTorch's bits.

Each model below does something whose sizes or values depend on what it computes. It trains three steps on batches that lead to other sizes each
time, plain, by `wrap` and by `step`, with everything kept and at 70 % of the range between the least budget and that."""

import copy
import pathlib
import random
import re
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import compared_training
import regen
from compared_training import OPTIONS, RESERVE, assert_same, budget_at, step_within
from regen.capture import capture, save

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "experiments"))

class Experts(nn.Module):
    """Each row goes to one expert; on some batches an expert has none."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.router = nn.Linear(16, 3)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Dropout(dropout), nn.Linear(24, 16)) for _ in range(3))

    def forward(self, h):
        probabilities = self.router(h).softmax(-1)
        best = probabilities.argmax(-1)
        out = torch.zeros_like(h)
        for number, expert in enumerate(self.experts):
            rows = (best == number).nonzero()[:, 0]
            if len(rows):
                out[rows] = (expert(h[rows]) * probabilities[rows, number, None]).to(out.dtype)
        return out


class Net(nn.Module):
    def __init__(self, *inner):
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(8, 16), nn.ModuleList(inner), nn.Linear(16, 8)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        for inner in self.inner:
            h = h + inner(torch.tanh(h))
        return torch.tanh(self.last(F.dropout(h, 0.1))).square().mean()


class NormalizesSome(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(16)

    def forward(self, h):
        rows = (h.abs().sum(1) > 3).nonzero()[:, 0]
        return h.index_put((rows,), self.norm(h[rows]))


class Writes(nn.Module):
    """Changes its argument, and draws from Python's generator."""

    def __init__(self):
        super().__init__()
        self.fill = nn.Parameter(torch.ones(16))

    def mask(self, h):
        rows = random.sample(range(len(h)), random.randrange(1, len(h) // 2))
        h[rows] = self.fill
        return h

    def forward(self, h):
        h = h * 2
        h = self.mask(h)
        return torch.sigmoid(h)


class ReadsResults(nn.Module):
    def forward(self, h):
        return h * float(h.detach().abs().max()) if h.sum().item() > 0 else h * 0.5


class SelectsByOwnMask(nn.Module):
    """What is saved for the backward pass says how large gradients are."""

    def forward(self, h):
        chosen = h > 0
        return torch.where(chosen, h, h * 0.1) + (h[chosen] * 2).tanh().mean()


class Packs(nn.Module):
    """Its operator reads lengths that the model computes, without asking PyTorch for them."""

    def __init__(self):
        super().__init__()
        self.inner = nn.LSTM(4, 4, batch_first=True)

    def forward(self, h):
        lengths = (h.detach()[:, 0] > 0).long() * 2 + 2
        packed = nn.utils.rnn.pack_padded_sequence(h.unflatten(1, (4, 4)), lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.inner(packed)[0], batch_first=True, total_length=4)[0].flatten(1)


class Casts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = Experts()

    def forward(self, h):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.experts(h).float()


class Ranges(nn.Module):
    """Gives its buffers other tensors, on values that it computes, and an attribute too."""

    def __init__(self, attribute=False):
        super().__init__()
        self.attribute = attribute
        self.register_buffer("least", torch.zeros(1))
        self.register_buffer("mean", torch.zeros(16))
        self.seen = None

    def forward(self, h):
        least = h.detach().min()
        assert not least.isnan().item()
        if self.least.max() > -1e-5:
            self.least = self.least + least
        else:
            self.least = self.least * 0.9 + least * 0.1
        self.mean = self.mean * 0.5 + h.detach().mean(0)
        if self.attribute:
            self.seen = h.sum(0) if self.seen is None else self.seen.detach() + h.sum(0)
        return torch.sigmoid(h - self.least) * self.mean


class Matches(nn.Module):
    """Its code refuses what is made up: distances must not be negative."""

    def match(self, distances):
        if distances.min().item() < 0 or not distances.isfinite().all():
            raise ValueError("negative distances")
        return distances.argmin(1)

    def forward(self, h):
        rows = self.match(torch.cdist(h, h[:4]))
        return h - h[:4][rows] * 0.5


class RunsTwice(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, h):
        return self.inner(torch.sin(self.inner(h)))


class Notes:
    """What a function hands on."""

    def __init__(self, tensors):
        self.tensors, self.name = tensors, "notes"


class Keeps(nn.Module):
    """Keeps tensors in an object that it is given, as layers do with a cache."""

    def __init__(self):
        super().__init__()
        self.work = nn.Linear(16, 16)

    def forward(self, h, notes):
        if h.sum().item() < 1e6:
            h = self.work(h)
            notes.tensors.append(h * 2)
        return h


class Caches(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(Keeps() for _ in range(layers))

    def forward(self, h):
        notes = Notes([])
        for layer in self.layers:
            h = layer(h, notes)
        return h + sum(notes.tensors)


MODELS = {
    "refuses": lambda: Net(Experts(), Matches(), Matches()),
    "assigns": lambda: Net(Ranges(), RunsTwice(Ranges())),
    "assigns attributes": lambda: Net(Ranges(attribute=True), RunsTwice(Ranges(attribute=True))),
    "cache": lambda: Net(Caches(1)),
    "caches": lambda: Net(Caches(2), Caches(1)),
    "experts": lambda: Net(Experts(), Experts()),
    "dropout": lambda: Net(Experts(dropout=0.3), nn.Dropout(0.2), Experts(dropout=0.3)),
    "buffers": lambda: Net(NormalizesSome(), NormalizesSome()),
    "writes": lambda: Net(Writes()),
    "reads results": lambda: Net(ReadsResults()),
    "autocast": lambda: Net(Casts()),
    "own mask": lambda: Net(SelectsByOwnMask(), SelectsByOwnMask()),
    "packs": lambda: Net(Packs()),
}


def batches(n=32):
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(n, 8, generator=generator) * scale,) for scale in (1.5, 0.9, 0.4)]


def seed():
    torch.manual_seed(3)
    random.seed(3)


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)


def left_behind(model, loss):
    """Python's generator too."""
    return compared_training.left_behind(model, loss) | {"Python's": torch.tensor(random.getstate()[1])}


def train_by_passes(model, data, optimizer):
    return compared_training.train_by_passes(model, data, optimizer, left_behind)


@pytest.mark.parametrize("fraction", [1.0, 0.7])
@pytest.mark.parametrize("name", MODELS)
def test_training_is_the_same(name, fraction):
    torch.manual_seed(0)
    model, data = MODELS[name](), batches()
    seed()
    plain = copy.deepcopy(model)
    theirs = train_by_passes(plain, data, adam(plain))
    seed()
    budget = budget_at(fraction, model, data[0])
    wrapped = regen.wrap(copy.deepcopy(model), data[0], budget, reserve=RESERVE, debug=True, **OPTIONS)  # released memory is nonsense
    assert_same(train_by_passes(wrapped, data, adam(wrapped)), theirs)
    assert wrapped.regen.active.captured.islands
    seed()
    whole = copy.deepcopy(model)
    step = step_within(0.8 if fraction < 1 else 1.0, whole, adam(whole), data[0])
    assert_same([left_behind(whole, step(*batch)) for batch in data], theirs, all_keys=False)


def test_an_island_may_run_again_instead_of_holding_what_it_saves():
    """Dropout and buffers in it too: random numbers are set back, and new contents of buffers are results."""
    torch.manual_seed(0)
    model, (rows,) = Net(*(Experts(dropout=0.3) for _ in range(4))), batches(n=256)[0]
    data = [(rows[torch.randperm(256)],) for _ in range(3)]
    seed()
    theirs = train_by_passes(plain := copy.deepcopy(model), data, adam(plain))
    seed()
    wrapped = regen.wrap(copy.deepcopy(model), data[0], budget_at(0.15, model, data[0]), reserve=RESERVE, link=(1.0, 1.0, 1.0), debug=True, **OPTIONS)
    assert_same(train_by_passes(wrapped, data, adam(wrapped)), theirs)
    report = wrapped.regen.plan.session.report
    assert (report.recomputed > 0, report.offloaded_bytes) == (True, 0)


def test_the_smallest_function_is_the_island():
    torch.manual_seed(0)
    captured = [capture(MODELS[name](), batches()[0]) for name in ("experts", "writes", "reads results")]
    assert [[call.name for call in c.islands] for c in captured] == [["inner.0.forward", "inner.1.forward"], ["inner.0.mask"], ["inner.0.forward"]]


class ReturnsObject(nn.Module):
    """As a whole an island: what its parts hand on has numbers that they compute. It returns an object that holds tensors."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 8)

    def counts(self, h):
        return (h > 0).sum(0).tolist()

    def forward(self, x):
        h = torch.tanh(self.first(x))
        for column, count in enumerate(self.counts(h)):
            h = h * (1 + 0.1 * count / len(x)) if column % 2 else h
        h = self.last(h)
        return {"loss": h.square().mean(), "notes": Notes([h, h.sin()])}


def test_an_island_may_return_objects_that_hold_tensors():
    torch.manual_seed(0)
    plain, data = ReturnsObject(), batches()
    wrapped = regen.wrap(copy.deepcopy(plain), data[0], 1 << 24, reserve=RESERVE, debug=True, **OPTIONS)
    for batch in data:
        theirs, ours = plain(*batch), wrapped(*batch)
        (theirs["loss"] + theirs["notes"].tensors[1].mean()).backward()
        (ours["loss"] + ours["notes"].tensors[1].mean()).backward()
        assert ours["notes"].name == "notes" and ours["notes"] is not theirs["notes"]
        assert all(torch.equal(a, b) for a, b in zip([ours["loss"], *ours["notes"].tensors], [theirs["loss"], *theirs["notes"].tensors]))
        assert all(torch.equal(a.grad, b.grad) for a, b in zip(wrapped.parameters(), plain.parameters()) if b.grad is not None)
    assert [call.name for call in wrapped.regen.active.captured.islands] == ["forward"]


class SharesItsInput(nn.Module):
    """`route` uses `h` twice, and so does the rest: autograd would add four gradients up in its own order."""

    def route(self, h):
        rows = (h.sum(1) > 0).nonzero()[:, 0]
        return h[rows].sum() + h[rows[:1]].sum()

    def forward(self, h):
        return torch.sin(h) * self.route(h)


def test_an_island_grows_where_gradients_would_be_added_in_another_order():
    torch.manual_seed(0)
    model, data = Net(SharesItsInput()), batches()
    (call,) = capture(model, data[0]).islands
    assert call.name == "inner.0.forward" and "added up in another order" in call.reason
    theirs = train_by_passes(plain := copy.deepcopy(model), data, adam(plain)) if seed() is None else None
    seed()
    wrapped = regen.wrap(copy.deepcopy(model), data[0], 1.0, reserve=RESERVE, **OPTIONS)
    assert_same(train_by_passes(wrapped, data, adam(wrapped)), theirs)


class Repeats(nn.Module):
    """Works on as many copies of its input as the input says."""

    def __init__(self):
        super().__init__()
        self.work = nn.Linear(16, 16)

    def forward(self, h):
        copies = int((h + 0 * self.work.weight.sum()).mean().item() * 100)
        return torch.stack([torch.tanh(self.work(h * (n + 1))).square() for n in range(max(1, copies))]).mean(0)


class Plain(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.work = inner, nn.Linear(16, 16)

    def forward(self, x):
        return self.work(self.inner(torch.sigmoid(x))).square().mean()


@pytest.mark.parametrize("whole_step", [False, True])
def test_more_than_on_the_sample_is_planned_again(whole_step):
    torch.manual_seed(0)
    model, data = Plain(Repeats()), [(torch.full((64, 16), v),) for v in (-3.0, -3.0, -2.0, 0.0)]
    seed()
    plain = copy.deepcopy(model)
    theirs = train_by_passes(plain, data, adam(plain))
    ours = copy.deepcopy(model)
    seed()
    if whole_step:
        step = regen.step(ours, None, adam(ours), data[0], 1 << 22, **OPTIONS)
        assert_same([left_behind(ours, step(*batch)) for batch in data], theirs, all_keys=False)
        (call,) = step.active.captured.islands
    else:
        ours = regen.wrap(ours, data[0], 1 << 22, reserve=RESERVE, **OPTIONS)
        assert_same(train_by_passes(ours, data, adam(ours)), theirs)
        (call,) = ours.regen.active.captured.islands
    assert call.held_bytes > 40 * 64 * 16 * 4  # the sample's were 4 copies, the last batch's 50


def test_what_does_not_fit_is_refused_in_one_line():
    torch.manual_seed(0)
    model = Plain(Repeats())
    wrapped = regen.wrap(model, (torch.full((64, 16), -3.0),), 1.0, reserve=1 << 16, **OPTIONS)
    with pytest.raises(regen.Error, match=r"^[^\n]*'inner.forward' asks for [^\n]* more than when it was recorded[^\n]*$"):
        wrapped(torch.full((64, 16), 4.0)).backward()
    with pytest.raises(regen.BudgetError, match=r"^[^\n]*inner\.forward[^\n]*$"):
        regen.wrap(Plain(Repeats()), (torch.full((64, 16), 4.0),), 60_000, reserve=1 << 14, **OPTIONS)


def test_a_plan_says_what_its_islands_cost():
    torch.manual_seed(0)
    wrapped = regen.wrap(MODELS["experts"](), batches()[0], 1.0, reserve=RESERVE, **OPTIONS)
    for text in (str(wrapped.regen.plan), wrapped.regen.plan.explain()):
        lines = [line for line in text.splitlines() if line.startswith("island inner.")]
        assert len(lines) == 2
        assert re.match(
            r"island inner\.0\.forward \(islands_test\.py:\d+\): [\d.]+ ms, [\d.]+ ms back; holds [\d.]+ KiB, works in [\d.]+ KiB and [\d.]+ KiB; "
            r"because .*size of a tensor depends on the values of another", lines[0])


class KeepsForever(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, h):
        if h.sum().item() > 1e6:
            return h
        self.seen.append(h * 2)
        return h * 3


def test_a_tensor_that_outlives_its_island_is_refused():
    with pytest.raises(regen.Error, match=r"island .* keeps a tensor of 2.00 KiB beyond its call; expected functions that return their tensors"):
        regen.wrap(Net(KeepsForever()), batches()[0], 1.0, reserve=RESERVE, **OPTIONS)


def test_a_program_with_islands_is_not_written_to_a_file(tmp_path):
    with pytest.raises(regen.CaptureError, match=r"'inner.0.forward' is an island, which runs as Python"):
        save(capture(Net(ReadsResults()), batches()[0]), tmp_path)


# Architectures of transformers that plain capture refuses, from their default configurations at tiny sizes.
ARCHITECTURES = [
    "mbart", "plbart", "llava", "switch_transformers", "big_bird", "wav2vec2_ctc", "wav2vec2", "hubert", "wavlm", "unispeech", "sew"]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures_train_the_same(name):
    pytest.importorskip("transformers", reason="transformers is not installed")
    import coverage

    case = next(a for a in coverage.ARCHITECTURES if a.name == name)
    row = coverage.examine(case, [1.0, 0.7], capture_only=False, operators=False)
    assert (row.message, row.equal) == ("", ["yes", "yes"])
