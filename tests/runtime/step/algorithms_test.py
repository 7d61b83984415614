"""Other algorithms, on an op that chooses as cuDNN's convolutions do: the first of its list that gets its scratch memory, which
it then remembers for the shape on the thread that called. Its results show which one made them."""

import threading
import time

import pytest
import torch

import regen
from regen._check import same_bits

MIB = 1 << 20
WIDTH = 1 << 14
# Scratch bytes and seconds.
ALGORITHMS = [(4 * MIB, 0.0), (2 * MIB, 0.02), (0, 0.06)]
TIGHT = 3 * MIB // 2

# By thread: Python's own thread-local values last no longer than a call where the thread is not Python's.
memory = {}


@torch.library.custom_op("regen_python_test::choosy", mutates_args=())
def choosy(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    remembered = memory.setdefault(threading.get_native_id(), {})
    known = [remembered[x.shape]] if x.shape in remembered else []
    for number in known + list(range(len(ALGORITHMS))):
        scratch, seconds = ALGORITHMS[number]
        try:
            torch.empty(scratch, dtype=torch.uint8)
        except torch.OutOfMemoryError:
            continue
        time.sleep(seconds)
        torch.mul(x, w, out=out)
        out += number / 8
        remembered[x.shape] = number
        return out
    raise RuntimeError("no algorithm can do with so little")


@choosy.register_fake
def _(x, w):
    return torch.empty_like(x)


def setup_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def backward(ctx, gradient):
    x, w = ctx.saved_tensors
    return gradient * w, gradient * x


choosy.register_autograd(backward, setup_context=setup_context)


class Chain(torch.nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        torch.manual_seed(0)
        self.weights = torch.nn.ParameterList(torch.rand(WIDTH) for _ in range(layers))

    def forward(self, x):
        for w in self.weights:
            x = choosy(x, w)
        return x


@pytest.fixture(autouse=True)
def nothing_remembered():
    memory.clear()
    yield
    memory.clear()


def sample():
    torch.manual_seed(1)
    return torch.rand(WIDTH)


def left_behind(model, x):
    model.zero_grad(set_to_none=True)
    y = model(x)
    y.backward(torch.linspace(-1, 1, WIDTH))
    return [y.detach().clone()] + [p.grad.clone() for p in model.parameters()]


def equal(a, b):
    return all(same_bits(x, y) for x, y in zip(a, b, strict=True))


def test_a_budget_below_the_default_scratch_fits_with_any():
    options = dict(reserve=0, work_limit=300_000, cache=False)
    refused = regen.will_it_fit(Chain(), (sample(),), TIGHT, **options)
    assert not refused and refused.least_budget > 4 * MIB
    fits = regen.will_it_fit(Chain(), (sample(),), TIGHT, algorithms="any", **options)
    assert fits and fits.least_budget <= TIGHT


def test_wrap_runs_what_the_plan_has_chosen_within_the_budget():
    x, plain, model = sample(), Chain(), Chain()
    by_default = left_behind(plain, x)
    memory.clear()
    wrapped = regen.wrap(model, (x,), TIGHT, reserve=0, work_limit=300_000, algorithms="any", debug=True, cache=False)
    found = left_behind(wrapped, x)
    session = wrapped.regen.plan.session
    assert session.report.other_algorithms == 3
    assert session.report.peak_bytes <= TIGHT
    assert session.memory().unforeseen == 0
    assert "3 ops run otherwise than by default" in str(wrapped.regen.plan)
    assert not equal(found, by_default)
    assert equal(found, left_behind(plain, x))  # this thread remembers


def test_step_trains_with_the_chosen_algorithms():
    x, target, planned, plain = sample(), sample() * 2, Chain(), Chain()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (planned, plain)]
    step = regen.step(planned, torch.nn.functional.mse_loss, optimizers[0], (x, target), budget=TIGHT, work_limit=300_000,
                      algorithms="any", cache=False)
    found = [step(x, target).clone() for _ in range(3)]
    assert step.plan.session.memory().unforeseen == 0
    for loss in found:
        optimizers[1].zero_grad()
        expected = torch.nn.functional.mse_loss(plain(x), target)
        expected.backward()
        optimizers[1].step()
        assert same_bits(loss, expected.detach())
    assert equal(list(planned.parameters()), list(plain.parameters()))


def test_by_default_the_bits_are_those_of_a_plain_run():
    x, plain, model = sample(), Chain(), Chain()
    expected = left_behind(plain, x)
    wrapped = regen.wrap(model, (x,), "16MiB", reserve=0, work_limit=300_000, cache=False)
    assert equal(left_behind(wrapped, x), expected)
    assert wrapped.regen.plan.session.report.other_algorithms == 0


def test_measurements_with_alternatives_serve_both_from_one_cache(tmp_path):
    x = sample()
    options = dict(reserve=0, work_limit=300_000, cache=tmp_path)
    regen.wrap(Chain(), (x,), TIGHT, algorithms="any", **options)
    again = regen.wrap(Chain(), (x,), TIGHT, algorithms="any", **options)
    assert again.regen.plan.session.report.other_algorithms == 3
    with pytest.raises(regen.BudgetError):
        regen.wrap(Chain(), (x,), TIGHT, **options)
    memory.clear()
    expected = left_behind(Chain(), x)
    assert equal(left_behind(regen.wrap(Chain(), (x,), "16MiB", **options), x), expected)


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="algorithms='fast' found, expected 'default' or 'any'"):
        regen.wrap(Chain(), (sample(),), TIGHT, algorithms="fast")
