"""Runs the two halves of a captured step: the forward pass, and the backward pass when gradients arrive."""

import collections
import dataclasses
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from regen._capture.capture import Captured
from regen._capture.program_builder import referenced_values
from regen._capture.sized_capture import Sizes
from regen._capture.traced.outputs import UsedOutputs
from regen._islands.call import NEUTRAL, repeatable
from regen._session.caller_memory import CallerMemory
from regen._session.job import hold
from regen._session.measured_step import StepClock
from regen._session.owned import Bindings, place_of, place_value
from regen._session.replay import PassEffects, Replay
from regen._session.report import PlanReport
from regen._session.session import Session
from regen._session.sized_steps import SizedSteps
from regen.errors import Error, RegenError, UsageError
from regen.options import Link, Options

# Gradients are handed to autograd when about this many bytes of them are complete, so that DDP's
# buckets fill while the rest of the backward pass runs.
GRADIENT_CHUNK = 16 << 20


@dataclasses.dataclass
class Coming:
    """Bytes that a step is going to take from torch."""

    outputs: int
    tangents: int
    gradients: int


class GradientEntry(NamedTuple):
    """A gradient that the backward pass hands to autograd."""

    result: int | None  # in the program; None: another entry has the sum, or only outputs lead to it that have no gradient
    kind: str  # "parameter" or "input"
    place: Any  # its name, or number of the flat input
    term: int  # of those that autograd adds up


class ModuleSession(Session):
    """A plan beside which the caller holds memory of its own."""

    def __init__(
        self, captured: Captured, options: Options, caller: CallerMemory, *, measurements: str | None = None, link: Link | None = None
    ) -> None:
        """A fraction is of the unplanned peak of the first sample, also for other shapes."""
        self.caller = caller
        super().__init__(
            captured, options, fraction_of=caller.unplanned, measurements=measurements, link=link,
            lends_gradients=caller.lending.lends_gradients)
        caller.add(self)

    def agree(self) -> bool:
        """With other ranks; alone there is nothing to agree on."""
        return False

    def meet(self, number: int, may_swap: bool) -> bool:
        """With other ranks; alone there is none to meet."""
        return False

    def own_bytes(self) -> int:
        """What the plan accounts for, of the memory that is measured."""
        own = self.fixed_bytes
        if self.kind == "cpu":  # elsewhere the arena does not come from torch
            own += self.memory().arena_bytes - self.reserve_bytes
        return own


class ShapedModule:
    """One captured step, its plan, and where its tensors are found."""

    def __init__(self, captured: Captured, session: ModuleSession, model: torch.nn.Module, chunk: int = GRADIENT_CHUNK) -> None:
        self.captured = captured
        self.session = session
        self.caller = session.caller
        self.chunk = chunk
        self.seconds: StepClock | None = None
        self.steps = 0  # forward passes so far
        self.share: Session | None = None  # whose arena is taken
        self.lent: frozenset[int] = frozenset()  # results that are in the arena
        self.model = weakref.ref(model)
        self.bindings = Bindings(captured, model)
        self.effects = PassEffects(captured)
        self.grad_places = {name: place_of(model, name) for kind, name in self.targets() if kind == "parameter"}
        self.find_sizes()
        self.let_go_of_samples()

    # Where tensors are found.

    def let_go_of_samples(self):
        """Nothing of the caller's is kept: parameters may move, inputs may go."""
        kept = {storage for storage, _, _ in self.bindings.constants}
        self.captured.tensors = {s: t for s, t in self.captured.tensors.items() if s in kept}
        self.captured.parameters = {}

    def admit(self, flat):
        """The program's inputs for a batch; None: it needs another capture."""
        if (self.caller.passes_overlap and not self.separates_terms()) or not self.captured.is_for(self.model()):
            return None
        return self.captured.with_derived(flat, lambda storage: self.bindings.tensor_of(self.captured, storage))

    # Sizes, for what the caller holds.

    def find_sizes(self):
        program = self.captured.program
        storage_of = [v["storage"] for v in program["values"]]
        size = [s["bytes"] for s in program["storages"]]
        role = [s["role"] for s in program["storages"]]
        self.present = sum(n for n, r in zip(size, role) if r not in ("computed", "tangent"))
        outputs = {storage_of[program["results"][r]["value"]] for r in self.captured.output_results}
        self.output_bytes = sum(size[s] for s in outputs if role[s] == "computed")
        self.tangent_bytes = sum(n for n, r in zip(size, role) if r == "tangent")
        self.gradient_bytes = {r: size[storage_of[program["results"][r]["value"]]] for r, _, _ in self.captured.gradient_results}

    def coming_bytes(self):
        """Gradients that are there already will be added to, or go before new ones come: which of the two, only measuring shows."""
        fresh = 0
        for result, kind, place in self.captured.gradient_results:
            if result not in self.lent and (kind == "input" or place_value(self.grad_places[place]).grad is None):
                fresh += self.gradient_bytes[result]
        return Coming(self.output_bytes, self.tangent_bytes, fresh)

    def present_bytes(self):
        """Of what the plan accounts for, that which is there between two steps."""
        if self.session.kind != "cpu" or not self.session.compiled:
            return self.present
        memory = self.session.memory()
        return self.present + memory.arena_bytes + memory.saved_state_bytes

    def arena_bytes(self) -> int:
        """Of a GPU's memory, taken beside torch's allocator."""
        return self.session.memory().arena_bytes if self.session.kind != "cpu" and self.session.compiled else 0

    # Planning.

    def look_for_better_plan(self):
        if not self.awaits_backward():
            self.take_better_plan()

    def make_ready(self):
        self.look_for_better_plan()
        if not self.session.compiled:
            self.session.plan()
            self.compile()

    def compile(self):
        self.session.compile(self.share)
        self.session.cut_backward(self.chunk)
        self.lent = frozenset(self.session.lent_results())
        self.arrange_gradients()
        self.own_bytes = self.session.own_bytes()

    def take_better_plan(self):
        if self.session.take_better_plan(self.steps + 1):
            self.plan_changed()

    def plan_changed(self):
        self.seconds = None
        self.caller.plan_changed()

    def release(self):
        self.caller.take_back(self, begins=False)
        self.session.release()

    def report(self):
        peak = self.caller.measured_peak()
        if peak is not None and self.session.kind != "cpu" and self.session.compiled:
            peak += self.session.memory().arena_bytes  # a GPU's does not come from torch
        return PlanReport(self.session, peak, self.seconds and self.seconds.total)

    def agree_on_room(self):
        """The same with the other ranks, whichever shape each of them is about to use."""
        if self.session.agree():
            in_use = self.session.compiled
            self.release()
            self.session.plan()
            if in_use:
                self.compile()

    def meet(self, number):
        """With the other ranks, whichever shape each of them is about to use: is there a better plan for all?"""
        if self.session.meet(number, may_swap=not self.awaits_backward()):
            self.plan_changed()

    def make_room(self):
        """Plans again if what the caller turned out to hold does not fit beside the plan."""
        if not self.session.fits:
            self.release()
            self.make_ready()

    def arrange_gradients(self):
        """For each backward part, which gradients it completes. Autograd takes as many from a tensor's passes as it has uses, so a sum stands for
        the first of its terms.
        """
        entries = self.entries_of_gradients()
        step = self.session
        completed = [step.results_of(part) for part in range(step.num_parts)]
        # No backward node makes a gradient that is an output's own: it is there when the backward pass begins.
        first, *later = completed[1:] or [[]]
        self.parts = [
            [entry for result in sorted(results) for entry in entries.get(result, ())] for results in ([*completed[0], *first], *later)]
        made = {entry[1:3] for part in self.parts for entry in part}
        self.parts[-1] += [GradientEntry(None, kind, place, 0) for kind, place in self.targets() if (kind, place) not in made]
        self.needs = tangents_behind(self.captured) if len(self.captured.tangent_values) > 1 else {}
        self.read_from = [set(step.storages_read_from(part)) for part in range(step.num_parts)]

    def entries_of_gradients(self) -> dict[int, list[GradientEntry]]:
        """For each result."""
        terms = {} if self.separates_terms() else {key: n for key, n in self.captured.terms.items() if key[0] == "parameter"}
        seen, found = collections.Counter[Any](), {}
        for result, kind, place in self.captured.gradient_results:
            number = seen[kind, place]
            seen[kind, place] += 1
            rest = [GradientEntry(None, kind, place, n) for n in range(1, terms.get((kind, place), 1))]
            found[result] = [GradientEntry(result, kind, place, number), *rest]
        return found

    def targets(self) -> list[tuple[str, Any]]:
        """What gradients may arrive at: also those to which none comes from the outputs that it was captured for."""
        found = dict.fromkeys((kind, place) for _, kind, place in self.captured.gradient_results)
        if isinstance(self.captured.tangents, UsedOutputs):
            inputs = self.captured.in_spec.tree.num_leaves
            found |= dict.fromkeys(t for t in sorted(self.captured.tangents.targets, key=repr) if t[0] == "parameter" or t[1] < inputs)
        return list(found)

    def separates_terms(self) -> bool:
        """Whether the gradient of each use is a result of its own, as it is for inputs; True where no parameter is used several times."""
        results = collections.Counter((kind, place) for _, kind, place in self.captured.gradient_results)
        return all(results[owner] == count for owner, count in self.captured.terms.items())

    # Running.

    def trained_parameters(self):
        """That get gradients; none once the model is gone."""
        return [] if self.model() is None else [place_value(place) for place in self.grad_places.values()]

    def awaits_backward(self):
        call = self.caller.last_call()
        return call is not None and call.state == "forward"

    def forward(self, flat, replay=None):
        """`replay`: of this pass, should its backward pass need it; None: it cannot run again."""
        return self.rebuild(dict(zip(self.captured.output_results, self.run_pass(flat, replay))), flat)

    def run_pass(self, flat: list[Any], replay: Replay | None) -> tuple[torch.Tensor, ...]:
        """The tensors that the captured forward pass returns."""
        if self.caller.is_known():
            self.session.search_beside()
        outputs = self.run_forward(flat, replay)
        self.caller.after_forward(outputs)
        return outputs

    def run_forward(self, flat: list[Any], replay: Replay | None) -> tuple[torch.Tensor, ...]:
        """What the captured passes return, as parts of autograd's graph. See Session.run_first for the second try."""
        with repeatable(self.captured.islands) as again:
            while True:
                try:
                    return self.chain_of_parts(flat, replay)
                except Error:
                    if not self.session.foresee_more():
                        raise
                    again()
                    self.plan_changed()
                    self.make_ready()

    def chain_of_parts(self, flat: list[Any], replay: Replay | None) -> tuple[torch.Tensor, ...]:
        """Makes a node of autograd's graph for each part of the backward pass; the one nearest to the loss runs the forward pass."""
        step = self.session
        owned = self.bindings.owned.tensors()
        self.steps += 1
        self.caller.forwards += 1  # also for a second try: a call that failed is none of this number
        step.forget()
        inputs = self.bindings.of_inputs(flat)
        step.bind([*self.bindings.owned.bindings(owned), *inputs, *self.bindings.constants])
        call = StepCall(self, self.caller.forwards, owned, inputs, replay)
        self.caller.last_call = weakref.ref(call)
        link: Any = None
        for part in range(len(self.parts) - 1, -1, -1):
            tensors = [place_value(self.grad_places[e.place]) if e.kind == "parameter" else flat[e.place] for e in self.parts[part]]
            link = BackwardPart.apply(call, part, link, *tensors)
        return link if isinstance(link, tuple) else (link,)

    def run_part(self, part):
        self.session.run(part)

    def rebuild(self, results, flat):
        returned = set(self.captured.live_outputs()) & self.bindings.places.keys()
        for storage in returned:
            self.captured.tensors[storage] = place_value(self.bindings.places[storage])
        outputs = self.captured.rebuild_outputs(results, flat)
        model = self.model()
        if self.captured.changes_model() and model is not None:
            self.captured.assign(model, results, flat)
        for storage in returned:
            del self.captured.tensors[storage]
        return outputs


# What a ShapedModule knows of the plan in use.
OF_A_PLAN = ("session", "own_bytes", "parts", "needs", "read_from", "lent")


class SizedModule(ShapedModule):
    """The batches of certain sizes, under a plan for these or larger ones."""

    def __init__(self, steps: SizedSteps[ShapedModule], sizes: Sizes, captured: Captured) -> None:
        self.holder, self.sizes = steps, sizes
        self.__dict__.update({**vars(steps.level_for(sizes).entry), **self.__dict__})
        captured.tensors, captured.parameters = self.captured.tensors, {}
        self.captured = captured
        self.steps, self.seconds = 0, None
        self.find_sizes()

    def make_ready(self):
        entry = self.holder.make_ready(self.sizes).entry
        self.__dict__.update({name: getattr(entry, name) for name in OF_A_PLAN})

    def make_room(self):
        """The plan of the largest sizes has taken the arena: what has room beside it has room beside those of smaller sizes."""
        if not self.holder.levels[-1].entry.session.fits:
            self.release()
            self.make_ready()

    def release(self):
        self.holder.release()

    def run_forward(self, flat: list[Any], replay: Replay | None) -> tuple[torch.Tensor, ...]:
        try:
            return super().run_forward(flat, replay)
        except RegenError:
            self.holder.refuse(self.sizes)
            raise

    def run_part(self, part):
        try:
            self.session.run(part)
        except RegenError:
            if part > 0:
                self.holder.refuse(self.sizes)
            raise


def tangents_behind(captured):
    """For each gradient result, the outputs (by position) whose gradients it is made of."""
    program = captured.program
    storage_of = [value["storage"] for value in program["values"]]
    behind = {}
    for position, value in enumerate(captured.tangent_values):
        if value is not None:
            behind.setdefault(storage_of[value], set()).add(position)
    for node in program["nodes"]:
        read = [storage_of[v] for v in referenced_values([node["args"], list(node["kwargs"].values())])]
        sources = set().union(*(behind.get(s, ()) for s in read))
        for value in node["outputs"]:
            if value is not None and value >= 0 and sources:
                behind.setdefault(storage_of[value], set()).update(sources)
    return {r: frozenset(behind.get(storage_of[program["results"][r]["value"]], ())) for r, _, _ in captured.gradient_results}


class StepCall:
    """One forward pass and the backward pass that belongs to it, or several through the same values (`retain_graph=True`)."""

    def __init__(
        self, shaped: ShapedModule, number: int, owned: list[torch.Tensor], inputs: list[Any], replay: Replay | None = None
    ) -> None:
        self.state = "forward"
        self.next_part = 0  # of the backward pass
        self.is_other = False  # gradients have arrived for other outputs than it was captured for
        self.replay = replay
        self.replayed: Mapping[Any, torch.Tensor | None] | None = None  # all gradients, by another run of the pass
        self.shaped = shaped
        self.number = number
        self.owned = owned
        self.inputs = inputs  # the step holds no tensors itself; the backward pass may read these
        self.versions = [tensor._version for tensor in owned]
        self.clock = StepClock(shaped.session.kind)
        self.tangents: Sequence[torch.Tensor | None] = ()
        self.held: list[Any] = []
        self.tangents_given: frozenset[int] = frozenset()

    def __del__(self):
        # Given up half-way, by an exception or because no gradients were needed: results are held no longer.
        shaped = self.shaped
        if self.state == "forward" and shaped.caller.forwards == self.number and shaped.session.compiled:
            shaped.session.forget()

    def run_forward(self):
        step = self.shaped.session
        with hold():
            self.clock.begin()
            self.shaped.run_part(0)
            outputs = tuple(step.result(r) for r in self.shaped.captured.output_results)
            self.clock.end()
        return outputs

    def run_backward(self, part, tangents):
        """Autograd runs it on a thread of its own for a GPU, and on the caller's for a CPU."""
        with self.shaped.caller.turns.step(may_nest=True):
            if part == 0:
                self.replayed, self.tangents = None, tangents
            if self.replayed is None:
                self.check_unchanged(part)
                if not self.takes(tangents if part == 0 else ()) or not self.has_values(part):
                    self.run_again()
            gradients = self.planned_part(part) if self.replayed is None else self.replayed_part(self.replayed, part)
            if part == len(self.shaped.parts) - 1:
                self.end_backward()
        return gradients

    def has_values(self, part):
        """Whether the arena holds what this part of the backward pass reads. Each part is run once, behind the one before. Sums of terms are not
        what autograd needs when it adds up the gradients of several passes.
        """
        caller, session = self.shaped.caller, self.shaped.session
        if caller.passes_overlap and not self.shaped.separates_terms():
            return False
        return self.state == "forward" and caller.forwards == self.number and session.compiled and self.next_part == part

    def planned_part(self, part):
        shaped = self.shaped
        step = shaped.session
        with hold():
            self.clock.begin()
            if part == 0:
                shaped.caller.before_backward()
                self.start_backward(step, self.tangents)
            if step.num_parts > 1:  # else all gradients are those of outputs
                shaped.run_part(part + 1)
            self.next_part = part + 1
            gradients = tuple(self.gradient(step, entry) for entry in shaped.parts[part])
            self.clock.end()
        return gradients

    def run_again(self):
        """The pass from its beginning, which reads all parameters, and all of its backward pass."""
        self.check_unchanged(0)
        if not self.is_other:
            self.shaped.caller.say_it_runs_again()
        self.replayed = self.replay and self.replay.gradients(self.shaped, self.tangents)
        if self.replayed is None:
            raise UsageError(self.why_gone())

    def replayed_part(self, replayed, part):
        """The gradients of this part, which another run has made."""
        return tuple(replayed.get(entry[1:]) for entry in self.shaped.parts[part])

    def start_backward(self, step, tangents):
        self.tangents_given = frozenset(i for i, tangent in enumerate(tangents) if tangent is not None)
        self.held = self.bound_tangents(tangents)
        # Memory that was let go and taken again between the passes (FSDP) may be elsewhere.
        step.bind(self.held + self.shaped.bindings.owned.bindings(self.owned))

    def takes(self, tangents):
        """Whether the pass was captured for the outputs that these are of. If not, it is captured for them, and the next passes are."""
        if not tangents:
            return True  # a later part of the pass
        shaped, used = self.shaped, self.shaped.caller.used
        wanted = used.name_of(shaped.captured, tangents, shaped.targets())
        can_wait = not self.unexpected(tangents) and not (self.replay is not None and self.replay.is_possible())
        if wanted == shaped.captured.tangents or can_wait:
            used.arrived(shaped.captured.tangents)
            return True
        used.expected = wanted
        self.is_other = True
        return False

    def unexpected(self, tangents):
        """Positions of outputs without a gradient in the program, for which one has arrived."""
        values = self.shaped.captured.tangent_values
        return [i for i, (value, tangent) in enumerate(zip(values, tangents)) if value is None and tangent is not None]

    def gradient(self, step, entry):
        """None, as plain PyTorch has it, when no output that it comes from was used."""
        if entry.result is None or (entry.kind == "parameter" and self.shaped.captured.is_missing(entry.place)):
            return None
        needs = self.shaped.needs.get(entry.result)
        return None if needs and not needs & self.tangents_given else step.result(entry.result)

    def end_backward(self):
        """All gradients have been handed over. With `retain_graph=True` what another run needs stays."""
        if self.replayed is None:
            self.shaped.session.forget()
            self.shaped.caller.lending.step_ended(self.shaped)
            self.shaped.seconds = self.clock
            self.shaped.caller.after_backward()
        self.state, self.replayed, self.held, self.tangents = "done", None, [], ()
        if not keeps_graph():
            self.owned, self.inputs, self.replay = [], [], None

    def why_gone(self):
        unexpected = self.unexpected(self.tangents)
        if unexpected:
            captured = self.shaped.captured
            name = captured.program["results"][captured.output_results[unexpected[0]]]["name"]
            return (
                f"regen: a gradient arrived for output {name}, but the model returns a loss and only that was captured with a gradient; "
                "expected loss.backward() of the model's own loss. The next forward pass is captured for it")
        if self.replay is not None:
            reason = "and it cannot run again, because the model is in another mode by now or returns something else"
        elif self.state == "done":
            return (
                "regen: backward ran a second time through a forward pass whose values are released; "
                "expected retain_graph=True in the first backward pass, or one backward pass for each forward pass")
        else:
            reason = "and it cannot run again, because it changes its inputs"
        return (
            "regen: the values saved by this forward pass are gone: another pass of the same wrapped model ran since, "
            f"{reason}; expected each backward pass before the next forward pass")

    def check_unchanged(self, part):
        """As plain PyTorch does: what the backward pass still reads must be as the forward pass left it. A hook may update a parameter as soon as
        its gradient is there.
        """
        owned = self.shaped.bindings.owned
        read = self.shaped.read_from[min(part + 1, len(self.shaped.read_from) - 1)] if part > 0 else None
        for name, (storage, _), tensor, version in zip(owned.names, owned.storages, self.owned, self.versions):
            if tensor._version != version and isinstance(tensor, torch.nn.Parameter) and (read is None or storage in read):
                raise UsageError(
                    f"regen: '{name}' was changed in place between the forward pass and the end of the backward pass that "
                    "reads it; expected parameters to be updated after backward (regen.step updates them early and safely)")

    def bound_tangents(self, tangents):
        captured = self.shaped.captured
        values = captured.program["values"]
        return [
            (values[value]["storage"], as_laid_out(tangent, values[value], captured), values[value]["offset"])
            for value, tangent in zip(captured.tangent_values, tangents) if value is not None]


def as_laid_out(tangent, value, captured):
    """The gradient of an output in the layout the program was captured with; one that is missing changes no number it is added to."""
    sizes, strides = value["sizes"], value["strides"]
    dtype = getattr(torch, value["dtype"])
    if tangent is not None and tangent.dtype == dtype and all(
            n == 1 or s == t for n, s, t in zip(sizes, strides, tangent.stride())):
        return tangent
    laid_out = torch.empty_strided(sizes, strides, dtype=dtype, device=captured.program["device"])
    return laid_out.fill_(NEUTRAL) if tangent is None else laid_out.copy_(tangent)


def keeps_graph() -> bool:
    """Whether the backward pass that runs was asked to keep its graph for another one."""
    return torch._C._autograd._get_current_graph_task_keep_graph()  # pyright: ignore[reportAttributeAccessIssue]


class BackwardPart(torch.autograd.Function):
    """A stretch of the backward pass as one node of autograd's graph. The chain of them hands each
    stretch's gradients over as soon as it has run; the one nearest to the loss runs the forward pass.
    """

    @staticmethod
    def forward(ctx: Any, call: StepCall, part: int, link: Any, *tensors: Any) -> Any:
        ctx.call, ctx.part, ctx.linked = call, part, link is not None
        ctx.set_materialize_grads(False)
        if part > 0:
            return torch.empty(0, device=call.shaped.session.device)
        outputs = call.run_forward()
        flows = call.shaped.captured.differentiable
        ctx.mark_non_differentiable(*[o for o, differentiable in zip(outputs, flows) if not differentiable])
        return outputs

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """With the signature that autograd calls."""
        with torch.no_grad():
            gradients = ctx.call.run_backward(ctx.part, tangents)
            link = torch.empty(0, device=ctx.call.shaped.session.device) if ctx.linked else None
        if torch.is_grad_enabled():  # create_graph=True
            gradients = FirstDerivatives.of(gradients)
        return (None, None, link, *gradients)


class FirstDerivatives(torch.autograd.Function):
    """Gradients that cannot be differentiated again. As constants they would drop out of a penalty on gradients without an error."""

    @staticmethod
    def of(gradients: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """These, with an error for code that differentiates them again."""
        made = [g for g in gradients if g is not None]
        marked = iter(FirstDerivatives.apply(torch.empty(0, requires_grad=True), *made) if made else ())
        return [None if g is None else next(marked) for g in gradients]

    @staticmethod
    def forward(ctx: Any, start: torch.Tensor, *gradients: torch.Tensor) -> Any:
        return tuple(g.detach() for g in gradients)

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        raise UsageError(
            "regen: gradients of gradients were asked for, but a planned backward pass cannot be differentiated again; expected the plain model for "
            "a pass whose gradients are part of a loss (its parameters are the same), or regen.step of a module whose forward pass returns that loss")
