"""Several forward passes before a backward pass, and several backward passes through one: what is gone runs again, with the same bits."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regen
from regen import _runtime
from regen._session import lending
from small_training import Net, assert_same, batch, in_use, make, pair, wrap

pytestmark = pytest.mark.filterwarnings("ignore:regen. a backward pass comes after another pass")


@pytest.fixture(params=[False, True], ids=["kept", "lent"], autouse=True)
def gradients_lent(request, monkeypatch):
    """Gradients as tensors of their own, and in the arena as on a GPU."""
    monkeypatch.setattr(lending, "LENDS_ON_HOST", request.param)


class Counting(Net):
    """Reads buffers that it changes; draws numbers; has running statistics."""

    def __init__(self):
        super().__init__(dropout=0.3)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("direction", torch.ones(8))

    def forward(self, x):
        self.calls += 1
        self.direction.copy_(self.direction * 0.9 + x.detach().mean(0))
        return super().forward(x * self.direction.clone()) / (self.calls + 1)


class Tied(nn.Module):
    """Uses a parameter several times: autograd adds up the gradients of all uses in all passes one after the other."""

    def __init__(self):
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.first(x)
        for _ in range(3):
            x = self.inner(x).tanh()
        return self.last(x)


def normalized():
    """Its power iteration changes a buffer, which the pass reads, in each pass."""
    net = Net(dropout=0.0)
    net.first = nn.utils.parametrizations.spectral_norm(net.first)
    return net


def of_pair(model, step):
    """Both images of a pair go through one network."""
    return (model(batch(seed=step)[0]) - model(batch(seed=step + 50)[0])).square().mean(), ()


def one_after_the_other(model, step):
    """The first pass goes back first."""
    first, second = model(batch(seed=step)[0]).mean(), model(batch(seed=step + 50)[0]).square().mean()
    first.backward()
    return second, (first,)


def repeated(model, step):
    """Each pass reads what the one before has made."""
    x = batch(seed=step)[0]
    for _ in range(3):
        x = torch.cat([model(x), x[:, :4]], dim=1)
    return x.square().mean(), ()


def of_two_shapes(model, step):
    return model(batch(16, seed=step)[0]).mean() + model(batch(40, seed=step)[0]).square().mean(), ()


def twice(model, step):
    y = model(batch(seed=step)[0])
    first, second = y.mean(), y.square().mean()
    first.backward(retain_graph=True)
    return second, (first,)


def balanced(model, step):
    """Gradients of the last layer alone say how two losses are weighted, as in VQGAN."""
    y = model(batch(seed=step)[0])
    losses = F.cross_entropy(y, batch(seed=step)[1]), y.square().mean()
    norms = [torch.autograd.grad(loss, model.last.weight, retain_graph=True)[0].norm() for loss in losses]
    return losses[0] + losses[1] * (norms[0] / norms[1]).detach(), norms


def alone(model, step):
    return F.cross_entropy(model(batch(seed=step)[0]), batch(seed=step)[1]), ()


def trained(model, losses):
    """All that a training shows."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(5)
    shown = []
    for step, loss_of in enumerate(losses):
        loss, others = loss_of(model, step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        shown += [loss.detach(), *(other.detach() for other in others)]
    return [value.item() for value in shown], torch.rand(3).tolist()


LOOPS = [of_pair, one_after_the_other, repeated, of_two_shapes, twice, balanced]


@pytest.mark.parametrize("kind", [Counting, Tied, normalized])
@pytest.mark.parametrize("loss_of", LOOPS)
def test_training_has_the_bits_of_plain_pytorch(loss_of, kind):
    chunk = 16 << 20 if kind is Tied else 1  # the backward pass in one part, and in many
    plain, wrapped = pair(kind, gradient_chunk=chunk, budget=2.0**22)
    assert trained(plain, [loss_of] * 3) == trained(wrapped, [loss_of] * 3)
    assert_same(plain, wrapped)


def test_a_loop_may_begin_late_and_end_early():
    plain, wrapped = pair(Counting, budget=2.0**22)
    losses = [alone, alone, of_pair, balanced, alone, twice, alone]
    assert trained(plain, losses) == trained(wrapped, losses)
    assert_same(plain, wrapped)


def test_a_discriminator_on_real_and_on_made_data():
    kinds = [nn.Linear(8, 8), make(Counting)]
    shown = []
    for wraps in (False, True):
        maker, judge = copy.deepcopy(kinds)
        if wraps:
            judge = wrap(judge, (batch()[0],), 2.0**22, planner="checkmate")
        torch.manual_seed(2)
        optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (maker, judge)]
        values = []
        for step in range(3):
            made = maker(batch(seed=step)[0])
            loss = judge(made.detach()).mean() - judge(batch(seed=step + 9)[0]).mean()
            loss.backward()
            optimizers[1].step()
            judge.zero_grad()
            fooled = judge(made).mean()
            fooled.backward()
            optimizers[0].step()
            maker.zero_grad()
            judge.zero_grad()
            values += [loss.item(), fooled.item()]
        shown.append((values, [p.tolist() for m in (maker, judge) for p in m.parameters()]))
    assert shown[0] == shown[1]


def test_the_budget_holds_while_passes_run_again():
    x = batch()[0]  # stays: what is there before the first step counts as somebody else's
    _, wrapped = pair(x=x, budget=0.9)
    base = in_use() - wrapped.regen.active.present_bytes()
    for step in range(5):
        loss, _ = of_pair(wrapped, step)
        loss.backward()
        if step >= 3:  # of the plan in use
            assert _runtime.memory_use("cpu")["allocated_peak"] - base <= wrapped.regen.active.session.gross_budget
        wrapped.zero_grad()


@pytest.mark.filterwarnings("default")
def test_it_is_said_once():
    _, wrapped = pair(budget=2.0**22)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(3):
            of_pair(wrapped, step)[0].backward()
            wrapped.zero_grad()
    said = [str(w.message) for w in caught if "runs again" in str(w.message)]
    assert len(said) == 1 and "one forward pass over all of the batches" in said[0]


def test_loops_with_one_pass_run_nothing_again():
    _, wrapped = pair(budget=2.0**22)
    for step in range(3):
        alone(wrapped, step)[0].backward()
        wrapped.zero_grad()
    assert wrapped.regen.passes == 3 and not wrapped.regen.caller.runs_again


def test_a_graph_that_is_not_kept_goes_back_once():
    _, wrapped = pair()
    loss = wrapped(batch()[0]).sum()
    loss.backward()
    with pytest.raises(regen.Error, match="expected retain_graph=True in the first backward pass"):
        loss.backward()
    wrapped(batch()[0]).sum().backward()


def test_an_input_that_has_changed_since_cannot_run_again():
    _, wrapped = pair()
    x = batch()[0].clone()
    first = wrapped(x).sum()
    second = wrapped(batch()[0]).sum()
    x.add_(1)
    with pytest.raises(regen.Error, match="input 0 was changed in place between the forward pass and its backward pass"):
        (first + second).backward()
    wrapped(batch()[0]).sum().backward()


def test_a_model_in_another_mode_cannot_run_again():
    _, wrapped = pair()
    first = wrapped(batch()[0]).sum()
    second = wrapped(batch()[0]).sum()
    wrapped.dropout.eval()
    with pytest.raises(regen.Error, match="it cannot run again, because the model is in another mode by now"):
        (first + second).backward()


@pytest.mark.parametrize("updates", [False, True])
def test_a_pass_in_the_midst_of_a_backward_pass(updates):
    """What is left of the backward pass runs again from the beginning, which needs every parameter as it was."""
    plain, wrapped = pair(gradient_chunk=1, budget=2.0**22)

    def hook(p, model):
        if updates:
            with torch.no_grad():
                p.mul_(0.5)
        with torch.enable_grad():
            model(batch(seed=7)[0])

    for model in (plain, wrapped):
        model.last.weight.register_post_accumulate_grad_hook(lambda p, model=model: hook(p, model))
        torch.manual_seed(0)
        loss = model(batch()[0]).square().mean()
        if updates and model is wrapped:
            with pytest.raises(regen.Error, match="'last.weight' was changed in place"):
                loss.backward()
            return
        loss.backward()
    assert_same(plain, wrapped)


class Overwriting(Net):
    def forward(self, x):
        return super().forward(x.mul_(2))


def test_a_pass_that_changes_its_inputs_cannot_run_again():
    _, wrapped = pair(Overwriting, x=batch()[0].clone())
    first = wrapped(batch()[0]).sum()
    second = wrapped(batch()[0]).sum()
    with pytest.raises(regen.Error, match="it cannot run again, because it changes its inputs; expected each backward pass before the next"):
        (first + second).backward()


def test_attributes_are_those_of_the_last_pass():
    class Keeps(Net):
        def forward(self, x):
            self.seen = x.detach().mean(0)
            return super().forward(x)

    plain, wrapped = pair(Keeps, budget=2.0**22)
    for model in (plain, wrapped):
        torch.manual_seed(0)
        of_pair(model, 0)[0].backward()
    assert torch.equal(plain.seen, wrapped.seen)
    assert_same(plain, wrapped)
