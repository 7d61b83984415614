"""Training under a plan is training: loss, gradients, buffers and random numbers are those of plain PyTorch, bit for bit,
and the bytes in use never exceed the budget. All models of examples/models, under plans that recompute, move, or both,
at budgets of 70 %, 50 % and the least that works.

By default every model runs under one of the nine plans in rotation, so that each is taken by four models; REGEN_EXHAUSTIVE=1
runs all."""

import dataclasses
import gc
import json
import os

import pytest
import torch

import regen
from deep_models import build_deep
from examples.models import FAMILIES, names
from regen import _runtime
from regen._check import same_bits

STEPS = 3
EXHAUSTIVE = os.environ.get("REGEN_EXHAUSTIVE") == "1"
# Planners that recompute; that move whatever they can over a fast link; that do both over a slow one.
KINDS = {"recompute": ("checkmate", None), "swap": ("vdnn", (1e12, 1e12, 2e12)), "both": ("vdnn", (1e8, 1e8, 2e8))}
SHARES = (0.7, 0.5, "least")
COMBINATIONS = [(kind, share) for share in SHARES for kind in KINDS]
WORK = 500_000


@dataclasses.dataclass
class Outcome:
    share: object
    budget: int
    predicted: int
    measured: int
    recomputed: int
    moved: int
    least_instead: bool


def optimizer_for(index, model):
    if index % 2:
        return torch.optim.AdamW(model.parameters(), lr=0.01)
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def one_step(model, args, loss_fn, optimizer):
    optimizer.zero_grad()
    loss = loss_fn(model(*args[:-1]), args[-1])
    loss.backward()
    optimizer.step()
    return loss.detach()


def state_of(model):
    """Everything that a step leaves behind, by name."""
    state = {f"parameter {n}": p.detach() for n, p in model.named_parameters()}
    state |= {f"gradient of {n}": p.grad for n, p in model.named_parameters() if p.grad is not None}
    state |= {f"buffer {n}": b for n, b in model.named_buffers()}
    return state


def in_use():
    gc.collect()
    return _runtime.memory_use("cpu")["allocated"]


class Case:
    """One model: what plain PyTorch does with it, and a wrapped copy that is planned again and again."""

    def __init__(self, name):
        self.name, self.index = name, names().index(name)
        self.expected = self.run_plainly()
        self.base = in_use()
        model, self.args, self.loss_fn = build_deep(name)
        if name == "bert_evaluated":
            assert not model.training
        self.wrapped = regen.wrap(model, self.args[:-1], "1GiB", planner="keep_all", work_limit=WORK, cache=False,
                                  debug=True, reserve=0)
        self.measure_caller()

    def run_plainly(self):
        model, args, loss_fn = build_deep(self.name)
        self.start = {n: t.clone() for n, t in model.state_dict().items()}
        optimizer = optimizer_for(self.index, model)
        torch.manual_seed(0)
        expected = []
        for _ in range(STEPS):
            loss = one_step(model, args, loss_fn, optimizer)
            expected.append({"loss": loss, **{n: t.clone() for n, t in state_of(model).items()}})
        expected[-1]["generator state"] = torch.get_rng_state()
        return expected

    def measure_caller(self):
        """What loss and optimizer hold while everything is kept: given as a reserve to the plans that follow."""
        self.train()  # the first pass may be captured once more, for the layouts in which gradients arrive
        self.plan = self.wrapped.regen.active.session
        own = self.plan.own_bytes()
        self.plan.caller.bytes = self.train() - own
        self.unplanned = self.plan.unplanned_bytes + self.plan.caller.bytes

    def compare(self, step, loss):
        found = {"loss": loss, **state_of(self.wrapped)}
        if step == STEPS - 1:
            found["generator state"] = torch.get_rng_state()
        assert found.keys() == self.expected[step].keys()
        for name, tensor in self.expected[step].items():
            assert same_bits(tensor, found[name]), f"{self.name}: step {step}: {name} differs"

    def run(self, kind, share):
        planner, link = KINDS[kind]
        if link is not None:  # what only recomputes needs none
            self.plan.link = link
        self.plan.settings.planners = planner.split(",")
        shaped = self.wrapped.regen.active
        shaped.release()
        instead = share != "least" and not self.fits(int(share * self.unplanned))
        if share == "least" or instead:
            self.take_least()
        shaped.compile()
        measured = self.train()
        report = self.plan.report
        return Outcome(share, self.plan.budget + self.plan.caller_bytes, self.plan.predicted_peak, measured, report.recomputed,
                       report.offloaded_bytes, instead)

    def fits(self, budget):
        """Takes the budget, and the plan if there is one."""
        self.plan.settings.budget = _runtime.Budget.of_bytes(budget)
        return self.plan.plan_by(self.plan.settings.planners)

    def take_least(self):
        """The least budget that the planner finds a plan for, and that plan."""
        assert self.plan.take_least_plan()
        self.plan.settings.budget = _runtime.Budget.of_bytes(self.plan.predicted_peak)

    def train(self):
        self.wrapped.load_state_dict(self.start)
        self.wrapped.zero_grad()
        optimizer = optimizer_for(self.index, self.wrapped)
        torch.manual_seed(0)
        measured = 0
        for step in range(STEPS):
            loss = one_step(self.wrapped, self.args, self.loss_fn, optimizer)
            measured = max(measured, _runtime.memory_use("cpu")["allocated_peak"] - self.base)
            self.compare(step, loss)
            _runtime.reset_memory_peak("cpu")
        return measured


def chosen(index):
    """The plans a model runs under."""
    if EXHAUSTIVE:
        return COMBINATIONS
    return [COMBINATIONS[index % 9]]


RESULTS = {}


def record(name, kind, outcome):
    """One line for each run in the file that REGEN_EQUALITY_RUNS names, from which the counts of docs/results.md come."""
    if "REGEN_EQUALITY_RUNS" in os.environ:
        with open(os.environ["REGEN_EQUALITY_RUNS"], "a") as file:
            file.write(json.dumps({"model": name, "kind": kind, **dataclasses.asdict(outcome)}) + "\n")


def outcomes_of(name):
    """Of the model's runs, each of which a process makes once."""
    if name not in RESULTS:
        case = Case(name)
        RESULTS[name] = {(kind, share): case.run(kind, share) for kind, share in chosen(case.index)}
    return RESULTS[name]


@pytest.mark.parametrize("name", names())
def test_training_is_the_same_and_within_the_budget(name):
    for (kind, _), outcome in outcomes_of(name).items():
        record(name, kind, outcome)
        assert outcome.measured <= outcome.budget, (kind, outcome)
        assert abs(outcome.predicted - outcome.measured) <= 0.02 * outcome.measured, (kind, outcome)


def test_what_was_exercised():
    """Says what the runs above were, and that they were not all trivial."""
    runs = [(name, kind, o) for name in names() for (kind, _), o in outcomes_of(name).items()]  # another process may have run some
    moved = {name for name, kind, o in runs if o.moved}
    recomputed = {name for name, kind, o in runs if o.recomputed}
    both = {name for name, kind, o in runs if o.moved and o.recomputed}
    instead = [(name, o.share) for name, _, o in runs if o.least_instead]
    print(f"\n{len(runs)} runs of {len(RESULTS)} models of {len(FAMILIES)} families; moved in {len(moved)} models, "
          f"recomputed in {len(recomputed)}, both in one plan in {len(both)}; "
          f"{len(instead)} shares were below the least budget, which was used instead; "
          f"predicted/measured {min(o.predicted / o.measured for *_, o in runs):.4f} to {max(o.predicted / o.measured for *_, o in runs):.4f}")
    assert len(RESULTS) >= 30 and len(FAMILIES) >= 12
    assert len(instead) <= 0.1 * len(runs)
    assert all(o.moved or o.recomputed for *_, o in runs)
    least_models = len(RESULTS) if EXHAUSTIVE else 10
    assert len(moved) >= least_models and len(recomputed) >= least_models
