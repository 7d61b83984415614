"""One call of an island: the user's function over real tensors, with autograd's own graph from its forward to its backward pass."""

import contextlib
import copy
import ctypes
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge, saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from regen import _runtime
from regen._capture.arguments import PLAIN, ArgumentSpec, described
from regen._capture.traced.module_state import ModuleState
from regen._capture.traced.regions import is_dense
from regen._capture.traced.sources import Source
from regen._islands.held import MARGIN, UNIT, Held
from regen._islands.operators import register
from regen._islands.places import Surprised
from regen._islands.slots import Assignments, Slot
from regen._islands.surroundings import Surroundings, collect, for_backward, foreign_states, same_foreign_numbers, set_foreign_states
from regen.errors import CaptureError, UsageError

NEUTRAL = -0.0  # added to any number, it leaves its bits as they are; the place of a gradient that plain PyTorch does not have


NUMBER_BYTES = 16  # up to which live_bytes_of_call() does not count


class Layout(NamedTuple):
    """How a tensor looks."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @staticmethod
    def of(tensor: torch.Tensor) -> "Layout":
        """Of a real one."""
        return Layout(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)

    def empty(self, device: torch.device) -> torch.Tensor:
        """A tensor that looks so."""
        return torch.empty_strided(self.sizes, self.strides, dtype=self.dtype, device=device)


@dataclasses.dataclass
class Returned:
    """What a function returns, flat.

    Attributes:
        leaves: of its containers, then the tensors of objects among them.
        objects: position of a leaf, all of its state but the tensors, how many these are.
    """

    leaves: list[Any]
    spec: Any
    objects: list[tuple[int, bytes, int]]

    @staticmethod
    def of(returned: Any) -> "Returned":
        """Numbers may follow from values, and are refused."""
        leaves, spec = tree_flatten(returned)
        objects, found = [], []
        for position, leaf in enumerate(leaves):
            if isinstance(leaf, PLAIN) and not isinstance(leaf, (bool, int, float, complex)):
                continue
            seen = None if isinstance(leaf, PLAIN) else described(leaf)
            if seen is None:
                raise CaptureError(f"an island returns a {type(leaf).__name__}; expected tensors, and containers and objects of these")
            objects.append((position, seen[0], len(seen[1])))
            found += seen[1]
        return Returned(leaves + found, spec, objects)

    def tensors(self) -> list[torch.Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def with_tensors(self, made: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        """The same with others."""
        leaves = [made(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        used = self.spec.num_leaves
        for position, _, count in self.objects:
            memo = {id(self.leaves[i]): leaves[i] for i in range(used, used + count)}
            leaves[position] = copy.deepcopy(leaves[position], memo)
            used += count
        return tree_unflatten(leaves[:self.spec.num_leaves], self.spec)


@dataclasses.dataclass
class Ran:
    """What one call of the function left behind."""

    results: list[torch.Tensor]  # in the order of the node's results, what is held apart
    edges: list[GradientEdge | None]  # of these
    leaves: dict[int, torch.Tensor]  # input -> the leaf of autograd's graph
    returned: "Returned"
    passed: list[torch.Tensor]
    stand_ins: list[torch.Tensor]  # of buffers
    written: tuple[set[int], set[int]]  # of these two
    copies: dict[Any, int]  # node of autograd's graph that copies an input -> the input, where the function is given a copy
    assigned: list[Slot]  # attributes of modules that the function has given other tensors


@dataclasses.dataclass
class Graph:
    """Of the last forward pass, for the backward pass that belongs to it."""

    edges: list[GradientEdge | None]
    leaves: dict[int, torch.Tensor]
    held: Held


class IslandCall:
    """A function with what it is called with, and what is known of the call.

    Tensors that the operators get: inputs, buffers, parameters; the backward pass: kept inputs, parameters, what is held, gradients of results.

    Attributes:
        reason: why it is no part of the program.
        source: the user's line that calls it.
        module: the path of the innermost module that calls it; None: none does.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], owner: torch.nn.Module | None, flat: list[Any], spec: ArgumentSpec, numbers: list[int | None],
        parameters: list[Slot], buffers: list[Slot], needs_gradient: list[bool], device: torch.device, reason: str, source: Source,
    ) -> None:
        """`flat`: arguments, without tensors; `numbers`: which input each of them is; `needs_gradient`: of the inputs."""
        self.key = register(self)
        self.name, self.function, self.owner = name, function, owner
        self.flat, self.spec, self.numbers = flat, spec, numbers
        self.parameters, self.buffers, self.needs_gradient, self.device = parameters, buffers, needs_gradient, device
        self.reason = reason
        self.source, self.module = source
        self.surroundings = Surroundings.here()
        # Known after a first call.
        self.written = set(range(len(needs_gradient)))  # inputs that the function writes to; copies are what it is given
        self.written_buffers = set(range(len(buffers)))
        self.results: list[Layout] = []
        self.differentiable: list[bool] = []
        self.assigned: list[Slot] = []  # attributes of modules that it gives other tensors: results, which the trace assigns
        self.objects: list[tuple[int, bytes, int]] = []  # among what it returns
        self.draws = self.draws_elsewhere = self.changes_modules = False
        self.draws_on_host = False  # from torch's generator there, while the device is another
        # Known after a call on the sample.
        self.kept: list[int] = []  # inputs that the backward pass is given
        self.held_bytes = 0
        self.targets: list[tuple[str, int, Layout]] = []  # ("input" or "parameter", its number, layout of the gradient)
        self.uses: dict[tuple[str, int], int] = {}  # how often each target was used
        self.shared: set[tuple[str, int]] = set()  # targets that something else uses too
        self.samples: list[torch.Tensor] = []  # on the host
        self.held_sample: HostCopy | None = None  # what the backward pass reads, while it is measured
        self.surprises = False  # on the sample it does something else than when it was traced
        self.narrow = False  # it may use no other parameters than the traced call did
        # In use.
        self.given: list[int] = []  # results of which gradients arrive
        self.measuring = False
        self.wanted_bytes = 0  # more than is held now, to be had with the next plan
        self.graph: Graph | None = None
        self.missing: set[int] = set()  # parameters that got no gradient in the last backward pass

    @property
    def holds(self) -> bool:
        return any(self.differentiable)

    @property
    def trained(self) -> list[int]:
        """Parameters that may get a gradient."""
        return [i for i, slot in enumerate(self.parameters) if slot.tensor.requires_grad] if self.holds else []

    # The forward pass.

    def forward(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What the executor calls. Results are allocated first, and so lie where the plan places them; all else comes from the island's memory."""
        if not self.held_bytes:
            return self.sampled(tensors)
        block = [torch.empty(self.held_bytes, dtype=torch.uint8, device=self.device)] if self.holds else []
        results = [*block, *(layout.empty(self.device) for layout in self.results)]
        if not self.measuring:
            self.fill(tensors, results)
            return results
        for tensor, sample in zip(tensors, self.samples):
            tensor.copy_(sample)
        with self.untouched():
            self.fill(tensors, results)
        if self.holds and self.held_sample is None:
            self.held_sample = HostCopy(results[0])
        return results

    def fill(self, tensors: Sequence[torch.Tensor], results: list[torch.Tensor]) -> None:
        inputs, buffers = self.divided(tensors)
        kept = {inputs[number].untyped_storage().data_ptr(): place for place, number in enumerate(self.kept)}
        held = Held(results[0] if self.holds else None, kept, [s.tensor for s in self.parameters], self.device)
        self.graph = None
        self.graph = self.graph_of(inputs, buffers, held, results[1:] if self.holds else results)
        if held.overflows:
            self.outgrow(held.bytes)
        held.let_go()
        self.check_kept(results)

    def graph_of(
        self, inputs: Sequence[torch.Tensor], buffers: Sequence[torch.Tensor], held: Held, places: Sequence[torch.Tensor],
    ) -> Graph | None:
        """Runs the function. All that remains of its tensors is in `places`, and in what is held."""
        generators = None if self.draws else self.generators()
        ran = self.run(inputs, buffers, held)
        if generators is not None and not all(map(torch.equal, generators, self.generators())):
            raise UsageError(f"regen: island {self.name} draws random numbers for this batch, and drew none on the sample; expected the same")
        self.check(ran)
        with torch.no_grad():
            for place, result in zip(places, ran.results):
                place.copy_(result)
        return Graph(ran.edges, ran.leaves, held) if self.holds else None

    def generators(self) -> list[torch.Tensor]:
        """Their states."""
        return [torch.get_rng_state(), *([torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else [])]

    def outgrow(self, wanted: int) -> None:
        """More has to be held than there is memory for: the step is planned again with more, and runs again."""
        had, self.graph = self.held_bytes, None
        self.wanted_bytes = with_margin(wanted)
        _runtime.outgrow(self.wanted_bytes)
        raise torch.OutOfMemoryError(
            f"island {self.name} holds {_runtime.format_bytes(wanted)} for its backward pass with this batch; planned are {_runtime.format_bytes(had)}")

    def grow(self) -> None:
        """There is a plan with as much as it asked for."""
        self.held_bytes, self.wanted_bytes = max(self.held_bytes, self.wanted_bytes), 0

    def divided(self, tensors: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """(inputs, buffers)."""
        count = len(self.needs_gradient)
        return list(tensors[:count]), list(tensors[count:count + len(self.buffers)])

    def run(self, inputs: Sequence[torch.Tensor], buffers: Sequence[torch.Tensor], held: Held, touched: TorchDispatchMode | None = None) -> Ran:
        """Calls the function. `touched`: notes what it takes; the call is the first."""
        with self.surroundings.entered():
            fresh = touched is not None or not self.held_bytes  # what it writes to is not known yet
            passed, leaves = [], {}
            for number, tensor in enumerate(inputs):
                given = tensor.detach()
                if self.needs_gradient[number]:
                    given.requires_grad_()
                    if self.surroundings.grad:
                        leaves[number] = given
                passed.append(given.clone() if fresh or number in self.written else given)
            copies = {passed[n].grad_fn: n for n in leaves if passed[n].grad_fn is not None}
            stand_ins = [b.detach().clone() if fresh or i in self.written_buffers else b.detach() for i, b in enumerate(buffers)]
            versions = [t._version for t in (*passed, *stand_ins)]
            hooks = saved_tensors_hooks(held.pack, held.unpack) if self.surroundings.grad else contextlib.nullcontext()
            with hooks, self.replaced(stand_ins), touched or contextlib.nullcontext():
                assignments = Assignments(self.owner)
                value = self.function(*self.arguments(passed)[0], **self.arguments(passed)[1])
                assigned = assignments.take()
            returned = Returned.of((value, [tensor for _, tensor in assigned]))
            written = self.written_now(passed, stand_ins, versions)
            outs = distinct([t for t in returned.tensors() if not is_one_of(t, passed)])
            results = [*outs, *(passed[i] for i in sorted(written[0])), *(stand_ins[i] for i in sorted(written[1]))]
            edges = [get_gradient_edge(t) if t.requires_grad else None for t in results]
            return Ran(results, edges, leaves, returned, passed, stand_ins, written, copies, [slot for slot, _ in assigned])

    def arguments(self, passed: Sequence[torch.Tensor]) -> tuple[Any, Any]:
        leaves = [x if n is None else passed[n] for x, n in zip(self.flat, self.numbers)]
        return tree_unflatten(leaves, self.spec.tree)

    @contextlib.contextmanager
    def replaced(self, stand_ins: Sequence[torch.Tensor]) -> Iterator[None]:
        """Buffers of the module are these."""
        before = [(slot, slot.holder.get(slot.key, self)) for slot in self.buffers]  # an attribute that the step assigns may not be there yet
        for slot, stand_in in zip(self.buffers, stand_ins):
            slot.holder[slot.key] = stand_in
        try:
            yield
        finally:
            for (slot, tensor), stand_in in zip(before, stand_ins):
                if slot.holder.get(slot.key) is not stand_in:
                    continue
                if tensor is self:
                    del slot.holder[slot.key]
                else:
                    slot.holder[slot.key] = tensor

    def written_now(self, passed: list[torch.Tensor], stand_ins: list[torch.Tensor], versions: list[int]) -> tuple[set[int], set[int]]:
        """Inputs and buffers that the function has changed; of those that were copied, all: their results have to be there."""
        changed = [t._version != v for t, v in zip((*passed, *stand_ins), versions)]
        inputs = {i for i, c in enumerate(changed[:len(passed)]) if c}
        buffers = {i for i, c in enumerate(changed[len(passed):]) if c}
        if not self.held_bytes:
            return inputs, buffers
        if not (inputs <= self.written and buffers <= self.written_buffers):
            raise UsageError(
                f"regen: island {self.name} changes an argument in place that it left alone on the sample; expected the same for all batches")
        return self.written, self.written_buffers

    def check(self, ran: Ran) -> None:
        """Sizes of results are part of the program."""
        found = [Layout.of(t) for t in ran.results]
        if [(f.sizes, f.dtype) for f in found] != [(r.sizes, r.dtype) for r in self.results]:
            raise UsageError(
                f"regen: island {self.name} returns {shapes(found)} for this batch, {shapes(self.results)} for the sample; expected results whose "
                "sizes do not depend on values")
        if not self.does_as_known(ran):
            raise UsageError(
                f"regen: island {self.name} assigns other attributes, or returns objects with other plain values, for this batch than for the sample; "
                "expected the same for all batches")
        for edge, flows in zip(ran.edges, self.differentiable):
            if edge is not None and not flows:
                raise UsageError(
                    f"regen: gradients flow through a result of island {self.name} through which none flowed on the sample; expected the same for all "
                    "batches (a sample whose loss uses it)")
        if self.shared or self.narrow:
            used = self.count_uses(ran)
            for target in self.shared:
                if used.get(target, 0) > 1:
                    raise UsageError(
                        f"regen: island {self.name} uses {target[0]} {target[1]}, which other parts of the model use too, {used[target]} times for this "
                        "batch; expected once, as on the sample (gradients would be added up in another order)")

    def does_as_known(self, ran: Ran) -> bool:
        """What the program cannot express: which attributes are assigned, and plain values in objects."""
        assigned = len(ran.assigned) == len(self.assigned) and all(a.same_as(b) for a, b in zip(ran.assigned, self.assigned))
        return assigned and ran.returned.objects == self.objects

    def check_kept(self, results: list[torch.Tensor]) -> None:
        """Its memory is used for other things now."""
        sizes = [t.untyped_storage().nbytes() for t in results]
        own = sum(size for size in sizes if size > NUMBER_BYTES)
        if _runtime.live_bytes_of_call() > own:
            collect()
        kept = _runtime.live_bytes_of_call() - own
        if kept > 0:
            raise CaptureError(
                f"island {self.name} keeps a tensor of {_runtime.format_bytes(kept)} beyond its call; expected functions that return their tensors "
                "or save them for the backward pass by save_for_backward()")

    def count_uses(self, ran: Ran) -> dict[tuple[str, int], int]:
        """Of inputs and parameters, in the graph."""
        targets = {id(t): ("input", n) for n, t in ran.leaves.items()}
        targets |= {id(slot.tensor): ("parameter", n) for n, slot in enumerate(self.parameters)}
        used: dict[tuple[str, int], int] = {}
        seen, pending = set(), [e.node for e in ran.edges if e is not None]
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            for following, _ in node.next_functions:
                if following is None:
                    continue
                pending.append(following)
                if following in ran.copies:
                    used["input", ran.copies[following]] = used.get(("input", ran.copies[following]), 0) + 1
                if node in ran.copies:
                    continue
                variable = getattr(following, "variable", None)
                if variable is not None:
                    target = targets.get(id(variable))
                    if target is None and not isinstance(variable, torch.nn.Parameter):
                        continue  # the function's own
                    if target is None:
                        raise CaptureError(
                            f"island {self.name} uses a parameter of shape {tuple(variable.shape)} of another module; expected its own parameters and "
                            "arguments")
                    used[target] = used.get(target, 0) + 1
        return used

    # The backward pass.

    def backward(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What the executor calls."""
        results = [layout.empty(self.device) for _, _, layout in self.targets]
        given = len(self.kept) + len(self.parameters)
        kept, block = tensors[:len(self.kept)], tensors[given]
        if self.measuring and self.held_sample is not None:  # sizes may depend on what was saved
            for tensor, number in zip(kept, self.kept):
                tensor.copy_(self.samples[number])
            self.held_sample.write_to(block)
        found = self.differentiate(kept, block, tensors[given + 1:])
        self.missing = set()
        with torch.no_grad():
            for (kind, number, _), result, gradient in zip(self.targets, results, found):
                if gradient is not None:
                    result.copy_(gradient)
                    continue
                result.fill_(NEUTRAL)
                if kind == "parameter":
                    self.missing.add(number)
        return results

    def differentiate(
        self, kept: Sequence[torch.Tensor], block: torch.Tensor | None, tangents: Sequence[torch.Tensor],
    ) -> Sequence[torch.Tensor | None]:
        graph = self.graph
        if graph is None:
            raise UsageError(f"regen: the backward pass of island {self.name} runs without its forward pass")
        if not self.measuring:
            self.graph = None
        graph.held.given, graph.held.given_block = kept, block
        roots = [(graph.edges[r], t.detach()) for r, t in zip(self.given, tangents) if graph.edges[r] is not None]
        wanted = [graph.leaves[n] if kind == "input" else self.parameters[n].tensor for kind, n, _ in self.targets]
        if not roots:
            return [None] * len(wanted)
        with for_backward(), without_hooks(wanted):
            return torch.autograd.grad(
                [e for e, _ in roots], wanted, [t for _, t in roots], allow_unused=True, retain_graph=self.measuring)  # pyright: ignore

    # Before the first step.

    def sampled(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """On the sample batch: what is held, and how gradients look."""
        inputs, buffers = self.divided(tensors)
        self.samples = [t.detach().to("cpu", copy=True) for t in (*inputs, *buffers)]
        held = Held(None, {}, [s.tensor for s in self.parameters], self.device)
        with self.untouched():
            ran = self.run(inputs, buffers, held)
            self.surprises = self.differs(ran)
            if self.surprises:
                return self.made(ran)
            addresses = {t.untyped_storage().data_ptr(): i for i, t in enumerate(inputs) if i not in self.written}
            self.kept = sorted(i for a, i in addresses.items() if a in held.bytes_of)
            self.held_bytes = with_margin(held.bytes - sum(held.bytes_of[a] for a in addresses if a in held.bytes_of))
            if self.holds:
                self.uses = self.count_uses(ran)
                self.look_at_gradients(ran, held)
        return self.made(ran)

    def forget_sample(self) -> None:
        """The next call is on the sample."""
        self.kept, self.held_bytes, self.targets, self.uses, self.samples = [], 0, [], {}, []

    def made(self, ran: Ran) -> list[torch.Tensor]:
        """For those that follow on the sample."""
        made = [r.detach().clone() for r in ran.results]
        return [torch.empty(0, dtype=torch.uint8, device=self.device), *made] if self.holds else made

    def differs(self, ran: Ran) -> bool:
        """Does it do something else with the sample than with the contents that the trace knew?

        Raises:
            Surprised: so that what follows cannot run on the sample.
        """
        known = self.does_as_known(ran) and ran.written == (self.written, self.written_buffers)
        if [Layout.of(t) for t in ran.results] != self.results or not known:
            raise Surprised({})
        return [e is not None for e in ran.edges] != self.differentiable

    def look_at_gradients(self, ran: Ran, held: Held) -> None:
        flows = [i for i, e in enumerate(ran.edges) if e is not None]
        ones = [torch.ones_like(ran.results[i]).detach() for i in flows]
        targets = [("input", n) for n in ran.leaves] + [("parameter", n) for n in self.trained]
        wanted = [ran.leaves[n] if kind == "input" else self.parameters[n].tensor for kind, n in targets]
        with for_backward(), without_hooks(wanted):
            found = torch.autograd.grad([ran.edges[i] for i in flows], wanted, ones, allow_unused=True)  # pyright: ignore
        for (kind, n), gradient, target in zip(targets, found, wanted):
            if gradient is None and kind == "input":
                continue  # as in plain PyTorch, nothing that it is made of gets a gradient
            looks = gradient if gradient is not None and is_dense(gradient) else torch.empty_like(target)
            self.targets.append((kind, n, Layout.of(looks)))

    @contextlib.contextmanager
    def untouched(self) -> Iterator[None]:
        """Calls whose effects must not last."""
        state = None if self.owner is None else ModuleState(self.owner)
        try:
            with same_foreign_numbers():
                yield
        finally:
            if state is not None:
                state.put_back()


class HostCopy:
    """Bytes of a flat tensor, in no memory of torch's on its device: that is what is measured."""

    def __init__(self, tensor: torch.Tensor) -> None:
        """As it is now."""
        self.contents = ctypes.string_at(tensor.data_ptr(), tensor.nbytes) if tensor.device.type == "cpu" else tensor.cpu()

    def write_to(self, tensor: torch.Tensor) -> None:
        """Back."""
        if isinstance(self.contents, bytes):
            ctypes.memmove(tensor.data_ptr(), self.contents, tensor.nbytes)
        else:
            tensor.copy_(self.contents)


@contextlib.contextmanager
def without_hooks(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """The user's own hooks run when gradients arrive at the parameters."""
    before = [(t, t._backward_hooks) for t in tensors]
    for tensor, _ in before:
        tensor._backward_hooks = None
    try:
        yield
    finally:
        for tensor, hooks in before:
            tensor._backward_hooks = hooks


@contextlib.contextmanager
def measuring(calls: Sequence[IslandCall]) -> Iterator[None]:
    """Calls run on their samples and leave nothing behind."""
    for call in calls:
        call.measuring = True
    try:
        yield
    finally:
        for call in calls:
            call.measuring, call.graph, call.samples, call.held_sample = False, None, [], None


@contextlib.contextmanager
def repeatable(calls: Sequence[IslandCall]) -> Iterator[Callable[[], None]]:
    """Of a step that may have to run again from its beginning: what has to be called before it does. The executor puts back what tensors held."""
    states = foreign_states() if any(call.draws_elsewhere for call in calls) else None
    host = torch.get_rng_state() if any(call.draws_on_host for call in calls) else None

    def again() -> None:
        for call in calls:
            call.grow()
        if states is not None:
            set_foreign_states(states)
        if host is not None:
            torch.set_rng_state(host)

    yield again


def with_margin(size: int) -> int:
    return max(1, math.ceil(size * MARGIN / UNIT)) * UNIT


def distinct(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return list({id(t): t for t in tensors}.values())


def is_one_of(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    return any(tensor is other for other in others)


def shapes(layouts: Sequence[Layout]) -> str:
    return ", ".join(str(list(layout.sizes)) for layout in layouts) or "nothing"
