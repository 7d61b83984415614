"""`regen.wrap`: a module that runs its training step under a byte budget."""

import copy

import torch
from torch.utils._pytree import tree_flatten

from regen import _runtime
from regen.capture import capture
from regen.report import PlanReport
from regen.runner import Runner, Settings

# Gradients are handed to autograd when about this many bytes of them are complete, so that DDP's
# buckets fill while the rest of the backward pass runs.
GRADIENT_CHUNK = 16 << 20


def wrap(model, args, budget, *, kwargs=None, **options):
    """A module with the same parameters, buffers and names as `model` whose training forward and
    backward passes stay within `budget` and give the same numbers. `args` is a sample input."""
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    wrapped = copy.copy(model)
    kind = type(model)
    wrapped.__class__ = type(kind.__name__, (WrappedForward, kind), {"__module__": kind.__module__})
    object.__setattr__(wrapped, "regen", Wrapped(Settings(budget=budget, **options)))
    wrapped.regen.prepare(wrapped, args, dict(kwargs or {}))
    return wrapped


class WrappedForward:
    """Goes before the model's own class: training goes through the plan, all else through the model."""

    def forward(self, *args, **kwargs):
        if not (self.training and torch.is_grad_enabled()):
            return super().forward(*args, **kwargs)
        return self.regen.forward(self, args, kwargs)


class Wrapped:
    """What `model.regen` is: one runner for each kind of input, of which one holds the arena."""

    def __init__(self, settings):
        self.settings = settings
        self.runners = {}
        self.active = None
        self.caller = CallerMemory(settings.reserve)

    def __deepcopy__(self, memo):
        return Wrapped(copy.deepcopy(self.settings, memo))

    @property
    def plan(self):
        if self.active is None:
            return "no step has been planned yet"
        return PlanReport(self.active.runner)

    def prepare(self, model, args, kwargs):
        self.runner_for(model, args, kwargs).make_ready()

    def forward(self, model, args, kwargs):
        runner = self.runner_for(model, args, kwargs)
        if self.active is not runner:
            if self.active is not None:
                self.active.runner.release()
            self.active = runner
        flat, _ = tree_flatten((args, kwargs))
        return runner.forward(model, flat)

    def runner_for(self, model, args, kwargs):
        key = signature(model, args, kwargs)
        if key not in self.runners:
            self.runners[key] = self.make_runner(model, args, kwargs)
        return self.runners[key]

    def make_runner(self, model, args, kwargs):
        plain = plain_view(model)
        with torch.enable_grad():
            captured = capture(plain, args, kwargs)
        return WrapRunner(captured, self.settings, self.caller)


def plain_view(model):
    """The model as it was before it was wrapped: same tensors, own forward."""
    plain = copy.copy(model)
    plain.__class__ = type(model).__mro__[2]
    del plain.__dict__["regen"]
    return plain


def signature(model, args, kwargs):
    """What a captured program depends on."""
    leaves, spec = tree_flatten((args, kwargs))
    described = tuple(
        (tuple(x.shape), x.dtype, x.stride(), x.device, x.requires_grad) if isinstance(x, torch.Tensor) else x
        for x in leaves
    )
    frozen = tuple(p.requires_grad for p in model.parameters())
    autocast = tuple(
        (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda"))
    return described, str(spec), frozen, autocast


class CallerMemory:
    """What the caller holds beside the plan: its loss between forward and backward, its optimizer's
    state and scratch after it. Given as `reserve=`, or measured on the first step."""

    def __init__(self, reserve):
        self.fixed = None if reserve is None else (
            _runtime.parse_bytes(reserve) if isinstance(reserve, str) else int(reserve))
        self.bytes = self.fixed or 0
        self.base = None  # allocated when the first forward began

    def measuring(self):
        return self.fixed is None

    def at_forward(self, device):
        """True when what is known has grown, so that plans must be made again."""
        if not self.measuring():
            return False
        use = _runtime.memory_use(device)
        if self.base is None:
            self.base = use["allocated"]
            return False
        return self.note(use["allocated_peak"] - self.base if self.seen else 0)

    seen = False

    def after_forward(self, device):
        if self.measuring():
            self.left = _runtime.memory_use(device)["allocated"]
            _runtime.reset_memory_peak(device)

    def at_backward(self, device):
        if self.measuring():
            use = _runtime.memory_use(device)
            self.note(use["allocated_peak"] - self.left)

    def after_backward(self, device):
        if self.measuring():
            _runtime.reset_memory_peak(device)
            self.seen = True

    def note(self, held):
        grown = held > self.bytes
        self.bytes = max(self.bytes, held)
        return grown


class WrapRunner:
    """Runs the two halves of one captured program."""

    def __init__(self, captured, settings, caller):
        self.captured = captured
        self.caller = caller
        self.runner = Runner(captured, settings, caller.bytes)
        self.steps = 0
        self.find_bindings()

    def find_bindings(self):
        """Who brings each storage: (storage, name, offset) for the module's, (storage, input, offset) for inputs."""
        program = self.captured.program
        values = program["values"]
        self.inputs = [(values[v]["storage"], index, values[v]["offset"]) for index, v in self.captured.input_values.items()]
        self.owned, self.constants = [], []
        for storage, tensor in self.captured.tensors.items():
            entry = program["storages"][storage]
            if entry["role"] in ("parameter", "buffer"):
                self.owned.append((storage, entry["name"], tensor.storage_offset()))
            elif entry["role"] != "input":
                self.constants.append((storage, tensor, tensor.storage_offset()))

    def make_ready(self):
        if not self.runner.compiled:
            self.runner.plan()
            self.runner.compile()
            self.runner.step.cut_backward(GRADIENT_CHUNK)
            self.arrange_gradients()

    def replan(self):
        self.runner.release()
        self.runner.caller_bytes = self.caller.bytes
        self.runner.make_graph()
        self.make_ready()

    def arrange_gradients(self):
        """For each backward part, which gradients it completes: (result, "parameter" or "input", who)."""
        kinds = {result: (kind, who) for result, kind, who in self.captured.gradient_results}
        step = self.runner.step
        self.parts = [
            [(result, *kinds[result]) for result in step.results_of(part) if result in kinds]
            for part in range(1, step.num_parts)
        ] or [[]]

    def forward(self, model, flat):
        device = self.runner.device
        if self.caller.at_forward(device):
            self.replan()
        self.make_ready()
        live = dict(model.named_parameters(remove_duplicate=False))
        live.update(model.named_buffers(remove_duplicate=False))
        self.runner.step.bind(
            [(storage, live[name], offset) for storage, name, offset in self.owned]
            + [(storage, flat[index], offset) for storage, index, offset in self.inputs]
            + self.constants)
        self.steps += 1
        call = StepCall(self, self.steps)
        link = None
        for part in range(len(self.parts) - 1, -1, -1):
            tensors = [live[who] if kind == "parameter" else flat[who] for _, kind, who in self.parts[part]]
            link = BackwardPart.apply(call, part, link, *tensors)
        outputs = link if isinstance(link, tuple) else (link,)
        results = dict(zip(self.captured.output_results, outputs))
        return self.captured.rebuild_outputs(results, flat)


class StepCall:
    """One forward pass and the backward pass that belongs to it."""

    def __init__(self, runner, number):
        self.runner = runner
        self.number = number

    def run_forward(self):
        runner = self.runner
        step = runner.runner.step
        step.run(0)
        outputs = tuple(step.result(r) for r in runner.captured.output_results)
        runner.caller.after_forward(runner.runner.device)
        return outputs

    def run_backward(self, part, tangents):
        runner = self.runner
        if runner.steps != self.number or not runner.runner.compiled:
            raise RuntimeError(
                "regen: the values saved by this forward pass are gone: another forward pass of the same wrapped "
                "model ran since; expected each backward pass before the next forward pass")
        step = runner.runner.step
        if part == 0:
            runner.caller.at_backward(runner.runner.device)
            step.bind(self.bound_tangents(tangents))
        step.run(part + 1)
        gradients = tuple(step.result(result) for result, _, _ in runner.parts[part])
        if part == len(runner.parts) - 1:
            step.forget()
            runner.caller.after_backward(runner.runner.device)
        return gradients

    def bound_tangents(self, tangents):
        captured = self.runner.captured
        values = captured.program["values"]
        bound = []
        for value, tangent, result in zip(captured.tangent_values, tangents, captured.output_results):
            if value is not None:
                bound.append((values[value]["storage"], as_laid_out(tangent, values[value], captured), values[value]["offset"]))
        self.held = [tensor for _, tensor, _ in bound]
        return bound


def as_laid_out(tangent, value, captured):
    """The gradient of an output in the layout the program was captured with."""
    sizes, strides = tuple(value["sizes"]), tuple(value["strides"])
    dtype = getattr(torch, value["dtype"])
    if tangent is not None and tangent.stride() == strides and tangent.dtype == dtype:
        return tangent
    laid_out = torch.empty_strided(sizes, strides, dtype=dtype, device=captured.program["device"])
    return laid_out.zero_() if tangent is None else laid_out.copy_(tangent)


class BackwardPart(torch.autograd.Function):
    """A stretch of the backward pass as one node of autograd's graph. The chain of them hands each
    stretch's gradients over as soon as it has run; the one nearest to the loss runs the forward pass."""

    @staticmethod
    def forward(ctx, call, part, link, *tensors):
        ctx.call, ctx.part, ctx.linked = call, part, link is not None
        ctx.set_materialize_grads(False)
        if part > 0:
            return torch.empty(0, device=call.runner.runner.device)
        outputs = call.run_forward()
        tangents = call.runner.captured.tangent_values
        ctx.mark_non_differentiable(*[o for o, v in zip(outputs, tangents) if v is None])
        return outputs

    @staticmethod
    def backward(ctx, *tangents):
        gradients = ctx.call.run_backward(ctx.part, tangents)
        link = torch.empty(0, device=ctx.call.runner.runner.device) if ctx.linked else None
        return (None, None, link, *gradients)
