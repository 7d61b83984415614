"""Wrong orders of things, failures in the middle of a step, models that cannot be wrapped: clear errors, and nothing left behind."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regen
from small_training import Net, assert_same, batch, in_use, make, pair, wrap

# Wrong orders of things.

def test_gradients_of_gradients_are_refused():
    _, wrapped = pair()
    grads = torch.autograd.grad(wrapped(batch()[0]).sum(), list(wrapped.parameters()), create_graph=True)
    with pytest.raises(regen.Error, match="a planned backward pass cannot be differentiated again"):
        grads[0].sum().backward()


def test_a_penalty_on_gradients_is_no_constant():
    """Beside a loss that has other gradients, those of the penalty would be missing."""
    plain, wrapped = pair()
    x = batch()[0].requires_grad_()
    torch.manual_seed(1)
    (gradient,) = torch.autograd.grad(wrapped(x).sum(), x, create_graph=True)
    other = sum(p.square().sum() for p in wrapped.parameters())
    with pytest.raises(regen.Error, match="expected the plain model for a pass whose gradients are part of a loss"):
        (other + gradient.square().sum()).backward()
    torch.manual_seed(1)
    assert torch.equal(gradient, torch.autograd.grad(plain(x).sum(), x)[0])


def test_autograd_grad_of_some_parameters():
    plain, wrapped = pair()
    found = []
    for model in (plain, wrapped):
        torch.manual_seed(0)
        loss = F.cross_entropy(model(batch()[0]), batch()[1])
        found.append(torch.autograd.grad(loss, [model.last.weight, model.first.bias]))
    assert all(torch.equal(a, b) for a, b in zip(*found))


def test_a_parameter_changed_before_the_backward_pass_is_refused():
    _, wrapped = pair()
    loss = wrapped(batch()[0]).sum()
    with torch.no_grad():
        wrapped.last.weight.add_(1)
    with pytest.raises(RuntimeError, match="'last.weight' was changed in place"):
        loss.backward()
    wrapped(batch()[0]).sum().backward()


class Fault(Exception):
    pass


@pytest.mark.parametrize("chunk", [1, 16 << 20])
def test_an_exception_in_the_middle_of_a_step(chunk):
    plain, wrapped = pair(gradient_chunk=chunk)
    x, y = batch()
    for _ in range(2):
        F.cross_entropy(wrapped(x), y).backward()
        wrapped.zero_grad()
    before = in_use()

    def fail(gradient):
        raise Fault

    handle = wrapped.last.weight.register_hook(fail)
    for _ in range(3):
        with pytest.raises(Fault):
            F.cross_entropy(wrapped(x), y).backward()
        wrapped.zero_grad()
    assert in_use() <= before
    handle.remove()
    wrapped.load_state_dict(plain.state_dict())
    for model in (plain, wrapped):
        torch.manual_seed(0)
        F.cross_entropy(model(x), y).backward()
    assert_same(plain, wrapped)


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 8)
        self.net = Net(dropout=0.0)

    def forward(self, index):
        return self.net(self.table(index))


def test_an_operator_that_fails():
    index = torch.randint(10, (64,), generator=torch.Generator().manual_seed(0))
    plain, wrapped = pair(Lookup, x=index)
    wrapped(index).sum().backward()
    wrapped.zero_grad()
    before = in_use()
    with pytest.raises(RuntimeError, match="index out of range"):
        wrapped(index + 5)
    assert in_use() == before
    wrapped.load_state_dict(plain.state_dict())
    for model in (plain, wrapped):
        model(index).sum().backward()
    assert_same(plain, wrapped)


def test_hooks_that_raise_on_nan():
    plain, wrapped = pair()
    x, y = batch()
    for model in (plain, wrapped):
        model.first.weight.register_hook(raise_on_nan)
    F.cross_entropy(wrapped(x), y).backward()
    wrapped.zero_grad()
    before = in_use()
    for _ in range(3):
        with pytest.raises(Fault):
            (F.cross_entropy(wrapped(x), y) * float("nan")).backward()
        wrapped.zero_grad()
    assert in_use() <= before
    wrapped.load_state_dict(plain.state_dict())
    for model in (plain, wrapped):
        torch.manual_seed(0)
        F.cross_entropy(model(x), y).backward()
    assert_same(plain, wrapped)


def raise_on_nan(gradient):
    if gradient.isnan().any():
        raise Fault


def test_a_step_leaves_no_memory_behind():
    wrapped = pair(budget=0.9, reserve=10_000)[1]
    before = in_use()
    for _ in range(2):
        F.cross_entropy(wrapped(batch()[0]), batch()[1]).backward()
        wrapped.zero_grad()
        assert in_use() == before  # from the first step on: states of generators are taken with the arena


@pytest.mark.parametrize("budget", [0.9, "1000"])
def test_a_model_that_goes_takes_its_memory_along(budget):
    def use():
        try:
            wrapped = wrap(make(), (batch()[0],), budget, planner="checkmate")
            wrapped(batch()[0]).sum().backward()
        except regen.BudgetError:
            assert budget == "1000"

    use()
    before = in_use()
    use()
    assert in_use() == before


# Anomalies.

def test_anomalies_are_found():
    _, wrapped = pair()
    with torch.autograd.detect_anomaly(check_nan=True):
        F.cross_entropy(wrapped(batch()[0]), batch()[1]).backward()
        loss = wrapped(batch()[0]).sum() * float("nan")
        with pytest.raises(RuntimeError, match="returned nan values"):
            loss.backward()


# Bad models.

def test_bad_models():
    x = batch()[0]
    with pytest.raises(regen.CaptureError, match="wrapped already"):
        wrap(wrap(make(), (x,), 0.9), (x,), 0.9)
    with pytest.raises(regen.CaptureError, match="cannot plan a step of .*: it is wrapped"):
        wrapped = wrap(make(), (x,), 0.9)
        regen.step(wrapped, F.cross_entropy, torch.optim.SGD(wrapped.parameters(), lr=0.1), batch(), 0.9)
    with pytest.raises(regen.CaptureError, match="one device"):
        model = make()
        model.last.to("meta")
        wrap(model, (x,), 0.9)
    with pytest.raises(regen.CaptureError, match="cannot capture Sequential: 1 is a LazyLinear whose parameters have no shape yet; expected a model that"):
        wrap(nn.Sequential(nn.Linear(8, 4), nn.LazyLinear(2)), (x,), 0.9)
    with pytest.raises(regen.CaptureError, match="cannot capture Sequential: 1 is a torch.jit.ScriptModule; expected modules of Python"):
        wrap(nn.Sequential(nn.Linear(8, 4), torch.jit.script(nn.Linear(4, 4))), (x,), 0.9)
    patched = make()
    patched.forward = lambda x: x
    with pytest.raises(regen.CaptureError, match="forward was replaced"):
        wrap(patched, (x,), 0.9)


@torch.library.custom_op("regen_test::without_cpu", mutates_args=(), device_types="cuda")
def without_cpu(x: torch.Tensor) -> torch.Tensor:
    return x * 2


without_cpu.register_fake(lambda x: torch.empty_like(x))
without_cpu.register_autograd(lambda context, gradient: gradient * 2)


class Elsewhere(Net):
    def forward(self, x):
        return super().forward(without_cpu(x) + self.first.bias.sum())


def test_an_operator_without_a_kernel_on_the_device():
    before = in_use()
    with pytest.raises(regen.RegenError, match="regen_test::without_cpu") as error:
        wrap(make(Elsewhere), (batch()[0],), 0.9)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500, str(error.value)
    del error
    assert in_use() <= before
