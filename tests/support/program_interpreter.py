"""Runs a program node by node with plain PyTorch: slow, obvious, and independent of the runtime.

It has no plans and no memory of its own. It is the oracle for the front end: what it computes must be, bit for bit, what
eager PyTorch computes."""

import torch

SPECIAL = {
    "dtype": lambda name: getattr(torch, name),
    "layout": lambda name: getattr(torch, name),
    "memory_format": lambda name: getattr(torch, name),
    "device": torch.device,
    "number": float,
}


class Interpreter:
    """Values of one step. `set_value` what the caller brings, `run` nodes, `get_value` what comes out."""

    def __init__(self, program, tensors, scalars=None):
        self.program = program
        self.scalars = scalars if scalars is not None else [s["value"] for s in program["scalars"]]
        self.values = {}
        self.surprises = set()  # operators whose result was laid out otherwise than predicted
        for index, value in enumerate(program["values"]):
            live = tensors.get(value["storage"])
            if live is not None and program["storages"][value["storage"]]["role"] != "input":
                self.values[index] = view_of(live, value)

    def set_value(self, index, tensor):
        """Brings an input or a tangent, with every other view of the same storage."""
        target = self.program["values"][index]
        tensor = tensor.detach()
        if list(tensor.stride()) != target["strides"] and tensor.numel() > 0:
            tensor = torch.empty_strided(target["sizes"], target["strides"], dtype=tensor.dtype, device=tensor.device).copy_(tensor)
        self.values[index] = tensor

    def run(self, begin=0, end=None):
        with torch._C._AutoDispatchBelowAutograd():
            for node in self.program["nodes"][begin:end]:
                # As in eager: some kernels ask whether gradients are wanted, and keep what their backward pass needs.
                with torch.set_grad_enabled(node["phase"] == "forward"):
                    self.run_node(node)

    def run_node(self, node):
        namespace, name = node["op"].split("::")
        op = getattr(getattr(getattr(torch.ops, namespace), name), node["overload"] or "default")
        returned = op(*[self.argument(a) for a in node["args"]], **{k: self.argument(a) for k, a in node["kwargs"].items()})
        made = flat(returned) if op._schema.returns else []
        assert len(made) == len(node["outputs"]), f"{node['name']} returns {len(made)} tensors, not {len(node['outputs'])}"
        for index, tensor in zip(node["outputs"], made):
            if index is not None:
                self.values[index] = tensor
                if not as_predicted(self.program["values"][index], tensor):
                    self.surprises.add(node["op"])

    def argument(self, argument):
        if isinstance(argument, list):
            return [self.argument(item) for item in argument]
        if not isinstance(argument, dict):
            return argument
        (key, content), = argument.items()
        if key == "value":
            return self.values[content]
        if key == "scalar":
            return self.scalars[content]
        return SPECIAL[key](content)


def view_of(tensor, value):
    """The part of a live tensor's storage that a value names."""
    whole = torch.empty(0, dtype=getattr(torch, value["dtype"]), device=tensor.device)
    return whole.set_(tensor.untyped_storage(), value["offset"], value["sizes"], value["strides"])


def flat(returned):
    if isinstance(returned, (list, tuple)):
        return [t for item in returned for t in flat(item)]
    return [returned]


def as_predicted(value, tensor):
    """Some kernels lay their result out otherwise than PyTorch's description of them says."""
    strides = [s for s, n in zip(tensor.stride(), tensor.shape) if n > 1]
    predicted = [s for s, n in zip(value["strides"], value["sizes"]) if n > 1]
    same_layout = tensor.numel() == 0 or strides == predicted
    return same_layout and list(tensor.shape) == value["sizes"] and str(tensor.dtype) == "torch." + value["dtype"]


class CapturedFunction(torch.autograd.Function):
    """A captured model as autograd sees it: what `regen.wrap` does, with the interpreter in place of the runtime."""

    @staticmethod
    def forward(ctx, captured, flat_inputs, *differentiable):
        program = captured.program
        machine = Interpreter(program, captured.tensors)
        for index, value in captured.input_values.items():
            machine.values[value] = flat_inputs[index].detach()
        machine.run(0, program["boundary"])
        ctx.captured, ctx.machine = captured, machine
        outputs = [machine.values[v].view_as(machine.values[v]) for v in captured.result_values(captured.output_results)]
        fixed = [o for o, tangent in zip(outputs, captured.tangent_values) if tangent is None]
        ctx.mark_non_differentiable(*fixed)
        ctx.set_materialize_grads(True)
        return tuple(outputs)

    @staticmethod
    def backward(ctx, *tangents):
        captured, machine = ctx.captured, ctx.machine
        for value, tangent in zip(captured.tangent_values, tangents):
            if value is not None:
                machine.set_value(value, tangent)
        machine.run(captured.program["boundary"])
        found = [machine.values[v] for v in captured.result_values([i for i, _, _ in captured.gradient_results])]
        return (None, None, *found)


def call(captured, *args, **kwargs):
    """Runs a captured model on new inputs; gradients flow when the caller asks for them."""
    flat_inputs = torch.utils._pytree.tree_leaves((args, kwargs))
    differentiable = [
        captured.parameters[place] if kind == "parameter" else flat_inputs[place] for _, kind, place in captured.gradient_results]
    results = CapturedFunction.apply(captured, flat_inputs, *differentiable)
    by_index = dict(zip(captured.output_results, results))
    return captured.rebuild_outputs(by_index, flat_inputs)
