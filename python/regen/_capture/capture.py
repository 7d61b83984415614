"""Captures a training step of a PyTorch model as a program."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from regen._capture.capture_cache import converted
from regen._capture.conversion import Conversion, Value
from regen._capture.dynamo_graph import trace_python, without_collection
from regen._capture.optimizers import OptimizerUpdates, check_optimizer
from regen._capture.phases import arrange
from regen._capture.step_program import StepWriter, TrainingLoss
from regen.errors import CaptureError
from regen.options import Cache

View: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]  # sizes, strides, offset in elements


@dataclasses.dataclass
class OutputRecipe:
    """How one leaf of what the model returns is made again after a step.

    kind "constant": `constant` itself.
    kind "result":   the program's result number `source`.
    kind "input":    the caller's flat input number `source`, or a view of it.
    kind "tensor":   the live tensor of storage `source` (a parameter or buffer that is returned), or a view of it.
    kind "view":     a view of the result number `source`, of which the user sees both; gradients flow through the view.
    """

    kind: str
    source: int = -1
    constant: Any = None
    view: View | None = None  # None when it is the whole tensor
    requires_grad: bool = False


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
    in_spec: TreeSpec  # pytree of (args, kwargs)
    out_spec: TreeSpec  # pytree of what the model returns
    outputs: list[OutputRecipe]  # an OutputRecipe for each flat output
    output_results: list[int]  # indices in program["results"] of what leaves at the boundary
    tangent_values: list[int | None]  # for each of these, the value of its tangent; None when it takes no gradient
    gradient_results: list[tuple[int, str, Any]]  # (index in program["results"], "parameter" or "input", name or flat input)
    parameters: dict[str, torch.Tensor]  # name -> live parameter, those that get a gradient
    updates: OptimizerUpdates | None = None  # of a whole step: the optimizer's recipe
    state_of: dict[int, tuple[torch.Tensor, str]] = dataclasses.field(default_factory=dict)  # storage of role state -> (parameter, key in optimizer.state)

    def result_values(self, indices: Sequence[int]) -> list[int]:
        """The values that leave as these results."""
        return [self.program["results"][index]["value"] for index in indices]

    def scalars(self, optimizer: torch.optim.Optimizer, step: int | None = None) -> list[float]:
        """The values of program["scalars"] for the next step, or for step number `step` (from 1) since the capture."""
        assert self.updates is not None, "a captured step has an optimizer"
        return self.updates.scalars(optimizer, len(self.program["scalars"]), step)

    def advance(self, optimizer: torch.optim.Optimizer) -> None:
        """Call after every step: the optimizer's count of steps and its schedulers follow."""
        assert self.updates is not None, "a captured step has an optimizer"
        self.updates.advance(optimizer)

    def rebuild_outputs(self, results: Mapping[int, torch.Tensor], flat_inputs: Sequence[Any]) -> Any:
        """What the model would have returned. `results`: index in program["results"] -> tensor that left at the boundary."""
        leaves = [self.rebuild_output(recipe, results, flat_inputs) for recipe in self.outputs]
        return tree_unflatten(leaves, self.out_spec)

    def rebuild_output(self, recipe: OutputRecipe, results: Mapping[int, torch.Tensor], flat_inputs: Sequence[Any]) -> Any:
        """One leaf of what the model would have returned."""
        if recipe.kind == "constant":
            return recipe.constant
        holder: Any = {"input": flat_inputs, "tensor": self.tensors}.get(recipe.kind, results)
        base = holder[recipe.source]
        if recipe.view is None:
            return base
        sizes, strides, offset = recipe.view
        view = base.as_strided(sizes, strides, base.storage_offset() + offset)
        return view if recipe.requires_grad else view.detach()


@without_collection()
def capture(
    model: torch.nn.Module, args: Any, kwargs: Mapping[str, Any] | None = None, name: str | None = None, cache: Cache = False
) -> Captured:
    """Captures the forward and backward pass of `model(*args, **kwargs)`, as `regen.wrap` does.

    Args:
        model: the module.
        args: a sample input.
        kwargs: further sample inputs by name.
        name: of the program; None: that of the model's class.
        cache: folder in which captured graphs are kept; False: none.

    Returns:
        The captured passes.

    Raises:
        CaptureError: the model or its inputs cannot be captured.
    """
    args, kwargs = as_arguments(args), dict(kwargs or {})
    check_model(model, args, kwargs)
    flat = trace_python(model, args, kwargs, type(model).__name__)
    names = names_of_tensors(model)
    conversion, out_spec = converted(flat, names, name or type(model).__name__, device_of(model), cache)
    recipes, output_results, tangents = add_output_results(conversion)
    gradients = add_gradient_results(flat, conversion, names)
    arrange(conversion)
    return finished(model, flat, out_spec, conversion, recipes, output_results, tangents, gradients)[0]


@without_collection()
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
) -> Captured:
    """Captures a whole training step, as `regen.step` does: loss, gradients, clipping and update in one program.

    The loss is `loss_fn(model(*args[:-1]), args[-1])`, or what the model returns when `loss_fn` is None. Clipping is that of
    `torch.nn.utils` over all parameters of the model. State that the optimizer would make at its first step is made now.

    Args:
        model: the module.
        loss_fn: a function of the model's output and the last argument; None: the model returns the loss.
        optimizer: SGD, Adam or AdamW over parameters of the model.
        args: a sample batch.
        clip_grad_norm: clip the norm of all gradients.
        clip_grad_value: clip every gradient.
        early: update each parameter as soon as its old value is not read any more; False: all at the end.
        name: of the program; None: that of the model's class.
        cache: folder in which captured graphs are kept; False: none.

    Returns:
        The captured step.

    Raises:
        CaptureError: the model, its inputs or its optimizer cannot be captured.
    """
    args = as_arguments(args)
    check_model(model, args, {})
    check_optimizer(optimizer)
    whole = TrainingLoss(model, loss_fn)
    flat = trace_python(whole, args, {}, type(model).__name__)
    names = {**names_of_tensors(whole), **names_of_tensors(model)}
    conversion, out_spec = converted(flat, names, name or type(model).__name__, device_of(model), cache)
    builder = conversion.builder
    loss = the_loss(conversion)
    result = builder.add_result(int(loss), "output", "loss")
    used = used_gradients(model, optimizer, clip_grad_norm is not None)
    conversion.gradients = [g for g in conversion.gradients if g.kind != "input" and id(flat.owned[g.key]) in used]
    arrange(conversion)
    writer = StepWriter(conversion, names, flat.owned)
    writer.start_backward(loss)
    writer.match_layouts()
    order = [p for p in model.parameters() if id(p) in writer.value_of_gradient]
    if clip_grad_norm is not None:
        writer.clip_norm(order, clip_grad_norm)
    if clip_grad_value is not None:
        writer.clip_value(order, clip_grad_value)
    updates = writer.update(optimizer, early and clip_grad_norm is None and clip_grad_value is None)
    builder.boundary = None
    recipes = [OutputRecipe("result", result, requires_grad=False)]
    captured, storage_map = finished(model, flat, out_spec, conversion, recipes, [result], [None], [])
    captured.updates = updates
    captured.state_of = {storage_map[s]: place for s, place in updates.state_of.items()}
    return captured


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
    flat = trace_python(model, args, kwargs, type(model).__name__, gradients=False)
    names = names_of_tensors(model)
    conversion, out_spec = converted(flat, names, name or type(model).__name__, device_of(model), cache=False)
    recipes, output_results, tangents = add_output_results(conversion)
    if not output_results:
        raise CaptureError(
            f"cannot capture {type(model).__name__}: it returns nothing that it has computed; expected an output that is a tensor")
    arrange(conversion)
    conversion.builder.boundary = None
    captured, _ = finished(model, flat, out_spec, conversion, recipes, output_results, tangents, [])
    captured.program["gradients"] = False
    return captured


def the_loss(conversion: Conversion) -> Value:
    made = [output.made for output in conversion.outputs]
    if len(made) != 1 or not isinstance(made[0], Value) or math.prod(conversion.builder.values[made[0]]["sizes"]) != 1:
        raise CaptureError(
            f"cannot capture {conversion.builder.name}: the loss is not a single number; expected loss_fn, or the model when it is "
            "None, to return a tensor with one element")
    if not conversion.tangents:
        raise CaptureError(
            f"cannot capture {conversion.builder.name}: the loss does not depend on a parameter that requires a gradient; "
            "expected a loss to train on")
    return made[0]


def used_gradients(model, optimizer, all_of_model):
    """Ids of the parameters whose gradients do something: those of the optimizer, and for a norm all."""
    used = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return used | {id(p) for p in model.parameters()} if all_of_model else used


def as_arguments(args: Any) -> tuple[Any, ...]:
    return tuple(args) if isinstance(args, (tuple, list)) else (args,)


def finished(model, flat, out_spec, conversion, recipes, output_results, tangents, gradients):
    program, storage_map, value_map = conversion.builder.finish()
    for recipe in recipes:
        if recipe.kind == "tensor":
            recipe.source = storage_map[recipe.source]
    live = dict(model.named_parameters())
    captured = Captured(
        program=program,
        tensors={storage_map[s]: tensor for s, tensor in conversion.builder.tensors.items()},
        input_values={index: value_map[v] for index, v in conversion.inputs().items() if v in value_map},
        constant_inputs={i: x for i, x in enumerate(flat.flat_inputs) if not isinstance(x, torch.Tensor)},
        in_spec=flat.in_spec,
        out_spec=out_spec,
        outputs=recipes,
        output_results=output_results,
        tangent_values=[None if v is None else value_map.get(v) for v in tangents],
        gradient_results=gradients,
        parameters={name: live[name] for _, kind, name in gradients if kind == "parameter"},
    )
    return captured, storage_map


# Names and checks.

def names_of_tensors(model: torch.nn.Module) -> dict[int, tuple[str, str]]:
    """Id of a live tensor -> (name in the user's model, role). The first name of a shared tensor counts."""
    names = {id(tensor): (name, "parameter") for name, tensor in model.named_parameters()}
    for name, tensor in model.named_buffers():
        names.setdefault(id(tensor), (name, "buffer"))
    return names


def device_of(model: torch.nn.Module) -> torch.device:
    return next(model.parameters()).device


def check_model(model: torch.nn.Module, args: Any, kwargs: Any) -> None:
    name = type(model).__name__
    check_module(model, name)
    if not any(p.requires_grad for p in model.parameters()):
        raise CaptureError(f"cannot capture {name}: no parameter requires a gradient; expected at least one to train")
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


def check_devices(model: torch.nn.Module, args: Any, kwargs: Any, name: str) -> None:
    first_name, first = next(iter(model.named_parameters()))
    owned = [*model.named_parameters(), *model.named_buffers()]
    for other_name, tensor in owned:
        if tensor.device != first.device:
            raise CaptureError(
                f"cannot capture {name}: {first_name} is on {first.device}, {other_name} on {tensor.device}; "
                "expected a model on one device")
    leaves, _ = tree_flatten((args, kwargs))
    for index, leaf in enumerate(leaves):
        # A single number on the host may be mixed with tensors of any device.
        if isinstance(leaf, torch.Tensor) and leaf.device != first.device and not (leaf.dim() == 0 and leaf.device.type == "cpu"):
            raise CaptureError(
                f"cannot capture {name}: input {index} is on {leaf.device}, the model on {first.device}; "
                f"expected inputs on {first.device}")


# Results.

def add_output_results(conversion):
    """Results for what leaves at the boundary, a recipe for every flat output, and the tangents."""
    users, bases = conversion.outputs_of("user"), conversion.outputs_of("base")
    results, tangents, result_of_output, result_of_base = [], [], {}, {}

    def add(output, name):
        results.append(conversion.builder.add_result(int(output.made), "output", name))
        tangents.append(output.tangent)
        return results[-1]

    for index, output in enumerate(users):
        if isinstance(output.made, Value) and output.alias is None:
            result_of_output[index] = add(output, str(index))
    for index, output in enumerate(bases):
        result_of_base[index] = add(output, f"base.{index}")
    recipes = [recipe_for(conversion, index, output, result_of_output, result_of_base) for index, output in enumerate(users)]
    return recipes, results, tangents


def recipe_for(conversion, index, output, result_of_output, result_of_base):
    if not isinstance(output.made, Value):
        return OutputRecipe("constant", constant=output.made)
    if output.alias is None:
        return OutputRecipe("result", result_of_output[index], requires_grad=output.requires_grad)
    if output.alias in ("is_input", "alias_of_input"):
        return recipe_of_input(conversion, output)
    if output.alias == "alias_of_intermediate_base_is_user_output":
        source, base = result_of_output[output.base], conversion.outputs_of("user")[output.base]
    else:
        source, base = result_of_base[output.base], conversion.outputs_of("base")[output.base]
    return OutputRecipe("view", source, view=view_of(conversion, output.made, base.made), requires_grad=output.requires_grad)


def recipe_of_input(conversion, output):
    base = conversion.brought[output.base]
    view = None if output.alias == "is_input" else view_of(conversion, output.made, base.value)
    if base.kind == "input":
        return OutputRecipe("input", base.key, view=view, requires_grad=output.requires_grad)
    storage = conversion.builder.values[base.value]["storage"]
    return OutputRecipe("tensor", storage, view=view, requires_grad=output.requires_grad)


def view_of(conversion: Conversion, made: Value, base: Value) -> View:
    value, base_value = conversion.builder.values[made], conversion.builder.values[base]
    return tuple(value["sizes"]), tuple(value["strides"]), value["offset"] - base_value["offset"]


def add_gradient_results(flat, conversion, names):
    gradients = []
    for gradient in conversion.gradients:
        if gradient.kind == "input":
            owner, name = gradient.key, f"input.{gradient.key}"
        else:
            owner = name = names[id(flat.owned[gradient.key])][0]
        kind = "input" if gradient.kind == "input" else "parameter"
        gradients.append((conversion.builder.add_result(int(gradient.value), "gradient", name), kind, owner))
    if not gradients:
        raise CaptureError(
            f"cannot capture {conversion.builder.name}: no output depends on a parameter that requires a gradient; "
            "expected an output to train on")
    return gradients
