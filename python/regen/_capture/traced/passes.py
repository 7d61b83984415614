"""Runs the user's forward pass and autograd's backward pass over traced tensors."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from regen._capture.arguments import ArgumentSpec, flatten_arguments, unflatten_arguments
from regen._capture.conversion import Brought, Conversion
from regen._capture.cudnn_recurrent import recurrent_by_cudnn
from regen._capture.program_builder import ProgramBuilder
from regen._capture.quiet import quiet_tracer
from regen._capture.trace_errors import place_in_traceback
from regen._capture.traced.checkpoints import without_reentrant_checkpoints
from regen._capture.traced.fakes import Fakes
from regen._capture.traced.live import LiveTensors
from regen._capture.traced.module_state import Assigned, ModuleState, Replaced
from regen._capture.traced.outputs import Group, Tangents, UsedOutputs, flatten_outputs, grouped, loss_of, tensors_in
from regen._capture.traced.plain_state import Begun, Counts
from regen._capture.traced.regions import Region, geometry_of
from regen._capture.traced.symbols import Symbols
from regen._capture.traced.tensor import TracedTensor
from regen._capture.traced.tracer import Tracer
from regen._islands.places import DRAWN_ELSEWHERE, DrawsElsewhere, ForeignDraws, NeedsIsland, Place, Surprised, alike, functions_in, in_place
from regen._islands.surroundings import differ, foreign_states, set_foreign_states
from regen._islands.tracing import Islands
from regen.errors import CaptureError, RegenError


@dataclasses.dataclass
class Trace:
    """A traced step with what ties it to the caller."""

    conversion: Conversion
    tracer: Tracer
    owned: dict[str, torch.Tensor]  # name -> live tensor of the model
    flat_inputs: list[Any]
    in_spec: ArgumentSpec
    leaves: list[Any]  # of what the model returned
    out_spec: Any
    assigned: list[Assigned]  # to attributes of modules
    tensors: list[list[torch.Tensor]]  # in each leaf, then those that were assigned
    groups: list[Group]
    group_of: dict[int, Group]
    islands: Islands
    replaced: list[Replaced] = dataclasses.field(default_factory=list)
    begun: list[Begun] = dataclasses.field(default_factory=list)
    counts: list[Counts] = dataclasses.field(default_factory=list)
    numbers: list[tuple[str, str]] = dataclasses.field(default_factory=list)  # attributes that have changed

    def trained(self, returned: Any, tangents: Tangents) -> list[Group]:
        """The groups of outputs that get a gradient."""
        if isinstance(tangents, UsedOutputs):
            if tangents.count == len(self.groups):
                return [g for i, g in enumerate(self.groups) if g.requires_grad and i in tangents.positions]
            tangents = "all"
        loss = loss_of(returned) if tangents == "loss" else None
        count = len(self.tensors) if tangents == "all" else len(self.leaves)
        tensors = [t for found in self.tensors[:count] for t in found] if loss is None else [loss]
        chosen = {id(self.group_of[id(t)]) for t in tensors if id(t) in self.group_of}
        return [g for g in self.groups if g.requires_grad and id(g) in chosen]

    def input_values(self) -> dict[int, int]:
        """Flat input, or what is derived from them -> value."""
        builder = self.conversion.builder
        found = self.conversion.inputs()
        for storage, index in self.tracer.decisions.inputs.items():
            if index >= len(self.flat_inputs):
                found[index] = next(v for v, value in enumerate(builder.values) if value["storage"] == storage)
        return found


# What PyTorch says where a kernel takes the address of a tensor without data.
NO_DATA = "its data is not allocated yet"

# Traces of one model, each with more islands than the one before.
MOST_TRACES = 64


def trace(
    model: torch.nn.Module, args: Any, kwargs: Mapping[str, Any], name: str, device: torch.device, names: Mapping[int, tuple[str, str]],
    gradients: bool = True, tangents: Tangents = "loss", symbols: Symbols | None = None,
) -> Trace:
    """Traces `model(*args, **kwargs)`, and the backward pass where `gradients` are wanted.

    Args:
        model: the module; it is as before afterwards.
        args: the sample batch.
        kwargs: by name.
        name: for messages.
        device: of the model.
        names: id of a live tensor -> (name, role).
        gradients: False: as under `torch.no_grad()`.
        tangents: which outputs get a gradient: "loss" (that alone, where the model says which it is), "all" (what is assigned to attributes
            too), or which.
        symbols: of sizes that vary from batch to batch; None: the trace is for the sizes of the sample.

    Raises:
        CaptureError: the model or its inputs cannot be captured.
    """
    places: dict[Any, tuple[Place, str]] = {}
    watched, samples = False, {}
    for _ in range(MOST_TRACES):
        traced = functools.partial(
            trace_with, model, args, kwargs, name, device, names, gradients, tangents, symbols, list(places.values()), watched, samples)
        try:
            found = traced(())
            return with_counts(traced, found) if found.numbers else found
        except NeedsIsland as error:
            if symbols is not None:
                raise
            if isinstance(error, Surprised) and not samples.keys() >= error.samples.keys():
                samples = {**error.samples, **samples}
                continue
            if isinstance(error, DrawsElsewhere) and not error.functions and not watched:
                watched = True
                continue
            place = next((f for f in error.functions or [] if f.key() not in places), None)
            if place is None:
                raise
            places |= {p.key(): (p, str(error)) for p in alike(model, place)}
            samples = {}
    raise CaptureError(
        f"cannot capture {name}: {MOST_TRACES} traces have each met another part that cannot be captured; expected fewer: wrap the parts "
        "that can be, as in model.trunk = regen.wrap(model.trunk, ...)")


def with_counts(traced: Callable[[Sequence[tuple[str, str]]], Trace], found: Trace) -> Trace:
    """The same trace, where the numbers that it changes are only counted with; else each number is another capture."""
    try:
        return traced(found.numbers)
    except (RegenError, TypeError):  # it reads them
        return found


def trace_with(
    model: torch.nn.Module, args: Any, kwargs: Mapping[str, Any], name: str, device: torch.device, names: Mapping[int, tuple[str, str]],
    gradients: bool, tangents: Tangents, symbols: Symbols | None, places: list[tuple[Place, str]], watched: bool,
    samples: Mapping[Any, list[torch.Tensor]], counted: Sequence[tuple[str, str]],
) -> Trace:
    """`places`: functions that are islands, and why. `watched`: look for the function that draws from another generator than torch's.
    `samples`: of islands' arguments. `counted`: attributes with numbers that are not read.

    Raises:
        NeedsIsland: another part of the model has to be one.
    """
    flat, in_spec = flatten_arguments(args, kwargs)
    builder, fakes = ProgramBuilder(name, device), Fakes(symbols)
    known = dict([*model.named_parameters(), *model.named_buffers(), *attributes_of(model)])
    names = {**{id(t): (n, "buffer") for n, t in attributes_of(model)}, **names}
    live = LiveTensors(builder, fakes, names, known)
    tracer = Tracer(builder, live, fakes, model)
    tracer.samples = list(flat)
    tracer.reasons = {place.key(): reason for place, reason in places}
    islands = Islands(tracer, model, samples)
    with errors_in_one_line(name, tracer), contextlib.ExitStack() as stack:
        state = ModuleState(model)
        stack.callback(state.put_back)
        state.count(counted)
        stack.enter_context(without_foreign_draws())
        stack.enter_context(without_reentrant_checkpoints())
        stack.enter_context(running(tracer, gradients))
        inputs = traced_inputs(tracer, flat)
        traced_args, traced_kwargs = unflatten_arguments(inputs, flat, in_spec)
        stack.enter_context(in_place(model, [place for place, _ in places], islands.wrap))
        draws = ForeignDraws(model, lambda: islands.inside).watching() if watched else contextlib.nullcontext()
        with draws, tracer:
            returned = model(*traced_args, **traced_kwargs)
        assigned, replaced, begun, counts, numbers = state.assigned(), state.replaced(), state.begun(), state.counts(), state.numbers()
        state.put_attributes_back()  # islands run again, and must find what they found
        islands.run_on_sample()
        result = opened(tracer, returned, assigned, flat, in_spec, islands)
        result.replaced, result.begun, result.counts, result.numbers = replaced, begun, counts, numbers
        write_mutations(tracer, inputs, result.conversion)
        if gradients:
            parameters = [p for p in model.parameters() if p.requires_grad]
            run_backward(tracer, result, parameters, inputs, result.trained(returned, tangents), tangents)
    result.conversion.brought = [*live.brought, *brought_inputs(inputs)]
    return result


def opened(tracer: Tracer, returned: Any, assigned: list[Assigned], flat: list[Any], in_spec: ArgumentSpec, islands: Islands) -> Trace:
    leaves, out_spec = flatten_outputs(returned)
    with tracer:
        tensors = [tensors_in(leaf, "") for leaf in leaves] + [[a.tensor] for a in assigned]
        groups, group_of = grouped(tracer, [t for found in tensors for t in found])
        for group in groups:  # their values, before the backward pass
            tracer.value_of(group.base)
            for member in group.members:
                tracer.value_of(member)
    return Trace(Conversion(tracer.builder), tracer, tracer.live.owned, flat, in_spec, leaves, out_spec, assigned, tensors, groups, group_of, islands)


@contextlib.contextmanager
def running(tracer: Tracer, gradients: bool) -> Iterator[None]:
    """Around both passes: autograd stays on this thread; casts that autocast keeps are not mixed with those outside, and hooks on what autograd
    saves that are entered outside (a checkpoint around the model, `save_on_cpu`) see nothing of it.
    """
    torch.clear_autocast_cache()
    recurrent = recurrent_by_cudnn() if tracer.builder.device.type == "cuda" else contextlib.nullcontext()
    try:
        with recurrent, quiet_tracer(), torch.autograd.set_multithreading_enabled(False), torch.set_grad_enabled(gradients), (
                torch.autograd.set_detect_anomaly(False)), saved_tensors_hooks(itself, itself):
            yield
    finally:
        torch.clear_autocast_cache()
        tracer.draws.restore()


def itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@contextlib.contextmanager
def errors_in_one_line(name: str, tracer: Tracer) -> Iterator[None]:
    try:
        yield
    except Surprised:
        raise
    except CaptureError as error:
        if str(error).startswith("cannot capture"):
            raise
        at = tracer.refused_at
        text = f"cannot capture {name}{f' at {at}' if at else ''}: {one_line(error)}"
        if isinstance(error, NeedsIsland):
            raise type(error)(text, error.functions or tracer.refused_in) from error
        raise CaptureError(text) from error
    except RegenError:
        raise
    except Exception as error:
        at = place_in_traceback(error)
        if NO_DATA in str(error):  # an operator reads a tensor without asking PyTorch for it
            text = f"cannot capture {name}{f' at {at}' if at else ''}: an operator reads values that the model computes"
            raise NeedsIsland(text, functions_in(error, tracer.model)) from error
        raise CaptureError(
            f"cannot capture {name}{f' at {at}' if at else ''}: {one_line(error)}; expected a forward pass that runs on the sample, "
            "as in plain PyTorch") from error


@contextlib.contextmanager
def without_foreign_draws() -> Iterator[None]:
    """Random numbers of Python or NumPy would be the same at every step, because the code that draws them runs only while it is traced."""
    before = foreign_states()
    try:
        yield
        drawn = differ(before, foreign_states())
    finally:
        set_foreign_states(before)
    if drawn:
        raise DrawsElsewhere(DRAWN_ELSEWHERE)


def one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def attributes_of(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Tensors that are plain attributes of modules."""
    return [
        (f"{prefix}.{name}" if prefix else name, value) for prefix, module in model.named_modules() for name, value in vars(module).items()
        if isinstance(value, torch.Tensor)]


def traced_inputs(tracer: Tracer, flat: list[Any]) -> list[Any]:
    """The same tensor twice is one traced tensor."""
    made: dict[int, TracedTensor] = {}
    inputs = []
    for index, leaf in enumerate(flat):
        if isinstance(leaf, torch.Tensor):
            if id(leaf) not in made:
                made[id(leaf)] = tracer.new_input(f"input.{index}", "input", index, leaf, leaf.requires_grad)
            leaf = made[id(leaf)]
        inputs.append(leaf)
    return inputs


def brought_inputs(inputs: list[Any]) -> list[Brought]:
    """Each traced tensor once: where the caller gives a tensor twice, the first counts."""
    seen: set[int] = set()
    brought = []
    for index, leaf in enumerate(inputs):
        first = isinstance(leaf, TracedTensor) and id(leaf) not in seen
        seen.add(id(leaf))
        brought.append(Brought("input", index, leaf.region.first[geometry_of(leaf.region.whole)] if first else None))
    return brought


# What the forward pass has changed.

def write_mutations(tracer: Tracer, inputs: list[Any], conversion: Conversion) -> None:
    """New contents of buffers and inputs, which are written back."""
    lifted = [region for regions in tracer.live.regions.values() for region in regions]
    given = {id(t): t for t in inputs if isinstance(t, TracedTensor)}.values()
    for tensor in given:
        if tensor.region.version and tensor.requires_grad:
            raise CaptureError(
                f"input {tensor.region.brought.key} is changed in place and gradients flow through the change; expected inputs that need "
                "gradients to stay as they are (x = x.clone() first)")
        check_alone(tensor.region, [t.region for t in given])
    for region in [*lifted, *(t.region for t in given)]:
        if region.version and region.brought.kind != "constant":
            whole = TracedTensor(region.whole, region, tracer)
            conversion.mutations.append((first_value(tracer, region), tracer.value_of(whole)))


def first_value(tracer: Tracer, region: Region) -> Any:
    return tracer.value_before(TracedTensor(region.whole, region, tracer))


def check_alone(region: Region, others: list[Region]) -> None:
    if not region.version:
        return
    key = region.brought.tensor.untyped_storage()._cdata
    for other in others:
        if other is not region and other.brought.tensor.untyped_storage()._cdata == key:
            raise CaptureError(
                f"input {region.brought.key} is changed in place and shares memory with input {other.brought.key}; "
                "expected inputs with memory of their own (x.clone())")


# The backward pass.

def run_backward(
    tracer: Tracer, result: Trace, parameters: list[torch.nn.Parameter], inputs: list[Any], roots: list[Group], tangents: Tangents,
) -> None:
    """Autograd's own, from the outputs that get gradients to what requires them."""
    known = tangents.layouts if isinstance(tangents, UsedOutputs) and tangents.count == len(result.groups) else ()
    layouts = {id(result.groups[position]): layout for position, layout in known}
    for number, group in enumerate(roots):
        fake, _ = tracer.place(group.base)
        layout = layouts.get(id(group))
        if layout is not None:
            fake = tracer.fakes.empty(fake.shape, layout.strides(fake.shape), fake.dtype, fake.device)
        group.tangent = tracer.new_input(f"tangent.{number}", "tangent", number, fake)
        result.conversion.tangents.append(tracer.value_of(group.tangent))
    given = [(i, t) for i, t in enumerate(inputs) if isinstance(t, TracedTensor) and t.requires_grad]
    given = list({id(t): (i, t) for i, t in reversed(given)}.values())[::-1]
    names = {id(t): n for n, t in result.owned.items()}
    sources = [*parameters, *(t for _, t in given)]
    if not roots or not sources:
        return
    result.islands.check_shared([g.base for g in roots])
    versions = [(r, r.version) for rs in tracer.live.regions.values() for r in rs]
    with tracer, torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        found = torch.autograd.grad([g.base for g in roots], sources, [g.tangent for g in roots], allow_unused=True)
        keys = [("parameter", names.get(id(p))) for p in parameters] + [("input", i) for i, _ in given]
        for (kind, key), gradient in zip(keys, found):
            if gradient is not None:
                result.conversion.gradients.append(Brought(kind, key, tracer.value_of(gradient)))
    for region, version in versions:
        if region.version != version:
            raise CaptureError(f"the backward pass changes {region.brought.key} in place; expected changes in the forward pass only")


