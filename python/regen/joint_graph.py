"""The joint forward and backward graph of a model, as PyTorch's own tracer sees it.

Two of PyTorch's parts do the work: Dynamo turns the Python code into one graph, AOTAutograd runs that graph together with
autograd on tensors without data and writes down every operator. Decompositions are off: what is written down is
what eager PyTorch would call, which is why the numbers come out the same bit for bit.
"""

import contextlib
import dataclasses
import logging
import warnings

import torch
import torch._dynamo.functional_export as functional_export
from torch._C import DispatchKey
from torch._dynamo.functional_export import _dynamo_graph_capture_for_export
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.variables import TensorVariable
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.utils import _pytree as pytree

from regen.cudnn_recurrent import CUDNN_RECURRENT, fake_recurrent
from regen.errors import CaptureError, capture_error

# Python code may stand in for a C++ composite under these keys. It is written for compilers, and calls other
# operators than eager does (a dropout that draws from another distribution, an LSTM taken apart).
COMPOSITE_KEYS = [
    getattr(DispatchKey, name)
    for name in ("CompositeImplicitAutograd", "Autograd", "AutogradCPU", "AutogradCUDA")
    if hasattr(DispatchKey, name)
]

# The C++ batch norm changes the running statistics without saying so in its schema, which a trace would miss. The
# stand-in calls the same kernel by an overload that says so.
HONEST_BATCH_NORM = torch.ops.aten.native_batch_norm.default

# Operators that deny that they return views. The tracer believes them and gives the results dense strides, whereas eager works
# in place on rows with gaps, where kernels take other loops and round differently.
ADMITTED_VIEWS = {
    torch.ops.aten.unsafe_split.Tensor: torch.ops.aten.split.Tensor,
    torch.ops.aten.unsafe_split_with_sizes.default: torch.ops.aten.split_with_sizes.default,
}

NOISY_LOGGERS = ("torch._subclasses.fake_tensor", "torch._dynamo", "torch._functorch")


@dataclasses.dataclass
class JointGraph:
    """A joint graph with what is needed to read it."""

    module: torch.fx.GraphModule  # the graph, and the constants it refers to
    owned: dict  # descriptor target -> live tensor of the model (parameter, buffer, plain attribute)
    flat_inputs: list  # the caller's arguments, flattened
    in_spec: object  # flattens (args, kwargs)
    out_spec: object  # rebuilds what the model returns
    output_info: list  # for each flat output: does it alias an input or another output
    keeps_casts: bool  # autocast casts a parameter once for all its uses


def trace_joint_graph(model, args, kwargs, name):
    """Traces `model(*args, **kwargs)` and its backward pass without running either. `name` is for messages."""
    flat_inputs, in_spec = pytree.tree_flatten((args, kwargs))
    try:
        with quiet_tracer(), torch.enable_grad(), torch._dynamo.config.patch(allow_rnn=True):
            with refuse_lost_changes(name), unpacking_as_eager(), without_guards(), forgotten_by_dynamo():
                flat_module = _dynamo_graph_capture_for_export(model)(*args, **kwargs)
            with eager_composites(), admitted_views(), contextlib.ExitStack() as stack:
                joint = aot_export_joint_with_descriptors(stack, flat_module, args, kwargs, decompositions={})
    except CaptureError:
        raise
    except Exception as error:  # the tracer raises many kinds; the user gets one line for each
        raise capture_error(error, name) from error
    metadata = joint._aot_state.fw_metadata
    return JointGraph(
        module=joint.graph_module,
        owned=tensors_by_target(flat_module),
        flat_inputs=flat_inputs,
        in_spec=in_spec,
        out_spec=joint.out_spec,
        output_info=list(metadata.output_info),
        keeps_casts=autocast_regions(flat_module) == 1,
    )


def tensors_by_target(flat_module):
    """Dynamo gives parameters and buffers flat names; the tensors behind them are still the user's own."""
    owned = dict(flat_module.named_parameters(remove_duplicate=False))
    owned.update(flat_module.named_buffers(remove_duplicate=False))
    return owned


@contextlib.contextmanager
def forgotten_by_dynamo():
    """Dynamo leaves the traced module, with the user's parameters in it, among the globals of its own; the model must be free
    to go when the user lets it."""
    try:
        yield
    finally:
        for name in [name for name in vars(functional_export) if name.startswith("__compiled_fn")]:
            del vars(functional_export)[name]


def autocast_regions(flat_module):
    """How many separate autocast regions the forward pass has; what is inside another does not count."""
    count, depth = (1, 1) if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda") else (0, 0)
    for node in flat_module.graph.nodes:
        name = getattr(node.target, "__name__", "")
        count += name == "_enter_autocast" and depth == 0
        depth += (name == "_enter_autocast") - (name == "_exit_autocast")
    return count


@contextlib.contextmanager
def eager_composites():
    """Hides the Python stand-ins for composite operators, so that they decompose by their C++ code as in eager."""
    originals = [(op, dict(op.py_kernels)) for op in operators_with_python_kernels()]
    for op, _ in originals:
        for key in COMPOSITE_KEYS:
            op.py_kernels.pop(key, None)
        if op in CUDNN_RECURRENT:
            op.py_kernels[DispatchKey.CompositeImplicitAutograd] = CUDNN_RECURRENT[op]
        op._dispatch_cache.clear()
    try:
        with fake_recurrent():
            yield
    finally:
        for op, kernels in originals:
            op.py_kernels.clear()
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()


def operators_with_python_kernels():
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        if namespace != "aten":
            continue
        base, _, overload = rest.partition(".")
        packet = getattr(torch.ops.aten, base, None)
        op = getattr(packet, overload or "default", None)
        if op is not None and op.py_kernels and op is not HONEST_BATCH_NORM:
            yield op


@contextlib.contextmanager
def unpacking_as_eager():
    """`q, k, v = tensor` unbinds in eager, whose backward stacks three gradients at once; Dynamo would select three times and
    add three gradients that are zero for the most part."""
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
    program is used for the shapes it was captured with; the guards are a quarter of the time that capture takes."""
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
def admitted_views():
    """The tracer sees ADMITTED_VIEWS as the views they are. Autograd, which stands above, keeps its own opinion."""
    dispatch = FunctionalTensorMode.__torch_dispatch__

    def on_dispatch(self, func, *rest, **named):
        return dispatch(self, ADMITTED_VIEWS.get(func, func), *rest, **named)

    FunctionalTensorMode.__torch_dispatch__ = on_dispatch
    try:
        yield
    finally:
        FunctionalTensorMode.__torch_dispatch__ = dispatch


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

    SideEffects.mutation, SideEffects.store_attr = on_mutation, on_store_attr
    try:
        yield
    finally:
        SideEffects.mutation, SideEffects.store_attr = mutation, store_attr
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
