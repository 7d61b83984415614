"""Captures a training step of a PyTorch model as a program."""

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from regen._capture.arguments import ArgumentSpec
from regen._capture.conversion import Value
from regen._capture.gradient_buffers import GradientBuffers
from regen._capture.gradient_terms import terms_of_gradients
from regen._capture.optimizers import NoRecipe, OptimizerUpdates, check_optimizer
from regen._capture.phases import arrange
from regen._capture.quiet import without_collection
from regen._capture.step_program import StepWriter, TrainingLoss
from regen._capture.traced.decisions import Conditions
from regen._capture.traced.module_state import Replaced
from regen._capture.traced.output_recipes import OutputRecipe, add_output_results, assignments_of
from regen._capture.traced.outputs import Tangents
from regen._capture.traced.passes import Trace, trace
from regen._capture.traced.plain_state import Begun, Counts, looks_as
from regen._capture.traced.symbols import Symbols
from regen._islands.call import IslandCall
from regen._progress.work import watched_capture
from regen.errors import CaptureError
from regen.options import Cache


@dataclasses.dataclass
class Captured:
    """A captured step: a program with what ties it to the user's model.

    Attributes:
        program: the program as JSON can hold it.
        parameters: by name, those that get a gradient.
    """

    program: dict[str, Any]
    tensors: dict[int, torch.Tensor]  # storage -> live tensor: parameters, buffers, constants, optimizer state; inputs: their samples
    input_values: dict[int, int]  # flat input -> value
    constant_inputs: dict[int, Any]  # flat input -> Python value that the program was captured for
    in_spec: ArgumentSpec  # how (args, kwargs) are nested
    out_spec: TreeSpec  # pytree of what the model returns
    outputs: list[OutputRecipe]  # an OutputRecipe for each flat output
    output_results: list[int]  # indices in program["results"] of what leaves at the boundary
    tangent_values: list[int | None]  # for each of these, the value of its tangent; None when it takes no gradient
    differentiable: list[bool]  # for each of these, whether plain PyTorch would let gradients flow through it
    gradient_results: list[tuple[int, str, Any]]  # (index in program["results"], "parameter" or "input", name or flat input); terms in order
    parameters: dict[str, torch.Tensor]  # name -> live parameter, those that get a gradient
    assignments: list[tuple[str, str, OutputRecipe]] = dataclasses.field(default_factory=list)  # module, attribute, what each step assigns
    replaced: list[Replaced] = dataclasses.field(default_factory=list)  # modules and plain values that each step assigns
    begun: list[Begun] = dataclasses.field(default_factory=list)  # how attributes looked that the step changes
    counts: list[Counts] = dataclasses.field(default_factory=list)  # numbers that each step counts
    conditions: Conditions | None = None  # what the values of a batch must lead to; None: nothing
    updates: OptimizerUpdates | None = None  # of a whole step: the optimizer's recipe
    steps_taken: int = 0  # since the capture
    trained: Sequence[torch.Tensor] = ()  # of a step: the parameters that get a gradient
    clips: bool = False  # of a step: gradients are clipped in it
    terms: dict[tuple[str, Any], int] = dataclasses.field(default_factory=dict)  # ("parameter" or "input", name or flat input) -> uses, if several
    tangents: Tangents = "loss"  # which outputs it was captured with gradients for
    first_only: bool = False  # of a step without the optimizer's update: only while the optimizer has no state
    islands: list[IslandCall] = dataclasses.field(default_factory=list)  # parts of the model that run as Python
    optional: dict[str, list[tuple[IslandCall, int]]] = dataclasses.field(default_factory=dict)  # parameter -> calls that alone give it a gradient
    state_of: dict[int, tuple[torch.Tensor, str]] = dataclasses.field(default_factory=dict)  # storage of role state -> (parameter, key in optimizer.state)

    def result_values(self, indices: Sequence[int]) -> list[int]:
        """The values that leave as these results."""
        return [self.program["results"][index]["value"] for index in indices]

    def is_missing(self, name: str) -> bool:
        """Of a parameter: no gradient reached it in the last backward pass, because the values of the batch led to nothing that uses it."""
        calls = self.optional.get(name)
        return calls is not None and all(number in call.missing for call, number in calls)

    def scalars(self, optimizer: torch.optim.Optimizer, step: int | None = None) -> list[float]:
        """The values of program["scalars"] for the next step, or for step number `step` (from 1) since the capture."""
        assert self.updates is not None, "a captured step has an optimizer"
        ahead = 0 if step is None else step - 1 - self.steps_taken
        return self.updates.scalars(optimizer, len(self.program["scalars"]), ahead)

    def advance(self, optimizer: torch.optim.Optimizer) -> None:
        """Call after every step: the optimizer's count of steps and its schedulers follow."""
        assert self.updates is not None, "a captured step has an optimizer"
        self.updates.advance(optimizer)
        self.steps_taken += 1

    def rebuild_outputs(self, results: Mapping[int, torch.Tensor], flat_inputs: Sequence[Any]) -> Any:
        """What the model would have returned. `results`: index in program["results"] -> tensor that left at the boundary."""
        leaves = [self.rebuild_output(recipe, results, flat_inputs) for recipe in self.outputs]
        return tree_unflatten(leaves, self.out_spec)

    def with_derived(self, flat_inputs: Sequence[Any], tensor_of: Callable[[int], torch.Tensor] | None = None) -> list[Any] | None:
        """The inputs of the program for a batch; None: the batch needs another capture. `tensor_of`: the live tensor of a storage."""
        if self.conditions is None:
            return list(flat_inputs)
        derived = self.conditions.derived(flat_inputs, tensor_of or self.tensors.__getitem__)
        return None if derived is None else [*flat_inputs, *derived]

    def live_outputs(self) -> list[int]:
        """Storages of live tensors that are returned, or of which views are."""
        recipes = [*self.outputs, *(recipe for _, _, recipe in self.assignments)]
        return [part.source for recipe in recipes for part in (recipe, *recipe.parts) if part.kind == "tensor"]

    def assign(self, model: torch.nn.Module, results: Mapping[int, torch.Tensor], flat_inputs: Sequence[Any]) -> None:
        """What the forward pass would have assigned to attributes of modules."""
        for path, name, recipe in self.assignments:
            setattr(model.get_submodule(path), name, self.rebuild_output(recipe, results, flat_inputs))
        for path, name, value in self.replaced:
            setattr(model.get_submodule(path), name, value)
        for counts in self.counts:
            module = model.get_submodule(counts.path)
            setattr(module, counts.name, counts.after(getattr(module, counts.name)))

    def changes_model(self) -> bool:
        """Whether the forward pass assigns something to attributes of modules."""
        return bool(self.assignments or self.replaced or self.counts)

    def is_for(self, model: torch.nn.Module | None) -> bool:
        """Whether what the forward pass notes in attributes of modules is as it was when it was captured."""
        return model is None or not self.begun or looks_as(model, self.begun)

    def rebuild_output(self, recipe: OutputRecipe, results: Mapping[int, torch.Tensor], flat_inputs: Sequence[Any]) -> Any:
        """One leaf of what the model would have returned."""
        if recipe.kind == "constant":
            return recipe.constant
        if recipe.kind == "object":
            parts = [self.rebuild_output(part, results, flat_inputs) for part in recipe.parts]
            return copy.deepcopy(recipe.constant, {id(old): new for old, new in zip(recipe.stand_ins, parts)})
        holder: Any = {"input": flat_inputs, "tensor": self.tensors}.get(recipe.kind, results)
        base = holder[recipe.source]
        if recipe.view is None:
            return base
        sizes, strides, offset = recipe.view
        view = view_of(base, sizes, strides, offset)
        return view if recipe.requires_grad else view.detach()


def view_of(base: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
    """Where it is turned or reshaped alone, its gradient keeps the layout that it arrives with, as behind the user's own view."""
    if offset == 0 and math.prod(sizes) == base.numel():
        order = permutation(base, sizes, strides)
        if order is not None:
            return base.permute(order)
        if base.is_contiguous() and list(strides) == contiguous_strides(sizes):
            return base.view(list(sizes))
    return base.as_strided(sizes, strides, base.storage_offset() + offset)


def permutation(base: torch.Tensor, sizes: Sequence[int], strides: Sequence[int]) -> list[int] | None:
    """Which dimension of the tensor each dimension of its view is; None: it is more than turned."""
    left = list(enumerate(zip(base.shape, base.stride())))
    order = []
    for wanted in zip(sizes, strides):
        found = next((item for item in left if item[1] == wanted), None)
        if found is None:
            return None
        left.remove(found)
        order.append(found[0])
    return None if left else order


def contiguous_strides(sizes: Sequence[int]) -> list[int]:
    return [math.prod(sizes[d + 1:]) for d in range(len(sizes))]


@watched_capture
@without_collection()
def capture(
    model: torch.nn.Module, args: Any, kwargs: Mapping[str, Any] | None = None, name: str | None = None, cache: Cache = False,
    tangents: Tangents = "loss", symbols: Symbols | None = None, separate_terms: bool = False,
) -> Captured:
    """Captures the forward and backward pass of `model(*args, **kwargs)`, as `regen.wrap` does.

    Args:
        model: the module.
        args: a sample input.
        kwargs: further sample inputs by name.
        name: of the program; None: that of the model's class.
        cache: not used: tracing takes less time than reading what was kept would.
        tangents: which outputs get a gradient: "loss" (that alone, where the model returns something named so), "all", or which.
        symbols: of sizes that vary; then numbers of the program may be symbolic.
        separate_terms: gradients of parameters that are used several times leave as one result for each use, in place of their sum. Those of
            inputs always do: an input may have uses outside of the model.

    Returns:
        The captured passes.

    Raises:
        CaptureError: the model or its inputs cannot be captured.
    """
    args, kwargs = as_arguments(args), dict(kwargs or {})
    check_model(model, args, kwargs)
    names = names_of_tensors(model)
    traced = trace(model, args, kwargs, name or type(model).__name__, device_of(model), names, tangents=tangents, symbols=symbols)
    recipes, output_results = add_output_results(traced)
    terms = terms_of_gradients(traced.conversion)
    traced.conversion.gradients = [
        gradient for whole, found in zip(traced.conversion.gradients, terms)
        for gradient in (found if separate_terms or whole.kind == "input" else [whole])]
    gradients = add_gradient_results(traced, names)
    arrange(traced.conversion)
    captured = finished(model, traced, recipes, output_results, gradients)[0]
    captured.tangents = tangents
    captured.terms = {(found[0].kind, owner_of(traced, names, found[0])): len(found) for found in terms if len(found) > 1}
    return captured


def capture_step(
    model: torch.nn.Module,
    loss_fn: Callable[[Any, Any], torch.Tensor] | None,
    optimizer: torch.optim.Optimizer,
    args: Any,
    clip_grad_norm: float | None = None,
    clip_grad_value: float | None = None,
    early: bool = True,
    name: str | None = None,
    cache: Cache = False,
    kwargs: Mapping[str, Any] | None = None,
    symbols: Symbols | None = None,
) -> Captured:
    """Captures a whole training step, as `regen.step` does: loss, gradients, clipping and update in one program.

    The loss is `loss_fn(model(*args[:-1]), args[-1])`, or what the model returns when `loss_fn` is None: a number, or something with a
    `loss`. Clipping is that of `torch.nn.utils` over all parameters of the model. State that the optimizer would make at its first step is made now.

    Args:
        model: the module.
        loss_fn: a function of the model's output and the last argument; None: the model returns the loss.
        optimizer: over parameters of the model; one of `torch.optim` or of the caller's, whose step is a fixed list of operators on each parameter.
        args: a sample batch.
        clip_grad_norm: clip the norm of all gradients.
        clip_grad_value: clip every gradient.
        early: update each parameter as soon as its old value is not read any more; False: all at the end.
        name: of the program; None: that of the model's class.
        cache: not used: tracing takes less time than reading what was kept would.
        kwargs: further inputs of the model by name.
        symbols: of sizes that vary; then numbers of the program may be symbolic.

    Returns:
        The captured step.

    Raises:
        CaptureError: the model, its inputs or its optimizer cannot be captured.
    """
    try:
        return capture_training(
            model, loss_fn, optimizer, args, kwargs, Update(clip_grad_norm=clip_grad_norm, clip_grad_value=clip_grad_value, early=early), name,
            symbols)
    except NoRecipe as error:
        raise CaptureError(
            f"cannot capture optimizer {type(optimizer).__name__}: {error}; expected one whose step is a fixed list of operators on each parameter, "
            "or regen.step, which runs it beside the plan") from error


# Why an update is no part of a program: plain PyTorch leaves parameters without a gradient alone.
SOME_GRADIENTS = "an island decides for each batch which parameters get a gradient"


class Update(NamedTuple):
    """What a captured step does with the gradients.

    Attributes:
        clip_grad_norm: as `torch.nn.utils.clip_grad_norm_`.
        clip_grad_value: as `torch.nn.utils.clip_grad_value_`.
        early: each parameter is updated as soon as its old value is not read any more.
        updates: the optimizer's update is part of the program.
        clips: so is the clipping.
        buffers: where gradients are kept or added up; None: they exist only inside the step.
        scaled: the backward pass begins with a loss scale, the first of the program's scalars.
    """

    clip_grad_norm: float | None = None
    clip_grad_value: float | None = None
    early: bool = True
    updates: bool = True
    clips: bool = True
    buffers: GradientBuffers | None = None
    scaled: bool = False


@watched_capture
@without_collection()
def capture_training(
    model: torch.nn.Module, loss_fn: Callable[[Any, Any], torch.Tensor] | None, optimizer: torch.optim.Optimizer, args: Any,
    kwargs: Mapping[str, Any] | None, update: Update, name: str | None = None, symbols: Symbols | None = None,
) -> Captured:
    """Captures a training step or a part of one: loss, gradients, and what `update` says.

    Raises:
        NoRecipe: the optimizer's update cannot be part of a program.
        CaptureError: the model, its inputs or its optimizer cannot be captured.
    """
    args, kwargs = as_arguments(args), dict(kwargs or {})
    check_model(model, args, kwargs)
    check_optimizer(optimizer)
    whole = TrainingLoss(model, loss_fn)
    names = {**names_of_tensors(whole), **names_of_tensors(model)}
    traced = trace(whole, args, kwargs, name or type(model).__name__, device_of(model), names, symbols=symbols)
    conversion = traced.conversion
    builder = conversion.builder
    if update.updates and traced.islands.optional(names_by_identity(whole)):
        raise NoRecipe(SOME_GRADIENTS)
    loss = the_loss(traced)  # the first of the results
    recipes, results = add_output_results(traced)
    builder.results[results[0]]["name"] = "loss"
    used = used_gradients(model, optimizer, update.clip_grad_norm is not None)
    conversion.gradients = [g for g in conversion.gradients if g.kind != "input" and id(traced.owned[g.key]) in used]
    arrange(conversion)
    writer = StepWriter(conversion, names, traced.owned)
    writer.start_backward(loss, builder.add_scalar("loss_scale", 1.0) if update.scaled else None)
    writer.match_layouts()
    order = [p for p in model.parameters() if id(p) in writer.value_of_gradient]
    if update.buffers is not None:
        writer.keep_gradients(order, update.buffers)
    if update.clips and update.clip_grad_norm is not None:
        writer.clip_norm(order, update.clip_grad_norm)
    if update.clips and update.clip_grad_value is not None:
        writer.clip_value(order, update.clip_grad_value)
    updates = None
    if update.updates:
        updates = writer.update(optimizer, update.early and update.clip_grad_norm is None and update.clip_grad_value is None)
    builder.boundary = None
    captured, storage_map = finished(model, traced, recipes, results, [], whole_step=True)
    captured.trained = order
    if updates is not None:
        captured.updates = updates
        captured.state_of = {storage_map[s]: place for s, place in updates.state_of.items()}
    return captured


@watched_capture
@without_collection()
def capture_inference(
    model: torch.nn.Module, args: Any, kwargs: Mapping[str, Any] | None = None, name: str | None = None
) -> Captured:
    """Captures `model(*args, **kwargs)` without gradients, as `regen.share.infer` does. The model stays in its mode.

    Args:
        model: the module.
        args: a sample input.
        kwargs: further sample inputs by name.
        name: of the program; None: that of the model's class.

    Returns:
        The captured forward pass.

    Raises:
        CaptureError: the model or its inputs cannot be captured.
    """
    args, kwargs = as_arguments(args), dict(kwargs or {})
    check_inference(model, args, kwargs)
    names = names_of_tensors(model)
    traced = trace(model, args, kwargs, name or type(model).__name__, device_of(model), names, gradients=False)
    recipes, output_results = add_output_results(traced)
    if not output_results:
        raise CaptureError(
            f"cannot capture {type(model).__name__}: it returns nothing that it has computed; expected an output that is a tensor")
    arrange(traced.conversion)
    traced.conversion.builder.boundary = None
    captured, _ = finished(model, traced, recipes, output_results, [])
    captured.program["gradients"] = False
    return captured


def the_loss(traced: Trace) -> Value:
    name = traced.conversion.builder.name
    group = traced.group_of.get(id(traced.leaves[0])) if len(traced.leaves) == 1 else None
    if group is None or math.prod(traced.leaves[0].shape) != 1:
        raise CaptureError(
            f"cannot capture {name}: the loss is not a single number; expected loss_fn, or the model when it is "
            "None, to return a tensor with one element (.mean() or .sum() makes one)")
    if not traced.conversion.tangents:
        raise CaptureError(
            f"cannot capture {name}: the loss does not depend on a parameter that requires a gradient; "
            "expected a loss to train on (is it detached, or computed under torch.no_grad?)")
    return traced.tracer.value_of(group.base)


def used_gradients(model, optimizer, all_of_model):
    """Ids of the parameters whose gradients do something: those of the optimizer, and for a norm all."""
    used = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return used | {id(p) for p in model.parameters()} if all_of_model else used


def as_arguments(args: Any) -> tuple[Any, ...]:
    return tuple(args) if isinstance(args, (tuple, list)) else (args,)


def finished(model, traced, recipes, output_results, gradients, whole_step=False):
    conversion = traced.conversion
    program, storage_map, value_map = conversion.builder.finish()
    if whole_step:
        use_own_modules(program["nodes"])
    assignments = assignments_of(traced, "model" if whole_step else "")
    for whole in [*recipes, *(recipe for _, _, recipe in assignments)]:
        for recipe in (whole, *whole.parts):
            if recipe.kind == "tensor":
                recipe.source = storage_map[recipe.source]
    live = dict(model.named_parameters())
    tangents = [None if g.tangent is None or whole_step else value_map.get(traced.tracer.value_of(g.tangent)) for g in traced.groups]
    captured = Captured(
        program=program,
        tensors={storage_map[s]: tensor for s, tensor in conversion.builder.tensors.items() if s in storage_map},
        input_values={index: value_map[v] for index, v in traced.input_values().items() if v in value_map},
        constant_inputs={i: x for i, x in enumerate(traced.flat_inputs) if not isinstance(x, torch.Tensor)},
        in_spec=traced.in_spec,
        out_spec=traced.out_spec,
        outputs=recipes,
        output_results=output_results,
        tangent_values=tangents,
        differentiable=[g.requires_grad and not whole_step for g in traced.groups],
        gradient_results=gradients,
        parameters={name: live[name] for _, kind, name in gradients if kind == "parameter"},
        assignments=assignments,
        replaced=[r._replace(path=own_path(r.path, whole_step)) for r in traced.replaced],
        begun=[b._replace(path=own_path(b.path, whole_step)) for b in traced.begun],
        counts=[c._replace(path=own_path(c.path, whole_step)) for c in traced.counts],
        conditions=traced.tracer.decisions.conditions(storage_map),
        islands=traced.islands.found(),
        optional=traced.islands.optional(names_by_identity(model)),
    )
    return captured, storage_map


def use_own_modules(nodes: list[dict[str, Any]]) -> None:
    """Of a traced step: paths in the user's model; the loss runs in none of its modules."""
    for node in nodes:
        path = node.pop("module", None)
        if path is not None and path.split(".")[0] == "model":
            node["module"] = own_path(path, True)


def own_path(path: str, whole_step: bool) -> str:
    """Of a module in the user's model: a traced step has the model and the loss inside of its own."""
    return path.removeprefix("model").removeprefix(".") if whole_step else path


# Names and checks.

def names_of_tensors(model: torch.nn.Module) -> dict[int, tuple[str, str]]:
    """Id of a live tensor -> (name in the user's model, role). The first name of a shared tensor counts."""
    names = {id(tensor): (name, "parameter") for name, tensor in model.named_parameters()}
    for name, tensor in model.named_buffers():
        names.setdefault(id(tensor), (name, "buffer"))
    return names


def names_by_identity(model: torch.nn.Module) -> dict[int, str]:
    """Identity of a parameter -> its first name."""
    return {id(p): n for n, p in model.named_parameters()}


def device_of(model: torch.nn.Module) -> torch.device:
    return next(model.parameters()).device


def check_model(model: torch.nn.Module, args: Any, kwargs: Any) -> None:
    name = type(model).__name__
    check_module(model, name)
    if not any(p.requires_grad for p in model.parameters()):
        raise CaptureError(
            f"cannot capture {name}: no parameter requires a gradient; expected at least one to train (requires_grad_()), or "
            "regen.share.infer, which plans a forward pass alone")
    check_devices(model, args, kwargs, name)


def check_inference(model: torch.nn.Module, args: Any, kwargs: Any) -> None:
    name = type(model).__name__
    check_module(model, name)
    if next(model.parameters(), None) is None:
        raise CaptureError(f"cannot capture {name}: it has no parameter; expected a module with parameters, which say where it runs")
    check_devices(model, args, kwargs, name)


def check_module(model: object, name: str) -> None:
    if not isinstance(model, torch.nn.Module):
        raise CaptureError(f"cannot capture {name}: not a torch.nn.Module; expected a module with parameters")
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise CaptureError(f"cannot capture {name}: {path or 'it'} is a torch.jit.ScriptModule; expected modules of Python (without torch.jit.script)")
        if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():  # pyright: ignore[reportAttributeAccessIssue]
            raise CaptureError(
                f"cannot capture {name}: {path or 'it'} is a {type(module).__name__} whose parameters have no shape yet; expected a model that has run once "
                "on a batch")


def check_devices(model: torch.nn.Module, args: Any, kwargs: Any, name: str) -> None:
    first_name, first = next(iter(model.named_parameters()))
    owned = [*model.named_parameters(), *model.named_buffers()]
    for other_name, tensor in owned:
        if tensor.device != first.device:
            raise CaptureError(
                f"cannot capture {name}: {first_name} is on {first.device}, {other_name} on {tensor.device}; "
                f"expected a model on one device, as model.to({str(first.device)!r}) makes it")
    leaves, _ = tree_flatten((args, kwargs))
    for index, leaf in enumerate(leaves):
        # A single number on the host may be mixed with tensors of any device.
        if isinstance(leaf, torch.Tensor) and leaf.device != first.device and not (leaf.dim() == 0 and leaf.device.type == "cpu"):
            raise CaptureError(
                f"cannot capture {name}: input {index} is on {leaf.device}, the model on {first.device}; "
                f"expected inputs on {first.device}")


# Results.

def add_gradient_results(traced, names):
    gradients = []
    builder = traced.conversion.builder
    for gradient in traced.conversion.gradients:
        owner = owner_of(traced, names, gradient)
        name = f"input.{owner}" if gradient.kind == "input" else owner
        gradients.append((builder.add_result(int(gradient.value), "gradient", name), gradient.kind, owner))
    if not gradients:
        raise CaptureError(
            f"cannot capture {builder.name}: no output depends on a parameter that requires a gradient; "
            "expected an output to train on (are they detached, or computed under torch.no_grad?)")
    return gradients


def owner_of(traced, names, gradient):
    """The name of the parameter, or the number of the flat input."""
    return gradient.key if gradient.kind == "input" else names[id(traced.owned[gradient.key])][0]
