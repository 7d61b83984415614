"""A whole training step as one program: the loss, its gradient, clipping, and the update of every parameter."""

from typing import Any

import torch
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype, _has_foreach_support

from regen._capture.conversion import FakeValues, Value
from regen._capture.gradient_buffers import NOTHING, GradientBuffers
from regen._capture.node_writer import NodeWriter
from regen._capture.optimizers import OptimizerUpdates
from regen._capture.program_builder import reads_of
from regen._capture.traced.outputs import loss_of
from regen._capture.update_writer import UpdateWriter, buckets
from regen.errors import CaptureError

aten = torch.ops.aten


class TrainingLoss(torch.nn.Module):
    """The model and its loss as one module that returns the loss."""

    def __init__(self, model, loss_fn):
        super().__init__()
        self.model = model
        self.loss_fn = loss_fn

    def forward(self, *args, **kwargs):
        if self.loss_fn is not None:
            return self.loss_fn(self.model(*args[:-1], **kwargs), args[-1])
        returned = self.model(*args, **kwargs)
        loss = None if isinstance(returned, torch.Tensor) else loss_of(returned)
        return returned if loss is None else loss


class StepWriter:
    """Extends a converted joint graph to a step. The graph must have one output, the loss."""

    def __init__(self, conversion, names, owned):
        self.conversion = conversion
        self.builder = conversion.builder
        self.names = names
        self.fakes = FakeValues(self.builder)
        self.writer = NodeWriter(self.builder, self.fakes)
        self.parameters = {id(owned[g.key]): owned[g.key] for g in conversion.gradients if g.kind == "parameter"}
        self.value_of_parameter = {id(owned[b.key]): b.value for b in conversion.brought if b.kind == "parameter"}
        self.value_of_gradient = {id(owned[g.key]): g.value for g in conversion.gradients if g.kind == "parameter"}
        self.kept: GradientBuffers | None = None
        self.kept_by: dict[int, dict[str, Any]] = {}  # parameter -> the node that completes its gradient's buffer

    def new_live_value(self, name, role, tensor):
        storage = self.builder.add_live_storage(name, role, tensor)
        return storage, Value(self.builder.add_value(storage, tensor))

    def start_backward(self, loss, scale=None):
        """backward() begins with a gradient of one, which a node makes in place of the caller's tangent; with a loss scale, of that number
        (the index of a scalar), which torch rounds to the loss's type.
        """
        (tangent,) = self.conversion.tangents
        storage = self.builder.storages[self.builder.values[tangent]["storage"]]
        storage["role"], storage["name"] = "computed", "gradient_of_loss"
        if scale is None:
            nodes = [self.builder.make_node(
                "gradient_of_loss", aten.ones_like.default, "backward", [{"value": int(loss)}],
                {"memory_format": {"memory_format": "preserve_format"}}, [int(tangent)])]
        else:
            nodes = self.scaled_gradient(tangent, scale)
        self.builder.nodes[self.builder.boundary:self.builder.boundary] = nodes

    def scaled_gradient(self, tangent, scale):
        described = self.builder.values[tangent]
        args, kwargs = [described["sizes"], {"scalar": scale}], {"dtype": {"dtype": "float32"}, "device": {"device": str(self.builder.device)}}
        made, (value,) = self.writer.functional(aten.full.default, args, kwargs)
        made["phase"] = "backward"
        if described["dtype"] == "float32":
            made["outputs"] = [int(tangent)]
            return [made]
        cast = self.builder.make_node(
            "gradient_of_loss", aten._to_copy.default, "backward", [{"value": int(value)}], {"dtype": {"dtype": described["dtype"]}}, [int(tangent)])
        return [made, cast]

    def match_layouts(self):
        """.grad has the strides of its parameter: autograd copies a gradient that comes out otherwise."""
        for key, value in list(self.value_of_gradient.items()):
            parameter = self.parameters[key]
            if not significant_strides_equal(self.builder.values[value]["strides"], parameter):
                node, copied = self.copy_like(value, parameter)
                self.builder.nodes.insert(self.place_of(value) + 1, node)
                self.value_of_gradient[key] = copied

    def copy_like(self, value, parameter):
        for memory_format in (torch.contiguous_format, torch.channels_last, torch.channels_last_3d):
            if fits(parameter, memory_format):
                chosen = {"memory_format": {"memory_format": str(memory_format).removeprefix("torch.")}}
                node, (copied,) = self.writer.functional(aten.clone.default, [{"value": int(value)}], chosen)
                return node, copied
        raise CaptureError(
            f"cannot capture {self.builder.name}: parameter {self.names[id(parameter)][0]} has strides {tuple(parameter.stride())}; "
            "expected a contiguous or channels-last parameter (parameter.data = parameter.data.contiguous())")

    def place_of(self, value):
        return next(i for i, node in enumerate(self.builder.nodes) if value in node["outputs"])

    def keep_gradients(self, order, buffers):
        """From now on gradients are those in the buffers, to which each is brought as soon as it is there."""
        self.kept = buffers
        for parameter in order:
            gradient = self.value_of_gradient[id(parameter)]
            name = f"{self.names[id(parameter)][0]}.grad"
            _, value = self.new_live_value(name, "buffer", buffers.of(parameter))
            op = aten.add_.Tensor if buffers.adds else aten.copy_.default
            node = self.writer.writing(op, [{"value": int(value)}, {"value": int(gradient)}])
            self.builder.nodes.insert(self.place_of(gradient) + 1, node)
            self.kept_by[id(parameter)] = node
            self.value_of_gradient[id(parameter)] = value

    def clear_gradients(self, order):
        """Nodes that make the buffers ready for the next sum."""
        return [self.writer.writing(aten.fill_.Scalar, [{"value": int(self.value_of_gradient[id(p)])}, NOTHING]) for p in order]

    def clip_norm(self, order, max_norm):
        """As torch.nn.utils.clip_grad_norm_ with the norm of order 2; `order` lists the parameters."""
        gradients = [self.value_of_gradient[id(p)] for p in order]
        fakes = [self.fakes[g] for g in gradients]
        norms = []
        for (device, _), ((_,), indices) in _group_tensors_by_device_and_dtype([fakes], with_indices=True).items():
            norms += self.norms_of([gradients[i] for i in indices], _has_foreach_support(fakes, device))
        total = self.add(aten.linalg_vector_norm.default, [{"value": self.add(aten.stack.default, [references(norms)])}, 2.0])
        shifted = self.add(aten.add.Tensor, [{"value": total}, 1e-6])
        inverse = self.add(aten.reciprocal.default, [{"value": shifted}])
        scale = self.add(aten.mul.Tensor, [{"value": inverse}, float(max_norm)])
        scale = self.add(aten.clamp.default, [{"value": scale}, None, 1.0])
        for parameter, gradient in zip(order, gradients):
            # Multiplication rounds the same way one by one as in a list, and one by one lets each old gradient go.
            if self.kept is not None:
                self.builder.nodes.append(self.writer.writing(aten.mul_.Tensor, [{"value": int(gradient)}, {"value": scale}]))
                continue
            self.value_of_gradient[id(parameter)] = self.add(aten.mul.Tensor, [{"value": int(gradient)}, {"value": scale}])

    def norms_of(self, gradients, by_list):
        if not by_list:
            return [self.add(aten.linalg_vector_norm.default, [{"value": int(g)}, 2.0]) for g in gradients]
        node, values = self.writer.functional(aten._foreach_norm.Scalar, [references(gradients), 2.0])
        self.builder.nodes.append(node)
        return values

    def clip_value(self, order, limit):
        """As torch.nn.utils.clip_grad_value_."""
        for parameter in order:
            gradient = self.value_of_gradient[id(parameter)]
            if self.kept is not None:
                self.builder.nodes.append(self.writer.writing(aten.clamp_.default, [{"value": int(gradient)}, -float(limit), float(limit)]))
                continue
            clipped = self.add(aten.clamp.default, [{"value": int(gradient)}, -float(limit), float(limit)])
            self.value_of_gradient[id(parameter)] = clipped

    def add(self, op, args):
        node, (value,) = self.writer.functional(op, args)
        self.builder.nodes.append(node)
        return value

    def update(self, optimizer, early):
        """Adds the optimizer's nodes; `early`: each as soon as nothing needs the old parameter any more."""
        trained = [p for group in optimizer.param_groups for p in group["params"] if id(p) in self.value_of_gradient]
        updates = OptimizerUpdates(optimizer, trained, self.builder)
        try:
            after = self.update_nodes(optimizer, updates, trained, early)
        except Exception:
            updates.undo(optimizer)
            raise
        if self.kept is not None and self.kept.adds:
            after.setdefault(len(self.builder.nodes) - 1, []).extend(self.clear_gradients([self.parameters[key] for key in self.value_of_gradient]))
        merged = []
        for position, node in enumerate(self.builder.nodes):
            merged.append(node)
            merged += after.get(position, [])
        self.builder.nodes = merged
        return updates

    def update_nodes(self, optimizer, updates, trained, early):
        """Position -> the nodes that come after it."""
        last = len(self.builder.nodes) - 1
        places = self.earliest_places(trained) if early else {id(p): last for p in trained}
        update_writer = UpdateWriter(
            self.writer, updates, optimizer, self.value_of_parameter, self.value_of_gradient, self.names, self.new_live_value)
        after = {}
        for kind in updates.classes:
            for place, bucket in buckets(kind, places):
                after.setdefault(place, []).extend(update_writer.write(kind, bucket))
        return after

    def earliest_places(self, parameters):
        """For each parameter, the node after which it may change.

        Its gradient must be there, and nothing may read the old contents later: neither a node as it stands, nor a
        forward node that a plan runs again to get back something still to be used. So everything that the forward pass made
        from the parameter must have had its last use.
        """
        nodes, values = self.builder.nodes, self.builder.values
        bit_of_storage = {}
        for p in parameters:
            storage = values[self.value_of_parameter[id(p)]]["storage"]
            bit_of_storage.setdefault(storage, 1 << len(bit_of_storage))
        made_from = dict(bit_of_storage)  # storage -> the parameters it was made from in the forward pass
        last_use = {}
        for position, node in enumerate(nodes):
            mask = 0
            for value in reads_of(node):
                storage = values[value]["storage"]
                last_use[storage] = position
                mask |= made_from.get(storage, 0)
            if node["phase"] == "forward":
                for value in node["outputs"]:
                    if value is not None:
                        storage = values[value]["storage"]
                        made_from[storage] = made_from.get(storage, 0) | mask
        free_after = places_of_bits(made_from, last_use)
        made_at = {v: i for i, node in enumerate(nodes) for v in node["outputs"] if v is not None}
        position_of = {id(node): i for i, node in enumerate(nodes)}
        made_at |= {self.value_of_gradient[key]: position_of[id(node)] for key, node in self.kept_by.items()}
        return {
            id(p): max(
                made_at[self.value_of_gradient[id(p)]],
                free_after.get(bit_of_storage[values[self.value_of_parameter[id(p)]]["storage"]], 0))
            for p in parameters}


def places_of_bits(made_from, last_use):
    """Bit -> the last use of any storage that carries it. Latest first, so that each bit is settled once."""
    free_after, settled = {}, 0
    for storage, position in sorted(last_use.items(), key=lambda item: -item[1]):
        new = made_from.get(storage, 0) & ~settled
        settled |= new
        while new:
            bit = new & -new
            free_after[bit] = position
            new ^= bit
    return free_after


def references(values):
    return [{"value": int(v)} for v in values]


def significant_strides_equal(strides, tensor):
    """Strides of dimensions of size one mean nothing."""
    return all(a == b for a, b, size in zip(strides, tensor.stride(), tensor.shape) if size > 1)


def fits(tensor, memory_format):
    dimensions = {torch.channels_last: 4, torch.channels_last_3d: 5}.get(memory_format)
    return dimensions in (None, tensor.dim()) and tensor.is_contiguous(memory_format=memory_format)
