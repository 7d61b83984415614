"""A wrapped model in training loops of all kinds: losses, optimizers, evaluation, hooks, mixed precision."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regen import _runtime
from small_training import assert_same, batch, gradients, in_use, make, pair, train, wrap

# Any loss, any optimizer.

@pytest.mark.parametrize("optimizer, loss_fn", [
    (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), F.cross_entropy),
    (lambda p: torch.optim.AdamW(p, lr=0.01), lambda out, y: F.mse_loss(out, F.one_hot(y, 4).float())),
    (lambda p: torch.optim.Adagrad(p, lr=0.01), lambda out, y: out.logsumexp(1).mean() - out.gather(1, y[:, None]).mean()),
    (lambda p: torch.optim.RMSprop(p, lr=0.01), lambda out, y: 0.1 * out.square().sum()),
])
def test_any_loss_and_optimizer(optimizer, loss_fn):
    plain, wrapped = pair()
    expected = train(plain, optimizer(plain.parameters()), loss_fn=loss_fn)
    found = train(wrapped, optimizer(wrapped.parameters()), loss_fn=loss_fn)
    assert torch.equal(expected[0], found[0]) and torch.equal(expected[1], found[1])
    assert_same(plain, wrapped)


def test_an_optimizer_made_before_wrapping_trains_the_wrapped_model():
    plain, model = make(), make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped = wrap(model, (batch()[0],), 0.8)
    train(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    train(wrapped, optimizer)
    assert_same(plain, wrapped)
    assert_same(plain, model)


def test_gradients_are_accumulated():
    plain, wrapped = pair()
    for model in (plain, wrapped):
        torch.manual_seed(0)
        for step in range(3):
            x, y = batch(seed=step)
            (F.cross_entropy(model(x), y) / 3).backward()
    assert_same(plain, wrapped)


def test_accumulation_is_measured_and_stays_within_the_budget():
    x = batch()[0]
    _, wrapped = pair(x=x, budget=0.9)
    base = in_use() - wrapped.regen.active.present_bytes()
    for step in range(4):
        x, y = batch(seed=step)
        F.cross_entropy(wrapped(x), y).backward()
        if step >= 2:  # the peak of the plan in use
            assert _runtime.memory_use("cpu")["allocated_peak"] - base <= wrapped.regen.active.session.gross_budget


# Evaluation.

def test_evaluation_and_no_grad_go_through_the_plain_model():
    plain, wrapped = pair()
    x = batch()[0]
    steps = wrapped.regen.active.steps
    for model in (plain, wrapped):
        model.eval()
    assert torch.equal(plain(x), wrapped(x))
    assert wrapped(x).grad_fn.name() == plain(x).grad_fn.name()
    for model in (plain, wrapped):
        model.train()
    with torch.no_grad():
        torch.manual_seed(0)
        expected = plain(x)
        torch.manual_seed(0)
        assert torch.equal(expected, wrapped(x))
    with torch.inference_mode():
        plain(x), wrapped(x)
    assert wrapped.regen.active.steps == steps
    assert_same(plain, wrapped)


def test_evaluation_has_the_room_of_the_arena():
    """Validation between steps stays within the budget, and training goes on as before."""
    plain, wrapped = pair(budget=0.9, reserve=5_000)
    x = batch(128)[0]
    base = in_use() - wrapped.regen.active.present_bytes()
    for model in (plain, wrapped):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        _runtime.reset_memory_peak("cpu")
        for _ in range(2):
            train(model, optimizer)
            optimizer.zero_grad()
            model.eval()
            with torch.no_grad():
                model(x)
            model.train()
    assert _runtime.memory_use("cpu")["allocated_peak"] - base <= wrapped.regen.active.session.gross_budget
    assert "predicted" in str(wrapped.regen.plan)
    train(plain, torch.optim.SGD(plain.parameters(), lr=0.1)), train(wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1))
    assert_same(plain, wrapped)


def test_evaluation_between_the_passes_of_a_step():
    plain, wrapped = pair()
    for model in (plain, wrapped):
        torch.manual_seed(0)
        loss = F.cross_entropy(model(batch()[0]), batch()[1])
        with torch.no_grad():
            model(batch(seed=5)[0])
        loss.backward()
    assert_same(plain, wrapped)


def test_a_model_wrapped_in_eval_mode_trains_so():
    plain = make().eval()
    wrapped = wrap(copy.deepcopy(plain), (batch()[0],), 0.8)
    for model in (plain, wrapped):
        F.cross_entropy(model(batch()[0]), batch()[1]).backward()
    assert wrapped.regen.active.steps == 1
    assert_same(plain, wrapped)


def test_a_submodule_in_another_mode_is_planned_for_itself():
    plain, wrapped = pair()
    for model in (plain, wrapped):
        model.bn.eval()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert len(wrapped.regen.shapes) == 2
    assert_same(plain, wrapped)


# Hooks.

def test_hooks_on_parameters():
    plain, wrapped = pair()
    seen = {}
    for model in (plain, wrapped):
        log = seen.setdefault(model, [])
        model.first.weight.register_hook(lambda g: g * 2)
        model.last.weight.register_post_accumulate_grad_hook(lambda p, log=log: log.append(p.grad.clone()))
        torch.manual_seed(0)
        F.cross_entropy(model(batch()[0]), batch()[1]).backward()
    assert len(seen[plain]) == len(seen[wrapped]) == 1
    assert torch.equal(seen[plain][0], seen[wrapped][0])
    assert_same(plain, wrapped)


@pytest.mark.parametrize("chunk", [1, 16 << 20])
def test_parameters_that_are_updated_as_soon_as_their_gradients_are_there(chunk):
    plain, wrapped = pair(gradient_chunk=chunk)
    for model in (plain, wrapped):
        optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

        def update(p, optimizers=optimizers):
            optimizers[p].step()
            optimizers[p].zero_grad()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(update)
        torch.manual_seed(0)
        for step in range(3):
            F.cross_entropy(model(batch(seed=step)[0]), batch()[1]).backward()
    assert_same(plain, wrapped)
    assert len(wrapped.regen.active.parts) > 1 or chunk > 1


def test_a_parameter_that_is_updated_before_its_last_use_is_refused():
    _, wrapped = pair(gradient_chunk=1)

    def spoil(p):
        with torch.no_grad():
            wrapped.blocks[0].up.weight.add_(1)

    wrapped(batch()[0]).sum().backward()  # shows how the gradient of the output lies
    wrapped.last.weight.register_post_accumulate_grad_hook(spoil)
    with pytest.raises(RuntimeError, match="'blocks.0.up.weight' was changed in place"):
        wrapped(batch()[0]).sum().backward()


@pytest.mark.filterwarnings("ignore:regen. a backward pass comes after another pass")
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_around_the_wrapped_module(reentrant):
    plain = make()
    wrapped = wrap(copy.deepcopy(plain), None, "4MiB")  # captured inside of the checkpoint
    for model in (plain, wrapped):
        torch.manual_seed(0)
        before = torch.nn.Linear(8, 8)
        for step in range(3):
            y = checkpoint(lambda x, model=model: torch.tanh(model(x)), before(batch(seed=step)[0]), use_reentrant=reentrant)
            F.cross_entropy(y, batch()[1]).backward()
        model.before = before.weight.grad
    assert torch.equal(plain.before, wrapped.before)
    assert_same(gradients(plain), gradients(wrapped))


def test_what_autograd_saves_outside_of_the_plan_may_be_on_the_host():
    plain = make()
    wrapped = wrap(copy.deepcopy(plain), None, "4MiB")
    for model in (plain, wrapped):
        torch.manual_seed(0)
        with torch.autograd.graph.save_on_cpu():
            loss = F.cross_entropy(model(batch()[0]), batch()[1])
        loss.backward()
    assert_same(plain, wrapped)


def test_hooks_on_the_module():
    plain, wrapped = pair()
    calls = {plain: [], wrapped: []}  # pyright: ignore[reportUnhashable]
    for model in (plain, wrapped):
        model.register_forward_pre_hook(lambda m, args: (args[0] * 0.5,))
        model.register_forward_hook(lambda m, args, out: out * 3)
        model.register_full_backward_hook(lambda m, gin, gout: calls[m].append(gout[0].clone()))
        for _ in range(2):
            torch.manual_seed(0)
            F.cross_entropy(model(batch()[0]), batch()[1]).backward()
    assert len(calls[wrapped]) == 2 and torch.equal(calls[plain][1], calls[wrapped][1])
    assert_same(plain, wrapped)


def test_hooks_inside_are_part_of_the_plan_and_said_so():
    plain, wrapped = pair()
    for model in (plain, wrapped):
        model.first.register_forward_hook(lambda m, args, out: out * 3)
    torch.manual_seed(0)
    F.cross_entropy(plain(batch()[0]), batch()[1]).backward()
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match="hooks on 'first'"):
        F.cross_entropy(wrapped(batch()[0]), batch()[1]).backward()
    assert_same(plain, wrapped)


# Mixed precision.

def test_autocast_and_grad_scaler():
    plain, wrapped = pair()
    for model in (plain, wrapped):
        torch.manual_seed(0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(3):
            x, y = batch(seed=step)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = model(x)
                loss = F.cross_entropy(out, y)
            assert out.dtype == torch.bfloat16
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    assert len(wrapped.regen.shapes) == 2  # with and without autocast
    assert_same(plain, wrapped)


def test_grad_scaler_skips_steps_that_overflow():
    plain, wrapped = pair()
    for model in (plain, wrapped):
        torch.manual_seed(0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1)
        for step in range(4):
            x, y = batch(seed=step)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(model(x), y)
            model.scaler.scale(loss).backward()
            model.scaler.step(optimizer)
            model.scaler.update()
    assert plain.scaler.get_scale() == wrapped.scaler.get_scale() < 2.0**127
    assert_same(plain, wrapped)
