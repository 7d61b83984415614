"""The joint forward and backward graph of a model, as PyTorch's own tracer sees it.

AOTAutograd runs Dynamo's graph (`dynamo_graph.py`) together with autograd on tensors without data and writes down every operator.
Decompositions are off: what is written down is what eager PyTorch would call, which is why the numbers come out the same bit for
bit.
"""

import contextlib
import dataclasses
from typing import Any

import torch
from torch._C import DispatchKey
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._subclasses.functional_tensor import FunctionalTensorMode

from regen._capture.cudnn_recurrent import CUDNN_RECURRENT, fake_recurrent
from regen._capture.dynamo_graph import FlatGraph, tracing

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


@dataclasses.dataclass
class JointGraph:
    """A joint graph with what is needed to read it."""

    module: torch.fx.GraphModule  # the graph, and the constants it refers to
    flat: FlatGraph  # what it was made from
    out_spec: object  # rebuilds what the model returns
    output_info: list  # for each flat output: does it alias an input or another output
    keeps_casts: bool  # autocast casts a parameter once for all its uses


def trace_joint_graph(flat, name):
    """Traces the forward pass of `flat`, and the backward pass where gradients are wanted, without running either. `name` is for
    messages.
    """
    with tracing(name, flat.gradients), eager_composites(), admitted_views(), contextlib.ExitStack() as stack:
        joint = aot_export_joint_with_descriptors(stack, flat.module, flat.args, flat.kwargs, decompositions={})
    return JointGraph(
        module=joint.graph_module,
        flat=flat,
        out_spec=joint.out_spec,
        output_info=list(joint._aot_state.fw_metadata.output_info),
        keeps_casts=autocast_regions(flat.module) == 1,
    )


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
def admitted_views():
    """The tracer sees ADMITTED_VIEWS as the views they are. Autograd, which stands above, keeps its own opinion."""
    dispatch: Any = FunctionalTensorMode.__torch_dispatch__

    def on_dispatch(self: Any, func: Any, *rest: Any, **named: Any) -> Any:
        return dispatch(self, ADMITTED_VIEWS.get(func, func), *rest, **named)

    FunctionalTensorMode.__torch_dispatch__ = on_dispatch
    try:
        yield
    finally:
        FunctionalTensorMode.__torch_dispatch__ = dispatch
