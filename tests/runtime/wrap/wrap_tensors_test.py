"""What goes in, comes out, is saved, copied and moved is as with the plain model."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from small_training import Heads, assert_same, batch, gradients, make, pair, train, wrap

# Inputs and outputs.

def test_inputs_that_require_gradients():
    x = batch()[0].requires_grad_()
    plain, wrapped = pair(x=x)
    found = []
    for model in (plain, wrapped):
        mine = x.detach().clone().requires_grad_()
        torch.manual_seed(0)
        F.cross_entropy(model(mine), batch()[1]).backward()
        found.append(mine.grad)
    assert torch.equal(*found)
    assert_same(plain, wrapped)


def test_inputs_that_came_from_another_module():
    plain, wrapped = pair(x=batch()[0].requires_grad_())
    for model in (plain, wrapped):
        torch.manual_seed(0)
        before = nn.Linear(8, 8)
        F.cross_entropy(model(before(batch()[0])), batch()[1]).backward()
        model.before = before.weight.grad
    assert torch.equal(plain.before, wrapped.before)
    assert_same(plain, wrapped)


class Rotates(nn.Module):
    """Multiplies by complex numbers that lie turned, as rotary embeddings do."""

    def __init__(self):
        super().__init__()
        self.work = nn.Linear(8, 8)

    def forward(self, x):
        angles = torch.polar(torch.ones(4, 12), torch.arange(48.0).view(4, 12).sin()).T
        turned = torch.view_as_complex(self.work(x).view(2, 12, 16, 4, 2)) * angles[:, None, :]
        return torch.view_as_real(turned).flatten(3).square().mean(-1)


def test_products_of_complex_numbers():
    """A product that lies where its factor did has other last bits: the compiler's loop for that case rounds otherwise."""
    x = torch.randn(2, 12, 16, 8, generator=torch.Generator().manual_seed(0))
    plain, wrapped = pair(Rotates, budget=2.0**22, x=x)
    ours, theirs = wrapped(x), plain(x)
    assert torch.equal(ours, theirs)
    for outputs in (ours, theirs):
        outputs.square().sum().backward()
    assert_same(gradients(plain), gradients(wrapped))


class Trunk(nn.Module):
    """Uses its input several times."""

    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.q(x).tanh() * self.k(x) + x.sigmoid() + x


def test_an_input_has_other_uses_outside():
    """The gradients of all uses are added up in one order, whoever makes them."""
    plain, wrapped = pair(Trunk, budget=2.0**22)
    for model in (plain, wrapped):
        torch.manual_seed(0)
        model.before = before = nn.Linear(8, 8)
        for step in range(3):
            x = before(batch(seed=step)[0]).tanh()
            (model(x) + x.exp() * 0.3).square().mean().backward()
    assert_same(gradients(plain.before), gradients(wrapped.before))
    assert_same(dict(plain.q.named_parameters()), dict(wrapped.q.named_parameters()))


class Shifted(nn.Module):
    """The gradients of its shift and of its input are those of an output."""

    def __init__(self, also=True):
        super().__init__()
        self.shift = nn.Parameter(torch.ones(64, 8))
        self.linear = nn.Linear(8, 4) if also else None

    def forward(self, x):
        return x + self.shift if self.linear is None else (x + self.shift, self.linear(x))


@pytest.mark.parametrize("also", [True, False])
def test_a_gradient_that_is_that_of_an_output(also):
    plain = make(Shifted, also=also)
    wrapped = wrap(copy.deepcopy(plain), (batch()[0].requires_grad_(),), 2.0**22)
    found = []
    for model in (plain, wrapped):
        for step in range(2):  # adds up
            x = batch(seed=step)[0].requires_grad_()
            outputs = model(x)
            sum(y.square().sum() for y in (outputs if also else [outputs])).backward()
            found.append(x.grad)
    assert_same(plain, wrapped)
    assert torch.equal(found[0], found[2]) and torch.equal(found[1], found[3])


def test_several_outputs_and_keywords():
    plain, wrapped = pair(Heads, budget=1.0)
    for model in (plain, wrapped):
        out = model(batch()[0], scale=0.5)
        assert out["size"] == 64 and not out["pair"][1].requires_grad
        (F.cross_entropy(out["a"], batch()[1]) + out["pair"][0].square().mean()).backward()
    assert_same(plain, wrapped)


def test_outputs_that_the_loss_does_not_use_have_no_gradient():
    plain, wrapped = pair(Heads, budget=1.0)
    for model in (plain, wrapped):
        F.cross_entropy(model(batch()[0])["a"], batch()[1]).backward()
        assert model.b.weight.grad is None
    assert_same(plain, wrapped)
    for model in (plain, wrapped):
        model.zero_grad()
        model(batch()[0])["pair"][0].sum().backward()
    assert_same(plain, wrapped)


class Attends(nn.Module):
    """Returns keys as a cache has them, transposed, and distances with an infinite derivative at zero."""

    def __init__(self):
        super().__init__()
        self.norm, self.work = nn.LayerNorm(8), nn.Linear(8, 32)

    def forward(self, x):
        heads = self.norm(self.work(x).view(2, 32, 4, 8))
        keys = torch.cat([torch.zeros(2, 4, 0, 8), heads.transpose(1, 2)], 2)
        scores = F.scaled_dot_product_attention(keys, keys, torch.ones_like(keys).cumsum(2))
        return {"out": scores, "keys": keys, "distance": (keys - keys).square().sum(-1).sqrt()}


def test_an_output_without_a_gradient_is_none_with_a_gradient_of_zeros():
    """Which would lay out sums in another way, and make NaN of an infinite derivative. Losses then change, and use all."""
    x = torch.randn(2, 32, 8, generator=torch.Generator().manual_seed(0))
    plain, wrapped = pair(Attends, budget=2.0**22, x=x)
    losses = [lambda o: o["out"].square().mean()] * 3 + [lambda o: o["keys"].square().sum(), lambda o: o["out"].sin().sum() + o["keys"].sum()]
    for step, loss in enumerate(losses):
        for model in (plain, wrapped):
            model.zero_grad()
            loss(model(x + step)).backward()
        assert_same(plain, wrapped)
        assert not plain.norm.weight.grad.isnan().any()


class Matches(nn.Module):
    """Returns one matrix in two ways, as models of pairs do."""

    def __init__(self):
        super().__init__()
        self.work, self.scale = nn.Linear(8, 24), nn.Parameter(torch.tensor(2.3))

    def forward(self, x):
        rows = self.work(x)
        matrix = rows[:20] @ rows[20:50].t() * self.scale.exp()
        return matrix.t(), matrix


class Convolves(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(self.convolution(x.reshape(-1, 3, 13, 8)))


@pytest.mark.parametrize("kind", [Matches, Convolves, lambda: nn.Linear(8, 24)], ids=["two views", "convolution", "linear"])
@pytest.mark.parametrize("loss", [
    torch.Tensor.sum, lambda y: y.sum(0).square().sum(), lambda y: y.mean(-1).square().sum(),
    lambda y: (y.transpose(0, 1).reshape(-1) * torch.linspace(0, 1, y.numel())).sum()], ids=["sum", "sum of rows", "mean", "turned"])
def test_a_gradient_arrives_as_it_lies(kind, loss):
    """Expanded or turned: the sums behind it are ordered by its layout."""
    data = [torch.randn(156, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    plain, wrapped = pair(kind, budget=2.0**24, x=data[0])
    for x in (*data, torch.cat(data[:2]), data[0]):
        for model in (plain, wrapped):
            y = model(x)
            loss(y[0] if isinstance(y, tuple) else y).backward()
        assert_same(gradients(plain), gradients(wrapped))


def test_frozen_parameters():
    plain, wrapped = pair()
    for model in (plain, wrapped):
        model.first.requires_grad_(False)
        model.blocks[0].requires_grad_(False)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        assert model.first.weight.grad is None
        model.requires_grad_(True)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert_same(plain, wrapped)


def test_new_shapes_and_the_last_smaller_batch():
    plain, wrapped = pair()
    sizes = [64, 64, 17, 64, 17]
    for model in (plain, wrapped):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(0)
        for step, n in enumerate(sizes):
            x, y = batch(n, seed=step)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    levels = wrapped.regen.sized.levels()
    assert [level.sizes for level in levels] == [(64,)]  # one plan for both, and one arena
    assert not wrapped.regen.shapes and levels[0].entry.session.compiled
    assert_same(plain, wrapped)


# What is saved and copied.

def test_state_dict_has_the_plain_keys_and_loads():
    plain, wrapped = pair()
    assert list(plain.state_dict()) == list(wrapped.state_dict())
    assert [n for n, _ in plain.named_modules()] == [n for n, _ in wrapped.named_modules()]
    other = make(seed=7)
    plain.load_state_dict(other.state_dict())
    wrapped.load_state_dict(other.state_dict())
    train(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    train(wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1))
    assert_same(plain, wrapped)
    make().load_state_dict(wrapped.state_dict())
    wrapped.load_state_dict(other.state_dict(), assign=True)  # new parameters in the place of the old ones
    plain.load_state_dict(other.state_dict())
    for model in (plain, wrapped):
        model.zero_grad()
        torch.manual_seed(0)
        F.cross_entropy(model(batch()[0]), batch()[1]).backward()
    assert_same(plain, wrapped)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_train_on_their_own(duplicate):
    plain, wrapped = pair()
    train(wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1))
    train(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    twin = duplicate(wrapped)
    assert isinstance(twin, type(plain)) and twin.regen is not wrapped.regen
    assert_same(dict(twin.state_dict()), dict(wrapped.state_dict()))
    train(twin, torch.optim.SGD(twin.parameters(), lr=0.1))
    assert_same(plain, wrapped)
    train(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    assert_same(plain, twin)
    assert twin.regen.active.steps == 3


# Storage that changes.

def test_new_storage_of_the_same_shape():
    plain, wrapped = pair()
    for model in (plain, wrapped):
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        model.last.weight.data = model.last.weight.data * 2
        model.bn.running_mean = torch.zeros_like(model.bn.running_mean)
        model.blocks[0].up.weight = nn.Parameter(model.blocks[0].up.weight.detach() + 1)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert_same(plain, wrapped)


def test_another_shape_is_refused():
    _, wrapped = pair()
    wrapped.last.weight.data = torch.zeros(8, 8)  # as many bytes as before
    with pytest.raises(RuntimeError, match=r"'last.weight' is now .*\(8, 8\).*; expected .*\(4, 16\)") as error:
        wrapped(batch()[0])
    assert "\n" not in str(error.value)
