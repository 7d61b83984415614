"""A call of an island while a model is traced: one node of the forward pass, one of the backward pass, and one of autograd's graph."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import get_gradient_edge
from torch.utils._python_dispatch import _disable_current_modes

from regen._capture.arguments import flatten_arguments
from regen._capture.traced.tensor import TracedTensor
from regen._islands.call import IslandCall, Ran, is_one_of
from regen._islands.first_run import first_run
from regen._islands.operators import BACKWARD, FORWARD
from regen._islands.places import NeedsIsland, Place, Surprised, running_functions
from regen._islands.sample import run_on_sample, values_on_sample
from regen._islands.slots import slots_of
from regen._islands.surroundings import without_kept_casts
from regen.errors import CaptureError

if TYPE_CHECKING:
    from regen._capture.traced.tracer import Tracer


class TracedCall:
    """One call in the trace."""

    def __init__(self, call: IslandCall, tracer: "Tracer", inputs: list[torch.Tensor], functions: list[Place], key: Any) -> None:
        self.call, self.tracer, self.inputs, self.functions, self.key = call, tracer, inputs, functions, key
        self.values: list[int] = []  # of inputs, buffers and parameters, before the call
        self.held: TracedTensor | None = None
        self.node: dict[str, Any] = {}
        self.nodes: list[Any] = []  # of autograd's graph
        self.edges: dict[tuple[str, int], tuple[Any, int]] = {}  # target -> where its gradient goes in autograd's graph

    @property
    def source(self) -> str:
        return self.call.source

    def parameters(self) -> list[torch.Tensor]:
        return [slot.tensor for slot in self.call.parameters]

    def note_edges(self) -> None:
        """Before autograd knows of the call."""
        for number, tensor in enumerate(self.inputs):
            if tensor.requires_grad:
                self.edges["input", number] = edge_of(tensor)
        for number in self.call.trained:
            self.edges["parameter", number] = edge_of(self.call.parameters[number].tensor)

    def note_nodes(self, results: Sequence[torch.Tensor]) -> None:
        """What autograd knows the call by. Of a view that was written to, it is a node of the whole tensor."""
        for result in results:
            base = result if result._base is None else result._base
            if base.grad_fn is not None:
                self.nodes.append(base.grad_fn)

    # The forward pass.

    def add_forward(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """(new results, inputs that are written to)."""
        call, tracer = self.call, self.tracer
        buffers = [slot.tensor for slot in call.buffers]
        self.values = [int(tracer.value_of(t)) for t in (*self.inputs, *buffers, *self.parameters())]
        fakes = [tracer.fakes.empty([1], [1], torch.uint8, call.device)] if call.holds else []
        fakes += [tracer.fakes.empty(*layout, call.device) for layout in call.results]
        name = tracer.own_name(call.name)
        made, values = tracer.new_results(name, fakes)
        self.node = tracer.builder.make_node(name, FORWARD, "forward", [call.key, call.holds, references(self.values)], {}, values, call.source, call.module)
        self.node["random"] = call.draws
        self.node["recomputable"] = not (call.draws_elsewhere or call.draws_on_host or call.changes_modules)
        tracer.add_node(self.node)
        if call.draws:
            tracer.draws.note_island(call.key)
        if call.holds:
            self.held, *made = made
        written = [self.inputs[i] for i in sorted(call.written)]
        targets = [*written, *(buffers[i] for i in sorted(call.written_buffers))]
        fresh = len(made) - len(targets)
        for target, result in zip(targets, made[fresh:]):
            tracer.writes.store(target, result)
        return list(made[:fresh]), written

    # The backward pass.

    def add_backward(self, tangents: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """For each input, then each parameter, the gradient."""
        call, tracer = self.call, self.tracer
        order = len(call.results) - len(call.written) - len(call.written_buffers)
        call.given = [i for i, t in enumerate(tangents) if t is not None and i < order + len(call.written)]
        count, first = len(self.inputs), len(self.inputs) + len(call.buffers)
        gradients: list[torch.Tensor | None] = [None] * (count + len(call.parameters))
        if not call.given or not call.targets:
            return gradients
        assert self.held is not None, "results are differentiable"
        values = [self.values[i] for i in call.kept] + self.values[first:]
        values += [int(tracer.value_of(t)) for t in (self.held, *(tangents[i] for i in call.given)) if t is not None]
        fakes = [tracer.fakes.empty(*layout, call.device) for _, _, layout in call.targets]
        name = tracer.own_name(f"{call.name}_backward")
        made, results = tracer.new_results(name, fakes)
        node = tracer.builder.make_node(name, BACKWARD, "forward", [call.key, references(values)], {}, results, call.source, call.module)
        tracer.add_node(node)
        for (kind, number, _), gradient in zip(call.targets, made):
            gradients[number if kind == "input" else count + number] = gradient
        return gradients


class IslandFunction(torch.autograd.Function):
    """The call in autograd's graph of the trace."""

    @staticmethod
    def forward(ctx: Any, traced: TracedCall, *tensors: torch.Tensor) -> Any:
        ctx.traced = traced
        ctx.set_materialize_grads(False)
        with _disable_current_modes():
            fresh, written = traced.add_forward()
        flows = traced.call.differentiable
        ctx.mark_dirty(*written)
        ctx.mark_non_differentiable(*(t for t, f in zip(fresh, flows) if not f))
        return *fresh, *written

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        with _disable_current_modes():
            return None, *ctx.traced.add_backward(tangents)


class Islands:
    """Those of one trace."""

    def __init__(self, tracer: "Tracer", model: torch.nn.Module, samples: Mapping[Any, list[torch.Tensor]]) -> None:
        """`samples`: (function, number of its call) -> inputs and buffers, of those that were run on the sample before."""
        self.tracer, self.model = tracer, model
        self.calls: list[TracedCall] = []
        self.users: dict[tuple[Any, int], set[int]] = {}
        self.inside = False
        self.around = torch._C._current_autograd_node()  # a model may be traced again in a backward pass
        self.samples = samples
        self.numbers: dict[Any, int] = {}  # function -> calls so far

    def wrap(self, place: Place, function: Callable[..., Any], owner: torch.nn.Module | None) -> Callable[..., Any]:
        """What is called in the place of a function."""
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.inside:
                return function(*args, **kwargs)
            self.inside = True
            try:
                return self.call(place, function, owner, args, kwargs)
            except CaptureError as error:
                functions = [f for f in running_functions(self.model) if f.key() != place.key()]
                raise NeedsIsland(str(error), functions) from error
            finally:
                self.inside = False

        return call

    def call(self, place: Place, function: Callable[..., Any], owner: torch.nn.Module | None, args: Any, kwargs: Any) -> Any:
        traced = self.prepared(place, function, owner, args, kwargs)
        call = traced.call
        with _disable_current_modes():
            stand_ins, buffers = self.stand_ins(traced)
            with without_kept_casts():
                ran = self.first_run(traced, stand_ins, buffers)
        self.check_written(traced)
        self.calls.append(traced)
        if call.holds:
            traced.note_edges()
            fresh = IslandFunction.apply(traced, *traced.inputs, *traced.parameters())
            traced.note_nodes(fresh)  # pyright: ignore
        else:
            with _disable_current_modes():
                fresh, _ = traced.add_forward()
        value, assigned = returned(ran, list(fresh), traced.inputs)  # pyright: ignore
        for slot, tensor in zip(call.assigned, assigned):
            slot.holder[slot.key] = tensor
        return value

    def first_run(self, traced: TracedCall, inputs: list[torch.Tensor], buffers: list[torch.Tensor]) -> Ran:
        """Contents that are made up may be refused by the function's own code: boxes whose corners are the wrong way round.

        Raises:
            Surprised: with the sample's.
        """
        try:
            return first_run(traced.call, inputs, buffers)
        except CaptureError:
            raise
        except Exception as refusal:
            if traced.key in self.samples:
                raise
            for earlier in self.calls:
                earlier.call.forget_sample()
            values = [int(self.tracer.value_of(t)) for t in (*traced.inputs, *(slot.tensor for slot in traced.call.buffers))]
            try:
                raise Surprised({traced.key: values_on_sample(self.tracer, values)}, traced.functions) from refusal
            finally:
                for earlier in self.calls:
                    earlier.call.forget_sample()

    def prepared(self, place: Place, function: Callable[..., Any], owner: torch.nn.Module | None, args: Any, kwargs: Any) -> TracedCall:
        if torch._C._current_autograd_node() is not self.around:
            raise CaptureError(f"island {place.label} is called in the backward pass; expected no checkpointing around it")
        flat, spec = flatten_arguments(args, kwargs)
        if any(tensors for _, _, tensors in spec.objects):
            raise CaptureError(f"island {place.label} is given an object that holds tensors; expected tensors and containers of these")
        inputs: list[torch.Tensor] = []
        numbers: list[int | None] = []
        for leaf in flat:
            if isinstance(leaf, torch.Tensor) and not is_one_of(leaf, inputs):
                inputs.append(leaf)
            numbers.append(next((i for i, t in enumerate(inputs) if t is leaf), None))
        if not inputs:
            raise CaptureError(f"island {place.label} takes no tensor; expected one at least")
        functions = [f for f in running_functions(self.model) if f.key() != place.key()]
        parameters, buffers = slots_of(owner)
        taken = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in flat]
        call = IslandCall(
            place.label, function, owner, taken, spec, numbers, parameters, buffers, [t.requires_grad for t in inputs], self.tracer.builder.device,
            self.tracer.reasons.get(place.key(), ""), self.tracer.sources.here())
        self.check_devices(call, inputs)
        call.narrow = place.kind == "method" and place.name != "forward"
        number = self.numbers[place.key()] = self.numbers.get(place.key(), 0) + 1
        return TracedCall(call, self.tracer, inputs, functions, (place.key(), number))

    def check_devices(self, call: IslandCall, inputs: list[torch.Tensor]) -> None:
        for tensor in (*inputs, *(s.tensor for s in call.buffers), *(s.tensor for s in call.parameters)):
            if tensor.device != call.device:
                raise CaptureError(f"island {call.name} takes a tensor on {tensor.device}; expected all on {call.device}")

    def check_written(self, traced: TracedCall) -> None:
        """What is written to must be given once, and not through a real tensor."""
        regions = [self.tracer.place(t)[1] for t in traced.inputs]
        for number in traced.call.written:
            if not isinstance(traced.inputs[number], TracedTensor) or sum(r is regions[number] for r in regions) > 1:
                raise CaptureError(
                    f"island {traced.call.name} writes to an argument that shares memory with another; "
                    "expected arguments of their own (.clone())")

    def stand_ins(self, traced: TracedCall) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Contents for inputs and buffers that are the sample's where they follow from its integers and masks, and made up elsewhere."""
        device, count = self.tracer.builder.device, len(traced.inputs)
        generator = torch.Generator(device).manual_seed(0)
        live = [slot.tensor for slot in traced.call.buffers]
        sample = self.samples.get(traced.key)
        if sample is None:
            inputs = [self.made_up(tensor, generator) for tensor in traced.inputs]
            return inputs, [self.made_up(t, generator) if isinstance(t, TracedTensor) else t.detach().clone() for t in live]
        given = [t.to(device, copy=True) for t in sample]
        return given[:count], [given[count + i] if isinstance(t, TracedTensor) else t.detach().clone() for i, t in enumerate(live)]

    def made_up(self, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        known = self.tracer.decisions.known(tensor)
        if known is not None:
            return known.clone()
        fake = self.tracer.place(tensor)[0]
        made = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=self.tracer.builder.device)
        return made.uniform_(-0.5, 0.5, generator=generator) if made.is_floating_point() else made.zero_()

    # After the forward pass.

    def run_on_sample(self) -> None:
        """What the calls hold, and how their gradients look."""
        for traced in self.calls:
            if self.tracer.fakes.symbols is not None:
                raise CaptureError(f"island {traced.call.name}; expected models without islands where sizes vary")
        if not self.calls:
            return
        self.inside = True
        try:
            run_on_sample(self.tracer, [traced.node for traced in self.calls])
            if any(traced.call.surprises for traced in self.calls):
                raise Surprised({})
        except Surprised:
            samples = {traced.key: traced.call.samples for traced in self.calls if traced.call.samples}
            raise Surprised(samples, [traced for traced in self.calls if traced.call.samples][-1].functions) from None
        except CaptureError as error:
            refused = next((traced for traced in self.calls if not traced.call.held_bytes), None)
            raise NeedsIsland(str(error), [] if refused is None else refused.functions) from error
        finally:
            self.inside = False
        for traced in self.calls:
            if traced.held is not None:
                self.tracer.set_bytes(traced.held, traced.call.held_bytes)

    def check_shared(self, roots: Sequence[torch.Tensor]) -> None:
        """Gradients that several parts of the model give to one tensor are added up in autograd's order. An island gives one, in which it has added
        up its own: where others give some too, it must not have several.

        Raises:
            NeedsIsland: it has.
        """
        owners = {node: id(traced) for traced in self.calls for node in traced.nodes}
        self.users = users_of_gradients(roots, owners)
        for traced in self.calls:
            for target in traced.edges:
                if not self.others(traced, target):
                    continue
                if traced.call.uses.get(target, 0) > 1 or (traced.call.surroundings.autocast and target[0] == "parameter"):
                    raise NeedsIsland(
                        f"island {traced.call.name} uses {target[0]} {target[1]} several times, and other parts of the model use it too; gradients would be "
                        "added up in another order", traced.functions)
                traced.call.shared.add(target)

    def others(self, traced: TracedCall, target: tuple[str, int]) -> set[int]:
        """What else gives a gradient to the target of a call: identities of calls; 0: the program."""
        return self.users.get(traced.edges[target], set()) - {id(traced)}

    def found(self) -> list[IslandCall]:
        """All calls, in their order."""
        return [traced.call for traced in self.calls]

    def optional(self, names: Mapping[int, str]) -> dict[str, list[tuple[IslandCall, int]]]:
        """Parameter -> the calls that may or may not give it a gradient, and its number there; only those to which nothing else gives one.

        Args:
            names: identity of a parameter -> name.
        """
        found: dict[str, list[tuple[IslandCall, int]]] = {}
        certain = set()
        for traced in self.calls:
            for number in traced.call.trained:
                slot = traced.call.parameters[number]
                name = names.get(id(slot.tensor), slot.name)
                found.setdefault(name, []).append((traced.call, number))
                if 0 in self.others(traced, ("parameter", number)):
                    certain.add(name)
        return {name: calls for name, calls in found.items() if name not in certain}


def edge_of(tensor: torch.Tensor) -> tuple[Any, int]:
    """Where the gradient of a tensor goes in autograd's graph. A leaf has to be asked by a view of it, in the trace if it is the trace's."""
    if tensor.grad_fn is not None:
        return tensor.grad_fn, tensor.output_nr
    with contextlib.nullcontext() if isinstance(tensor, TracedTensor) else _disable_current_modes():
        edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def users_of_gradients(roots: Sequence[torch.Tensor], owners: Mapping[Any, int]) -> dict[tuple[Any, int], set[int]]:
    """Place in autograd's graph of the trace -> what gives gradients to it: identities of calls of islands; 0: anything else.

    Args:
        roots: outputs.
        owners: node of the graph -> identity of the call that it is.
    """
    users: dict[tuple[Any, int], set[int]] = {}
    seen, pending = set(), [root.grad_fn for root in roots if root.grad_fn is not None]
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        for following, number in node.next_functions:
            if following is not None:
                users.setdefault((following, number), set()).add(owners.get(node, 0))
                pending.append(following)
    return users


def returned(ran: Ran, fresh: list[torch.Tensor], inputs: list[torch.Tensor]) -> tuple[Any, list[torch.Tensor]]:
    """(what the function would have returned, what it would have assigned to attributes)."""
    outs = iter(fresh)
    made: dict[int, torch.Tensor] = {}

    def of(tensor: torch.Tensor) -> torch.Tensor:
        place = next((i for i, t in enumerate(ran.passed) if t is tensor), None)
        if place is None and id(tensor) not in made:
            made[id(tensor)] = next(outs)
        return made[id(tensor)] if place is None else inputs[place]

    return ran.returned.with_tensors(of)


def references(values: Sequence[int]) -> list[dict[str, int]]:
    return [{"value": int(v)} for v in values]
