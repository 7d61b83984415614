"""A model's Python code as one graph, by PyTorch's Dynamo.

The code of a model may depend on anything, so this is done at every start: the graph is the proof that nothing changed since
what was made of it was kept (`capture_cache.py`).
"""

import contextlib
import dataclasses
import gc
import logging
import warnings
from typing import Any

import torch
import torch._dynamo.functional_export as functional_export
from torch._dynamo import utils as dynamo_utils
from torch._dynamo.functional_export import _dynamo_graph_capture_for_export
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.variables import TensorVariable
from torch._dynamo.variables import builder as dynamo_builder
from torch._dynamo.variables import tensor as dynamo_tensor
from torch.utils import _pytree as pytree

from regen._capture.trace_errors import capture_error
from regen.errors import CaptureError

NOISY_LOGGERS = ("torch._subclasses.fake_tensor", "torch._dynamo", "torch._functorch")
PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


@dataclasses.dataclass
class FlatGraph:
    """A graph of the model's calls, with what it was traced for."""

    module: torch.fx.GraphModule
    owned: dict  # Dynamo's name -> live tensor of the model (parameter, buffer, plain attribute)
    args: tuple
    kwargs: dict
    flat_inputs: list  # the caller's arguments, flattened
    in_spec: object  # flattens (args, kwargs)
    out_spec: object  # rebuilds what the model returns; None where this version of Dynamo does not say
    gradients: bool = True  # False: the forward pass alone, as under torch.no_grad()


def trace_python(model, args, kwargs, name, gradients=True):
    """Traces `model(*args, **kwargs)` without running it. `name` is for messages."""
    flat_inputs, in_spec = pytree.tree_flatten((args, kwargs))
    with tracing(name, gradients), torch._dynamo.config.patch(allow_rnn=True):
        with refuse_lost_changes(name), unpacking_as_eager(), without_guards(), without_copies(), forgotten_by_dynamo():
            module = _dynamo_graph_capture_for_export(model)(*args, **kwargs)
    nesting = getattr(module.graph._codegen, "pytree_info", None)
    out_spec = getattr(nesting, "out_spec", None)
    return FlatGraph(module, tensors_by_target(module), args, kwargs, flat_inputs, in_spec, out_spec, gradients)


@contextlib.contextmanager
def tracing(name, gradients=True):
    """Around PyTorch's tracers: switches gradients on or off, and turns their many kinds of errors into one, of one line."""
    try:
        with quiet_tracer(), torch.set_grad_enabled(gradients):
            yield
    except CaptureError:
        raise
    except Exception as error:
        raise capture_error(error, name) from error


@contextlib.contextmanager
def without_collection():
    """Capturing makes so many objects that Python looks for garbage all the time, and finds next to none: a sixth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def without_copies():
    """Dynamo copies every parameter twice, for functions that the user has declared constant and that want real values. Here
    the copies are made when such a function asks; else they would only take time, and memory that the budget is for.
    """
    clone = getattr(dynamo_builder, "_clone_input", None)
    real_value = getattr(dynamo_tensor, "get_real_value", None)
    if clone is None or real_value is None:
        yield
        return

    kept = {}  # identity -> the caller's tensor, which must not be worked on

    def keep(value, *rest):
        if type(value) not in PLAIN_TENSORS or value.device.type == "meta":
            return clone(value, *rest)
        kept[id(value)] = value
        return value

    def copied_real_value(node, tracer):
        for known, value in list(tracer.real_value_cache.items()):
            if id(value) in kept:
                tracer.real_value_cache[known] = dynamo_utils.clone_input(value)
        return real_value(node, tracer)

    builder: Any = dynamo_builder
    tensor: Any = dynamo_tensor
    builder._clone_input, tensor.get_real_value = keep, copied_real_value
    try:
        yield
    finally:
        builder._clone_input, tensor.get_real_value = clone, real_value


def tensors_by_target(flat_module):
    """Dynamo gives parameters and buffers flat names; the tensors behind them are still the user's own."""
    owned = dict(flat_module.named_parameters(remove_duplicate=False))
    owned.update(flat_module.named_buffers(remove_duplicate=False))
    return owned


@contextlib.contextmanager
def forgotten_by_dynamo():
    """Dynamo leaves the traced module, with the user's parameters in it, among the globals of its own; the model must be free
    to go when the user lets it.
    """
    try:
        yield
    finally:
        for name in [name for name in vars(functional_export) if name.startswith("__compiled_fn")]:
            delattr(functional_export, name)


@contextlib.contextmanager
def unpacking_as_eager():
    """`q, k, v = tensor` unbinds in eager, whose backward stacks three gradients at once; Dynamo would select three times and
    add three gradients that are zero for the most part.
    """
    unpack = TensorVariable.unpack_var_sequence

    def by_unbind(self, tx, idxes=None):
        fits = self.valid_size() and len(self.size) > 0 and (idxes is None or len(idxes) == self.size[0])
        return self.call_method(tx, "unbind", [], {}).unpack_var_sequence(tx) if fits else unpack(self, tx, idxes)

    TensorVariable.unpack_var_sequence = by_unbind
    try:
        yield
    finally:
        TensorVariable.unpack_var_sequence = unpack


@contextlib.contextmanager
def without_guards():
    """Dynamo builds thousands of guards only to see whether dynamic shapes were promised too much. Ours are static, and a
    program is used for the shapes it was captured with; the guards are a quarter of the time that capture takes.
    """
    name = "_suggest_or_raise_constraint_violation"
    check = getattr(functional_export, name, None)
    if check is not None:
        setattr(functional_export, name, lambda *args, **kwargs: None)
    try:
        yield
    finally:
        if check is not None:
            setattr(functional_export, name, check)


@contextlib.contextmanager
def refuse_lost_changes(name):
    """A forward pass that gives an attribute of a module another tensor than the one it holds: a program would lose that."""
    mutation, store_attr = SideEffects.mutation, SideEffects.store_attr
    changed = []  # (attribute, tracked value), looked at when the trace is complete

    def on_mutation(self, variable, *rest):
        if getattr(getattr(variable, "source", None), "member", None) in ("_buffers", "_parameters"):
            changed.append((None, variable))
        return mutation(self, variable, *rest)

    def on_store_attr(self, item, attribute, *rest):  # the rest differs between versions
        module = getattr(item, "value", None)
        if isinstance(module, torch.nn.Module) and isinstance(getattr(module, attribute, None), torch.Tensor):
            changed.append((attribute, rest[0]))
        return store_attr(self, item, attribute, *rest)

    patched: Any = SideEffects  # its methods are replaced for a while
    patched.mutation, patched.store_attr = on_mutation, on_store_attr
    try:
        yield
    finally:
        patched.mutation, patched.store_attr = mutation, store_attr
    for attribute, value in changed:
        held = [(attribute, value)] if attribute else tracked_items(value)
        for key, tensor in held:
            if not is_changed_in_place(tensor):
                raise CaptureError(
                    f"cannot capture {name}: forward assigns a new tensor to self.{key}; "
                    f"expected a change in place (self.{key}.copy_(...))")


def tracked_items(variable):
    """(name, tracked value) of a dictionary that Dynamo follows."""
    return [(getattr(getattr(key, "vt", key), "value", key), value) for key, value in getattr(variable, "items", {}).items()]


def is_changed_in_place(value):
    """Is a tracked tensor the module's own, perhaps after operations in place?"""
    value = value.realize() if hasattr(value, "realize") else value
    node = getattr(getattr(value, "proxy", None), "node", None)
    while node is not None and node.op in ("call_function", "call_method"):
        if "out" in node.kwargs:
            node = node.kwargs["out"]
        elif is_in_place(node.target):
            node = node.args[0]
        else:
            return False
    return node is None or node.op in ("placeholder", "get_attr")


def is_in_place(target):
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name in ("iadd", "isub", "imul", "itruediv", "ipow")


@contextlib.contextmanager
def quiet_tracer():
    """The tracer logs errors that are about to be raised anyway; one line from us is enough."""
    loggers = [logging.getLogger(name) for name in NOISY_LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)
