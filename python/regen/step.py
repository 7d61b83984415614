"""`regen.step`: forward pass, loss, backward pass, clipping and update as one plan."""

import torch
from torch.utils._pytree import tree_flatten

from regen.capture import capture_step
from regen.report import PlanReport
from regen.runner import Runner, Settings


def step(model, loss_fn, optimizer, args, budget, *, clip_grad_norm=None, clip_grad_value=None, early=True, **options):
    """A function of a batch that trains `model` by one step within `budget` and returns the loss:

        step = regen.step(model, loss_fn, optimizer, (x, y), budget="6GiB")
        for x, y in batches: loss = step(x, y)

    The loss is `loss_fn(model(*args[:-1]), args[-1])`, or what the model returns when `loss_fn` is None. Gradients
    exist only inside the step, so `.grad` stays as it is."""
    return TrainingStep(model, loss_fn, optimizer, args, Settings(budget=budget, **options), dict(
        clip_grad_norm=clip_grad_norm, clip_grad_value=clip_grad_value, early=early))


class TrainingStep:
    """One runner for each kind of batch, of which one holds the arena."""

    def __init__(self, model, loss_fn, optimizer, args, settings, capture_options):
        self.model, self.loss_fn, self.optimizer = model, loss_fn, optimizer
        self.settings = settings
        self.capture_options = capture_options
        self.runners = {}
        self.active = None
        self.prepare(args)

    @property
    def plan(self):
        return PlanReport(self.active.runner)

    regen = property(lambda self: self)

    def prepare(self, args):
        args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        self.activate(self.runner_for(args))

    def __call__(self, *args):
        self.activate(self.runner_for(args))
        return self.active.run(args)

    def activate(self, runner):
        if self.active is not runner:
            if self.active is not None:
                self.active.runner.release()
            self.active = runner
        runner.make_ready()

    def runner_for(self, args):
        leaves, spec = tree_flatten(args)
        key = (str(spec), self.model.training, tuple(
            (tuple(x.shape), x.dtype, x.stride(), x.device) if isinstance(x, torch.Tensor) else x for x in leaves))
        if key not in self.runners:
            captured = capture_step(self.model, self.loss_fn, self.optimizer, args, **self.capture_options)
            self.runners[key] = StepRunner(captured, self.settings, self.model, self.optimizer)
        return self.runners[key]


class StepRunner:
    """Runs one captured step."""

    def __init__(self, captured, settings, model, optimizer):
        self.captured = captured
        self.optimizer = optimizer
        self.model = model
        self.runner = Runner(captured, settings)
        program = captured.program
        values = program["values"]
        self.inputs = [(values[v]["storage"], index, values[v]["offset"]) for index, v in captured.input_values.items()]
        self.owned = [
            (storage, tensor, tensor.storage_offset()) for storage, tensor in captured.tensors.items()
            if program["storages"][storage]["role"] != "input"]

    def make_ready(self):
        if not self.runner.compiled:
            self.runner.plan()
            self.runner.compile()
            self.runner.step.bind(self.owned)

    def run(self, args):
        flat, _ = tree_flatten((args, {}))
        step = self.runner.step
        step.bind([(storage, flat[index], offset) for storage, index, offset in self.inputs])
        if self.captured.program["scalars"]:
            step.set_scalars(self.captured.scalars(self.optimizer))
        step.run(0)
        self.captured.advance(self.optimizer)
        return step.result(self.captured.output_results[0])
