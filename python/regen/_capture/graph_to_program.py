"""From the joint graph of PyTorch's tracer to a program.

The tracer's graph names tensors; a program names the memory behind them. Every value of the trace is a tensor without
data whose storage is shared by its views, so storages are found by identity. Three things change on the way: views that
change nothing vanish, changes of buffers and inputs become `copy_` nodes, and the graph is cut in a forward and a backward part.
"""

import operator
from typing import Any, cast

import torch

from regen._capture.autocast_casts import merge_casts_of_parameters
from regen._capture.conversion import Brought, Conversion, Output, Value
from regen._capture.program_builder import json_argument
from regen._capture.trace_errors import source_of_stack_trace
from regen.errors import CaptureError

aten = torch.ops.aten

CUDNN_BATCH_NORM = aten.cudnn_batch_norm.default
# Checks that the tracer writes for itself; they hold for the captured shapes.
TRACER_CHECKS = {"aten::_assert_tensor_metadata", "aten::_assert_scalar"}
# The tracer's words for what is brought and handed out, and ours.
INPUT_KINDS = {"ParamAOTInput": "parameter", "BufferAOTInput": "buffer", "PlainAOTInput": "input"}
OUTPUT_KINDS = {"PlainAOTOutput": "user", "IntermediateBaseAOTOutput": "base"}
OWN_MEMORY = ("non_alias", "unsafe_view_alias", "custom_function_view")


class JointConverter:
    """Walks a joint graph once. `convert` is the whole job."""

    def __init__(self, joint, builder, owned_names):
        self.joint = joint
        self.owned_names = owned_names  # id of a live tensor -> (name, role)
        self.builder = builder
        self.result = Conversion(builder)
        self.known = {}  # FX node -> Value, constant, or list of these
        self.fake_of_value = {}
        self.value_of_input = {}  # the tracer's descriptor -> value
        self.tangent_of = {}  # the tracer's descriptor of an output -> value
        self.storage_of_fake = {}  # identity of a storage without data -> (storage, byte shift)
        self.keep_alive = []  # identities are addresses: what they belong to must not die

    def convert(self):
        use_buffers_in_batch_norm_backward(self.joint.module.graph)
        if self.joint.keeps_casts:
            merge_casts_of_parameters(self.joint.module.graph)
        for fx_node in self.joint.module.graph.nodes:
            getattr(self, "on_" + fx_node.op)(fx_node)
        return self.result

    # What the caller brings.

    def on_placeholder(self, fx_node):
        descriptor = fx_node.meta.get("desc")
        handler = getattr(self, "bring_" + type(descriptor).__name__, None)
        if handler is None:
            raise CaptureError(
                f"cannot capture {self.builder.name}: input kind {type(descriptor).__name__} of the traced graph; "
                "expected parameters, buffers and plain inputs that do not share memory")
        value = handler(descriptor, fx_node.meta.get("val"))
        self.known[fx_node] = value
        if type(descriptor).__name__ != "TangentAOTInput":
            self.value_of_input[descriptor] = value
            self.result.brought.append(brought(descriptor, value))

    def bring_ParamAOTInput(self, descriptor, fake):
        live = self.joint.flat.owned[descriptor.target]
        name, role = self.owned_names.get(id(live), (descriptor.target.removeprefix("L__self___"), "buffer"))
        storage = self.builder.add_live_storage(name, role, live)
        self.remember_storage(fake, storage, 0)
        return self.new_value(storage, fake, live.storage_offset())

    bring_BufferAOTInput = bring_ParamAOTInput

    def bring_PlainAOTInput(self, descriptor, fake):
        sample = self.joint.flat.flat_inputs[descriptor.idx]
        if not isinstance(fake, torch.Tensor):
            return sample
        storage = self.builder.add_storage(f"input.{descriptor.idx}", "input", span_bytes(sample), sample.device)
        self.builder.tensors[storage] = sample
        # The caller's tensor may be a view of something larger; the program sees the view alone.
        self.remember_storage(fake, storage, fake.storage_offset() * fake.element_size())
        return self.new_value(storage, fake, 0)

    def bring_TangentAOTInput(self, descriptor, fake):
        if type(descriptor.output).__name__ == "InputMutationAOTOutput":
            raise CaptureError(
                f"cannot capture {self.builder.name}: input {describe_input(descriptor.output.mutated_input)} is changed in place "
                "and gradients flow through the change; expected inputs that need gradients to stay as they are")
        storage = self.builder.add_storage(f"tangent.{len(self.tangent_of)}", "tangent", span_bytes(fake), fake.device)
        self.remember_storage(fake, storage, fake.storage_offset() * fake.element_size())
        value = self.new_value(storage, fake, 0)
        self.tangent_of[descriptor.output] = value
        self.result.tangents.append(value)
        return value

    def on_get_attr(self, fx_node):
        constant = getattr(self.joint.module, fx_node.target)
        if not isinstance(constant, torch.Tensor):
            raise CaptureError(
                f"cannot capture {self.builder.name}{self.at(fx_node)}: a {type(constant).__name__} inside the graph; "
                "expected operators on tensors")
        name, role = self.owned_names.get(id(constant), (f"constant.{fx_node.target.lstrip('_')}", "constant"))
        storage = self.builder.add_live_storage(name, role, constant)
        fake = fx_node.meta.get("val", constant)
        self.remember_storage(fake, storage, 0)
        self.known[fx_node] = self.new_value(storage, fake, constant.storage_offset())

    # What nodes make.

    def on_call_function(self, fx_node):
        if fx_node.target is operator.getitem:
            source, index = fx_node.args
            self.known[fx_node] = self.known[source][index]
            return
        op = fx_node.target
        self.check_operator(fx_node, op)
        if op._schema.name in TRACER_CHECKS:
            return
        if self.is_idle(fx_node, op):
            self.known[fx_node] = self.known[fx_node.args[0]]
            return
        if op is CUDNN_BATCH_NORM and fx_node.args[5] and fx_node.args[3] is not None:
            self.add_cudnn_batch_norm(fx_node)
            return
        if op is aten.bernoulli.p and is_permuted(fx_node.args[0].meta["val"]):
            self.add_draw_in_memory_order(fx_node)
            return
        args = [self.argument(a, fx_node) for a in fx_node.args]
        kwargs = {k: self.argument(a, fx_node) for k, a in fx_node.kwargs.items()}
        self.known[fx_node] = self.values_for(fx_node.name, fx_node.meta.get("val"), fx_node)
        self.add_node(fx_node, op, args, kwargs, self.known[fx_node] if op._schema.returns else [])

    def add_node(self, fx_node, op, args, kwargs, made, suffix=""):
        source = source_of_stack_trace(fx_node.meta.get("stack_trace"))
        name = f"{fx_node.name}_{suffix}" if suffix else fx_node.name
        self.builder.nodes.append(self.builder.make_node(name, op, "forward", args, kwargs, flattened(made), source))

    def add_draw_in_memory_order(self, fx_node):
        """Eager dropout draws in place, in the order of memory, and keeps the layout; the functional form of the trace draws in
        the order of indices into contiguous memory. Turned so that both orders agree, it draws the same.
        """
        source = fx_node.args[0].meta["val"]
        order = sorted(range(source.dim()), key=lambda d: -source.stride(d))
        inverse = [order.index(d) for d in range(source.dim())]
        turned = source.permute(order)
        drawn = fx_node.target(turned, *fx_node.args[1:], **fx_node.kwargs)
        steps = [("turned", aten.permute.default, [order], turned), ("", fx_node.target, list(fx_node.args[1:]), drawn),
                 ("back", aten.permute.default, [inverse], drawn.permute(inverse))]
        value = self.known[fx_node.args[0]]
        for suffix, op, rest, fake in steps:
            args = [{"value": int(value)}, *(self.argument(a, fx_node) for a in rest)]
            value = self.values_for(fx_node.name, fake, fx_node)
            self.add_node(fx_node, op, args, {}, value, suffix)
        self.known[fx_node] = value

    def add_cudnn_batch_norm(self, fx_node):
        """CuDNN's batch norm changes the running statistics without saying so in its schema.

        The functional form runs the same kernel on copies and hands the new statistics back.
        """
        data, weight, bias, mean, variance, _, momentum, epsilon = fx_node.args
        made = self.values_for(fx_node.name, fx_node.meta["val"], fx_node)
        for statistics in (mean, variance):
            old = self.known[statistics]
            storage = self.builder.add_storage(f"{fx_node.name}.{len(made)}", "computed", span_bytes(statistics.meta["val"]))
            made.append(self.new_value(storage, statistics.meta["val"], 0))
            self.result.mutations.append((old, made[-1]))
        args = [self.argument(a, fx_node) for a in (data, weight, bias, mean, variance, momentum, epsilon)]
        self.known[fx_node] = made
        self.add_node(fx_node, aten._batch_norm_with_update_functional.default, args, {}, made)

    def check_operator(self, fx_node, op):
        if not isinstance(op, torch._ops.OpOverload):
            raise CaptureError(
                f"cannot capture {self.builder.name}{self.at(fx_node)}: {op} is not an operator of the dispatcher; "
                "expected shapes that do not depend on values, and no higher-order operators")
        for fake in tensors_in(fx_node.meta.get("val")):
            if any(not isinstance(n, int) for n in (*fake.shape, *fake.stride())):
                raise CaptureError(
                    f"cannot capture {self.builder.name}{self.at(fx_node)}: the size of what {op} returns depends on the "
                    "values of a tensor; expected sizes known from the inputs' shapes (torch.where instead of nonzero)")

    def is_idle(self, fx_node, op):
        """A view with the sizes and strides of its source, or a fresh copy of a constant, which nothing changes."""
        fake = fx_node.meta.get("val")
        if not fx_node.args or not isinstance(fx_node.args[0], torch.fx.Node) or not isinstance(fake, torch.Tensor):
            return False
        source = self.known.get(fx_node.args[0])
        if not isinstance(source, Value):
            return False
        if op is aten.lift_fresh_copy.default or op is aten.lift_fresh.default:
            return True
        return op.is_view and same_view(fake, self.fake_of_value[source])

    def values_for(self, name: str, fake: Any, fx_node: torch.fx.Node) -> Any:
        """New values for what a node returns, nested alike; numbers stay numbers."""
        if isinstance(fake, (list, tuple)):
            return [self.values_for(f"{name}.{i}", item, fx_node) for i, item in enumerate(fake)]
        if fake is None or isinstance(fake, (int, float, bool)):
            return fake  # a number that follows from shapes, such as the longest sequence of an attention
        if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided:
            kind = fake.layout if isinstance(fake, torch.Tensor) else type(fake).__name__
            raise CaptureError(
                f"cannot capture {self.builder.name}{self.at(fx_node)}: {fx_node.target} returns a {kind}; "
                "expected operators that return dense tensors")
        storage, shift = self.storage_for(name, fake)
        return self.new_value(storage, fake, fake.storage_offset() - shift // fake.element_size())

    def storage_for(self, name, fake):
        key = fake.untyped_storage()._cdata
        if key not in self.storage_of_fake:
            storage = self.builder.add_storage(name, "computed", fake.untyped_storage().nbytes(), fake.device)
            self.remember_storage(fake, storage, 0)
        return self.storage_of_fake[key]

    def remember_storage(self, fake, storage, shift):
        self.keep_alive.append(fake)
        self.storage_of_fake[fake.untyped_storage()._cdata] = (storage, shift)

    def new_value(self, storage, fake, offset):
        value = Value(self.builder.add_value(storage, fake, offset))
        self.fake_of_value[value] = fake
        return value

    def argument(self, argument, fx_node):
        if isinstance(argument, torch.fx.Node):
            return self.known_argument(self.known[argument], fx_node)
        if isinstance(argument, (list, tuple)):
            return [self.argument(item, fx_node) for item in argument]
        return json_argument(argument, f"{self.builder.name}{self.at(fx_node)}")

    def known_argument(self, known, fx_node):
        if isinstance(known, Value):
            return {"value": int(known)}
        if isinstance(known, list):
            return [self.known_argument(item, fx_node) for item in known]
        return json_argument(known, f"{self.builder.name}{self.at(fx_node)}")

    # What the caller gets.

    def on_output(self, fx_node):
        descriptors = fx_node.meta["desc"]
        for given, descriptor in zip(fx_node.args[0], descriptors):
            made = self.known[given] if isinstance(given, torch.fx.Node) else given
            kind = type(descriptor).__name__
            if kind == "InputMutationAOTOutput":
                self.result.mutations.append((self.value_of_input[descriptor.mutated_input], made))
            elif kind == "GradAOTOutput":
                if isinstance(made, Value):
                    self.result.gradients.append(brought(descriptor.grad_of, made))
            elif descriptor is not None:
                self.result.outputs.append(Output(OUTPUT_KINDS.get(kind, "other"), made, self.tangent_of.get(descriptor)))
        for output, info in zip(self.result.outputs_of("user"), self.joint.output_info):
            kind = info.output_type.name
            output.alias = None if kind in OWN_MEMORY else kind
            output.base, output.requires_grad = -1 if info.base_idx is None else info.base_idx, info.requires_grad

    def at(self, fx_node):
        place = source_of_stack_trace(fx_node.meta.get("stack_trace"))
        return f" at {place}" if place else ""


def brought(descriptor, value):
    kind = INPUT_KINDS[type(descriptor).__name__]
    key = descriptor.idx if kind == "input" else descriptor.target
    return Brought(kind, key, value if isinstance(value, Value) else None)


def use_buffers_in_batch_norm_backward(graph):
    """The trace hands the *new* running statistics to the backward pass, which does not read them when training.

    Eager hands over the buffers. Doing the same here keeps small tensors from living across the whole step.
    """
    for node in graph.nodes:
        if node.target is aten.native_batch_norm_backward.default and node.args[7] is True:
            for position in (3, 4):
                node.update_arg(position, statistics_before(node.args[position]))


def statistics_before(node: Any) -> Any:
    if not isinstance(node, torch.fx.Node) or node.target is not operator.getitem:
        return node
    forward, index = cast(tuple[torch.fx.Node, int], node.args)
    return forward.args[index] if forward.target in FUNCTIONAL_BATCH_NORMS and index in (3, 4) else node


FUNCTIONAL_BATCH_NORMS = {aten._native_batch_norm_legit_functional.default}


def is_permuted(fake):
    """Dense, but with dimensions in another order than memory."""
    if fake.is_contiguous():
        return False
    order = sorted(range(fake.dim()), key=lambda d: -fake.stride(d))
    return fake.permute(order).is_contiguous()


def span_bytes(tensor):
    """Bytes from the first to the last element, gaps included."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size()


def same_view(one, other):
    return (
        one.dtype == other.dtype and one.shape == other.shape and one.stride() == other.stride()
        and one.storage_offset() == other.storage_offset()
        and one.untyped_storage()._cdata == other.untyped_storage()._cdata)


def tensors_in(tree):
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [t for item in tree for t in tensors_in(item)] if isinstance(tree, (list, tuple)) else []


def flattened(made):
    if isinstance(made, list):
        return [leaf for item in made for leaf in flattened(item)]
    return [int(made) if isinstance(made, Value) else None]


def describe_input(descriptor):
    return getattr(descriptor, "target", None) or f"{descriptor.idx}"
