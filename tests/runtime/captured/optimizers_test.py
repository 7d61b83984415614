"""`regen.step` with every optimizer of torch and with hand-written ones: parameters, state and losses are those of plain PyTorch, bit for bit,
under a budget that recomputes, across a checkpoint in the middle, with gradients added up and with a loss scale."""

import copy
import io
import itertools
import warnings

import pytest
import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook

import regen
from hand_written_optimizers import FIRST_STEP_DIFFERS, ISLANDS, PLANNED, FirstGradient
from regen import _runtime
from regen._capture.optimizers import OptimizerUpdates
from regen._capture.program_builder import ProgramBuilder
from regen._capture.traced.fakes import Fakes
from regen._capture.update_recording import symbols_in
from regen._check import same_bits

# RAdam's rectification begins at step 6.
STEPS = 8


def network():
    torch.manual_seed(0)
    layers = [(16, 24), (24, 24), (24, 24), (24, 24), (24, 16)]
    return nn.Sequential(*(nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in layers), nn.Linear(16, 4))


def batch(number, n=512):
    generator = torch.Generator().manual_seed(number)
    return torch.randn(n, 16, generator=generator), torch.randint(4, (n,), generator=generator)


def saved(optimizer):
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    return torch.load(file)


class Twins:
    """The same network and optimizer twice: trained plainly, and by a planned step."""

    def __init__(self, make, budget=0.8, accumulate=1, clip=None, scaler=None, loss_fn=F.cross_entropy, model=network):
        self.plain, self.planned = model(), model()
        self.optimizers = [make(self.plain), make(self.planned)]
        self.schedulers = ()
        self.loss_fn, self.accumulate, self.clip = loss_fn, accumulate, clip
        self.scalers = [None, None] if scaler is None else [torch.amp.GradScaler("cpu", **scaler) for _ in "ab"]
        self.count = itertools.count()
        device = next(self.planned.parameters()).device
        sample = tuple(x.to(device) for x in batch(0))
        self.step = regen.step(
            self.planned, loss_fn, self.optimizers[1], sample, budget, work_limit=20_000, debug=True, cache=False, accumulate=accumulate,
            clip_grad_norm=clip, scaler=self.scalers[1], host_budget=4096)  # no room there: plans recompute

    def train(self, steps, change=lambda args: args):
        for number in range(steps):
            self.optimizers[0].zero_grad()
            for _ in range(self.accumulate):
                args = change(batch(next(self.count)))
                expected, found = self.plain_pass(args), self.step(*args)
                assert same_bits(expected, found), f"loss of step {number}"
            self.plain_update()
            for scheduler in self.schedulers:
                scheduler.step()
        self.compare()

    def plain_pass(self, args):
        self.seed = int(args[1].sum())  # the optimizer may draw too
        torch.manual_seed(self.seed)
        loss = self.loss_fn(self.plain(*args[:-1]), args[-1])
        (loss if self.scalers[0] is None else self.scalers[0].scale(loss)).backward()
        torch.manual_seed(self.seed)
        return loss.detach()

    def plain_update(self):
        optimizer, scaler = self.optimizers[0], self.scalers[0]
        torch.manual_seed(self.seed)
        if self.clip is not None:
            if scaler is not None:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(self.plain.parameters(), self.clip)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()

    def compare(self):
        for (name, p), q in zip(self.plain.named_parameters(), self.planned.named_parameters()):
            assert same_bits(p, q[1]), name
            assert q[1].grad is None
        plain, planned = (o.state_dict() for o in self.optimizers)
        assert plain["param_groups"] == planned["param_groups"]
        assert plain["state"].keys() == planned["state"].keys()
        for index, state in plain["state"].items():
            assert list(state) == list(planned["state"][index])
            for key, value in state.items():
                other = planned["state"][index][key]
                assert same_bits(value, other) and value.device == other.device if isinstance(value, torch.Tensor) else value == other, key
        if self.scalers[0] is not None:
            assert self.scalers[0].state_dict() == self.scalers[1].state_dict()

    def exchange(self):
        """Each goes on from the other's checkpoint."""
        plain, planned = (saved(o) for o in self.optimizers)
        self.optimizers[0].load_state_dict(planned)
        self.optimizers[1].load_state_dict(plain)

    @property
    def islands(self):
        """For each capture, whether the optimizer runs beside it."""
        return [shaped.captured.updates is None for shaped in self.step.shapes.values()]


def two_groups(kind, first, second):
    """Options of two groups: of weights and of biases."""
    def make(model):
        weights, biases = [p for p in model.parameters() if p.dim() == 2], [p for p in model.parameters() if p.dim() < 2]
        return kind([{"params": weights}, {"params": biases, **second}], **copy.deepcopy(first))

    return make


# Options of the optimizer, and other ones of its second group.
CASES = {
    "sgd": (optim.SGD, dict(lr=0.1), dict(lr=0.01, momentum=0.9)),
    "sgd, momentum": (optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1), dict(nesterov=False, dampening=0.3, maximize=True)),
    "adam": (optim.Adam, dict(amsgrad=True, weight_decay=0.1), dict(amsgrad=False, maximize=True, betas=(0.8, 0.9))),
    "adamw": (optim.AdamW, dict(), dict(weight_decay=0.2, eps=1e-4, amsgrad=True)),
    "adagrad": (optim.Adagrad, dict(lr_decay=0.1, initial_accumulator_value=0.5), dict(weight_decay=0.1, maximize=True)),
    "adadelta": (optim.Adadelta, dict(weight_decay=0.1), dict(rho=0.8, weight_decay=0, maximize=True)),
    "adamax": (optim.Adamax, dict(), dict(weight_decay=0.1, maximize=True)),
    "nadam": (optim.NAdam, dict(), dict(weight_decay=0.1, decoupled_weight_decay=True, maximize=True)),
    "radam": (optim.RAdam, dict(lr=0.01), dict(weight_decay=0.1, decoupled_weight_decay=True, maximize=True)),
    "rmsprop": (optim.RMSprop, dict(), dict(centered=True, momentum=0.9, weight_decay=0.1, maximize=True)),
    "rprop": (optim.Rprop, dict(), dict(etas=(0.4, 1.3), maximize=True)),
    "asgd": (optim.ASGD, dict(t0=3), dict(weight_decay=0.1, maximize=True)),
}
# One recipe for all steps, but for these, which do something else from a later step on.
SEVERAL = {("radam", None), ("radam", False), ("asgd", None), ("asgd", False)}


@pytest.mark.parametrize("foreach", [None, False, True])
@pytest.mark.parametrize("name", CASES)
def test_every_optimizer_of_torch_is_planned(name, foreach):
    kind, first, second = CASES[name]
    twins = Twins(two_groups(kind, {**first, "foreach": foreach}, second))
    assert twins.step.active.session.report.recomputed > 0
    twins.train(STEPS // 2)
    twins.exchange()
    twins.train(STEPS - STEPS // 2)
    assert twins.islands == [False, False] if (name, foreach) in SEVERAL else [False]


@pytest.mark.parametrize("name", ["sgd", "sgd, momentum", "adam", "adamw", "adagrad"])
def test_fused(name):
    kind, first, second = CASES[name]
    twins = Twins(two_groups(kind, {**first, "fused": True}, second))
    twins.train(3)
    twins.exchange()
    twins.train(3)
    assert twins.islands == [False]


@pytest.mark.parametrize("name", [name for name in CASES if name != "sgd, momentum"])
def test_a_rate_that_is_a_tensor(name):
    kind, first, _ = CASES[name]
    twins = Twins(lambda model: kind(model.parameters(), **{**first, "lr": torch.tensor(0.01)}))
    twins.schedulers = [optim.lr_scheduler.ExponentialLR(o, 0.7) for o in twins.optimizers]
    twins.train(4)
    assert not any(twins.islands)


@pytest.mark.skipif(not hasattr(optim, "Muon"), reason="this torch has no Muon")
@pytest.mark.parametrize("options", [dict(), dict(lr=torch.tensor(0.01), nesterov=False, adjust_lr_fn="match_rms_adamw")], ids=["default", "other"])
def test_muon(options):
    twins = Twins(lambda model: optim.Muon([p for p in model.parameters() if p.dim() == 2], **copy.deepcopy(options)))
    twins.train(3)
    twins.exchange()
    twins.train(2)
    assert twins.islands == [False]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("options", [dict(), dict(foreach=True), dict(fused=True)], ids=["one by one", "lists", "fused"])
def test_other_types(dtype, options):
    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network().to(dtype)
            self.scale = nn.Parameter(torch.tensor(1.5, dtype=dtype))  # without dimensions, as counts are

        def forward(self, x):
            return (self.inner(x.to(dtype)) * self.scale).float()

    twins = Twins(lambda model: optim.AdamW(model.parameters(), lr=torch.tensor(0.01), weight_decay=0.1, **options) if not options.get("foreach")
                  else optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1, **options), model=Cast)
    twins.train(3)
    assert twins.islands == [False]


# On a GPU.

def on_gpu(model=network):
    return model().cuda()


GPU_OPTIONS = [
    dict(), dict(foreach=False), dict(fused=True), dict(capturable=True, foreach=False), dict(capturable=True, foreach=True),
    dict(capturable=True, lr=torch.tensor(0.01)),
]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("options", GPU_OPTIONS, ids=str)
@pytest.mark.parametrize("kind", [CASES[name][0] for name in CASES if name != "sgd, momentum"], ids=lambda kind: kind.__name__)
def test_on_a_gpu(kind, options):
    try:
        kind([nn.Parameter(torch.zeros(2, device="cuda"))], **options)
    except (TypeError, ValueError, RuntimeError):
        pytest.skip("torch has no such option")
    given = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    twins = Twins(lambda model: kind(model.parameters(), **given), budget="512MiB", model=on_gpu)
    twins.train(STEPS // 2, lambda args: tuple(x.cuda() for x in args))
    twins.exchange()
    twins.train(STEPS - STEPS // 2, lambda args: tuple(x.cuda() for x in args))
    assert not any(twins.islands)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW, optim.NAdam, optim.Adamax, optim.Adadelta, optim.RMSprop], ids=lambda kind: kind.__name__)
def test_capturable_recipes_count_on_the_device(kind, foreach):
    """On parameters of a GPU without data, since a CPU has no such option."""
    def on_device(tensor):
        with fakes.mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")

    fakes, real = Fakes(), nn.Parameter(torch.zeros(4, 6))
    example = kind([real])
    real.grad = torch.zeros_like(real)
    example.step()
    optimizer = kind([real], capturable=True, foreach=foreach)
    parameter = optimizer.param_groups[0]["params"][0] = nn.Parameter(on_device(real))
    optimizer.state[parameter] = {key: on_device(value) for key, value in example.state[real].items()}
    updates = OptimizerUpdates(optimizer, [parameter], ProgramBuilder("captured", "cpu"))
    (found,) = updates.classes
    assert found.by_list == foreach
    written = {symbol for call in found.calls if not call.outputs for symbol in symbols_in(call.args[0])}
    assert {symbol.key for symbol in written if symbol.kind == "state"} == set(optimizer.state[parameter])
    numbers = updates.look(optimizer)
    assert numbers is not None and updates.known is not None
    updates.advance(optimizer)
    assert updates.look(optimizer) == numbers, "nothing depends on a count of the host"


# Schedulers and options.

@pytest.mark.parametrize("name", ["sgd, momentum", "adamw", "nadam", "rmsprop"])
def test_schedulers_that_change_more_than_the_rate(name):
    kind, first, _ = CASES[name]
    twins = Twins(lambda model: kind(model.parameters(), **{"momentum": 0.9, **first} if name == "rmsprop" else first))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that schedulers complain about the order of calls
        twins.schedulers = [optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=8) for o in twins.optimizers]
        twins.train(6)
    assert twins.islands == [False]


def test_options_that_change_what_the_update_does_are_captured_anew():
    twins = Twins(lambda model: optim.Adam(model.parameters()))
    twins.train(2)
    for change in (dict(weight_decay=0.1), dict(maximize=True), dict(weight_decay=0, maximize=False)):
        for optimizer in twins.optimizers:
            optimizer.param_groups[0].update(change)
        twins.train(2)
    assert twins.islands == [False] * 3  # the last is the first again


def test_counts_that_differ_between_parameters():
    twins = Twins(lambda model: optim.AdamW(model.parameters()))
    twins.train(2)
    for optimizer, model in zip(twins.optimizers, (twins.plain, twins.planned)):
        optimizer.state[model[-1].weight]["step"] += 7
        optimizer.state[model[-1].bias] = {}
    twins.train(2)


def test_a_group_that_is_added():
    def make(model):
        return optim.SGD(model[:3].parameters(), lr=0.1, momentum=0.9)

    twins = Twins(make)
    twins.train(2)
    for optimizer, model in zip(twins.optimizers, (twins.plain, twins.planned)):
        optimizer.add_param_group({"params": list(model[3:].parameters()), "lr": 0.01})
    twins.train(2)


def test_averages_of_the_parameters_see_each_update():
    twins = Twins(lambda model: optim.AdamW(model.parameters()))
    averages = [optim.swa_utils.AveragedModel(m, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.9)) for m in (twins.plain, twins.planned)]
    for _ in range(3):
        twins.train(1)
        for average, model in zip(averages, (twins.plain, twins.planned)):
            average.update_parameters(model)
    for mine, other in zip(*(average.parameters() for average in averages)):
        assert same_bits(mine, other)


# Written by hand, and beside the plan.

@pytest.mark.parametrize("kind", PLANNED, ids=lambda kind: kind.__name__)
def test_optimizers_written_by_hand_are_planned(kind):
    twins = Twins(lambda model: kind(model.parameters()))
    twins.train(3)
    twins.exchange()
    twins.train(2)
    assert twins.islands == [False]
    assert twins.optimizers[0].__dict__.get("count") == twins.optimizers[1].__dict__.get("count")


@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("kind", [optim.Adafactor, *ISLANDS], ids=lambda kind: kind.__name__)
def test_others_run_beside_the_plan(kind, clip):
    twins = Twins(lambda model: kind(model.parameters()), clip=clip)
    twins.train(3)
    twins.exchange()
    twins.train(2)
    assert twins.islands == [True]
    for text in (str(twins.step.plan), twins.step.plan.explain()):
        assert f"{kind.__name__}.step(), an island, because" in text.splitlines()[-1]


@pytest.mark.parametrize("kind", FIRST_STEP_DIFFERS, ids=lambda kind: kind.__name__)
def test_an_island_only_where_the_first_step_differs(kind):
    twins = Twins(lambda model: kind(model.parameters()))
    twins.train(1)
    twins.exchange()
    twins.train(3)
    assert twins.islands == ([True, False, False] if kind.__name__ == "Changes" else [True, False])


def test_hooks_of_the_optimizer_run():
    calls = [[], []]
    twins = Twins(lambda model: optim.SGD(model.parameters(), lr=0.1))
    twins.train(1)
    for optimizer, seen in zip(twins.optimizers, calls):
        optimizer.register_step_post_hook(lambda o, args, kwargs, seen=seen: seen.append(float(o.param_groups[0]["params"][0].detach().sum())))
    twins.train(2)
    assert calls[0] == calls[1] and len(calls[0]) == 2
    assert twins.islands == [False, True]


def test_hooks_of_all_optimizers_run():
    seen = []
    twins = Twins(lambda model: optim.SGD(model.parameters(), lr=0.1))
    hook = register_optimizer_step_post_hook(lambda optimizer, args, kwargs: seen.append(optimizer))
    try:
        twins.train(2)
    finally:
        hook.remove()
    assert seen == twins.optimizers[::-1] * 2
    twins.train(1)


def test_an_update_that_fails_leaves_nothing_behind():
    class Fails(FirstGradient):
        fails = False

        def update(self, p, grad, state, lr):
            if self.fails:
                raise ZeroDivisionError("on purpose")
            super().update(p, grad, state, lr * float(p.sum().item() != 0.0))

    twins = Twins(lambda model: Fails(model.parameters()), accumulate=2)
    twins.train(1)
    twins.optimizers[1].fails = True
    twins.step(*batch(7))
    with pytest.raises(ZeroDivisionError):
        twins.step(*batch(8))
    twins.optimizers[1].fails = False
    twins.train(2)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_what_an_island_takes_is_part_of_the_budget(accumulate):
    """Adam's state and the scratch of its lists, for a scaler: three times the parameters and more."""
    base = _runtime.memory_use("cpu")["allocated"]
    twins = Twins(lambda model: optim.Adam(model.parameters(), foreach=True), accumulate=accumulate, scaler={}, budget="450KiB")
    plain = sum(p.nbytes for p in twins.plain.parameters())
    twins.train(2)
    beside = twins.step.active.session.caller_bytes
    assert beside >= 3 * plain
    for number in range(accumulate * 2):
        args = batch(number)
        used = sum(t.nbytes for t in args) + 4 * plain  # the twin's: parameters, gradients and state
        _runtime.reset_memory_peak("cpu")
        twins.step(*args)
        assert _runtime.memory_use("cpu")["allocated_peak"] - base - used <= 450 << 10
    assert twins.step.plan.predicted_peak <= 450 << 10


def test_an_island_that_does_not_fit_is_said():
    with pytest.raises(regen.BudgetError, match="bytes") as error:
        twins = Twins(lambda model: optim.Adam(model.parameters(), foreach=True), scaler={}, budget=0.5)
        for number in range(3):
            twins.step(*batch(number))
    assert "\n" not in str(error.value)


# What cannot be.

def test_an_optimizer_that_needs_a_closure_is_refused():
    model = network()
    with pytest.raises(regen.CaptureError, match="LBFGS.*closure.*regen.wrap") as error:
        regen.step(model, F.cross_entropy, optim.LBFGS(model.parameters()), batch(0), 0.9)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("options", [dict(capturable=True), dict(capturable=True, foreach=True)])
def test_what_torch_refuses_is_refused_before_anything_runs(options):
    model = network()
    optimizer = optim.Adam(model.parameters(), **options)
    with pytest.raises(regen.CaptureError, match="Adam.*capturable") as error:
        regen.step(model, F.cross_entropy, optimizer, batch(0), 0.9)
    assert "\n" not in str(error.value) and not optimizer.state


def test_sparse_gradients_are_refused():
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10, 4, sparse=True)

        def forward(self, x):
            return self.table(x)

    model, args = Sparse(), (torch.arange(8), torch.arange(8) % 4)
    with pytest.raises(regen.CaptureError, match="sparse") as error:
        regen.step(model, F.cross_entropy, optim.SparseAdam(model.parameters()), args, 0.9)
    assert "\n" not in str(error.value)


# Gradients of several batches.

@pytest.mark.parametrize("name, make, clip", [
    ("momentum", lambda model: optim.SGD(model.parameters(), lr=0.1, momentum=0.9), None),
    ("lists", lambda model: optim.Adam(model.parameters(), foreach=True, maximize=True), None),
    ("fused, clipped", lambda model: optim.AdamW(model.parameters(), fused=True), 0.1),
    ("an island", lambda model: optim.Adafactor(model.parameters()), None),
    ("an island, clipped", lambda model: optim.Adafactor(model.parameters()), 0.1),
    ("an island at first", lambda model: FirstGradient(model.parameters()), None),
], ids=lambda x: x if isinstance(x, str) else "")
def test_gradients_are_added_up(name, make, clip):
    twins = Twins(make, budget=0.85, accumulate=3, clip=clip, loss_fn=lambda made, target: F.cross_entropy(made, target) / 3)
    twins.train(2)
    twins.exchange()
    twins.train(2)
    assert len(twins.islands) == 3 if "first" in name else 2


def test_batches_that_train_different_parameters_are_added_up():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = network(), network()

        def forward(self, x):
            return self.first(x) if bool(x[0, 0] > 0) else self.second(x)

    def signed(sign):
        def change(args):
            args[0][0, 0] = sign
            return args
        return change

    signs = itertools.cycle([1, -1, -1, -1, 1, 1])
    twins = Twins(lambda model: optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.2), budget=0.95, accumulate=2, model=Branches)
    twins.train(6, lambda args: signed(next(signs))(args))


@pytest.mark.parametrize("accumulate", [0, -1, 1.5, True, "2"])
def test_a_number_of_batches_that_is_none(accumulate):
    model = network()
    with pytest.raises(regen.OptionError, match="accumulate="):
        regen.step(model, F.cross_entropy, optim.SGD(model.parameters()), batch(0), 0.9, accumulate=accumulate)


# Loss scales.

SCALER = dict(init_scale=2.0**10, growth_interval=2)


def overflowing(which):
    """Every `which`-th batch leads to gradients that are no numbers."""
    numbers = itertools.count(1)

    def change(args):
        return (args[0] * float("inf"), args[1]) if next(numbers) % which == 0 else args
    return change


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("options", [dict(), dict(fused=True), dict(foreach=True)], ids=["one by one", "fused", "lists"])
def test_a_loss_scale(options, clip, accumulate):
    twins = Twins(lambda model: optim.AdamW(model.parameters(), **options), budget="2MiB", accumulate=accumulate, clip=clip, scaler=SCALER)
    scales = set()
    change = overflowing(4)
    for _ in range(6):
        twins.train(1, change)
        scales.add(twins.scalers[1].get_scale())
    assert len(scales) > 1
    assert "because its GradScaler reads the gradients" in str(twins.step.plan)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_loss_scale_for_short_numbers(dtype):
    class Short(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network().to(dtype)

        def forward(self, x):
            return self.inner(x.to(dtype))

    # A loss of 16 bits: what the scale is there for, and the first scale overflows.
    twins = Twins(
        lambda model: optim.SGD(model.parameters(), lr=0.1), budget="2MiB", scaler=dict(init_scale=2.0**17, growth_interval=2), model=Short)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dtype == torch.float16:
            with pytest.raises(ValueError, match="FP16"):  # as torch does: gradients of 16 bits are not unscaled
                twins.plain_pass(batch(0))
                twins.scalers[0].unscale_(twins.optimizers[0])
            return
    twins.train(4)


def test_a_loss_scale_that_is_off():
    twins = Twins(lambda model: optim.SGD(model.parameters(), lr=0.1), budget="2MiB", scaler=dict(enabled=False))
    twins.train(2)
