"""`regen.step`: forward pass, loss, backward pass, clipping and update as one plan."""

from torch.utils._pytree import tree_flatten

from regen._session.admission import admission_of
from regen._capture.capture import capture_step
from regen._session.job import hold
from regen._session.measured_step import StepMeter
from regen._session.owned import Bindings
from regen._session.report import PlanReport
from regen._session.session import Session
from regen._session.shape_cache import ShapeCache
from regen.options import Options
from regen._wrap import signature


def step(model, loss_fn, optimizer, args, budget=None, *, clip_grad_norm=None, clip_grad_value=None, early=True, **options):
    """A function of a batch that trains `model` by one step within `budget` and returns the loss:

        step = regen.step(model, loss_fn, optimizer, (x, y), budget="6GiB")
        for x, y in batches: loss = step(x, y)

    The loss is `loss_fn(model(*args[:-1]), args[-1])`, or what the model returns when `loss_fn` is None. Gradients
    exist only inside the step, so `.grad` stays as it is. Without a budget, a job of `regen share run` takes its memory."""
    return TrainingStep(model, loss_fn, optimizer, args, Options(budget=budget, **options), dict(
        clip_grad_norm=clip_grad_norm, clip_grad_value=clip_grad_value, early=early))


class TrainingStep(ShapeCache):
    """One session for each shape of a batch, of which one holds the arena."""

    def __init__(self, model, loss_fn, optimizer, args, options, capture_options):
        super().__init__(admission_of(self))
        self.model, self.loss_fn, self.optimizer = model, loss_fn, optimizer
        self.options = options if self.admission is None else self.admission.options_of(options)
        self.capture_options = capture_options
        self.fraction_of = None
        self.prepare(args)

    regen = property(lambda self: self)

    def prepare(self, args):
        args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        try:
            shaped = self.shape_for(args)
            with hold():
                self.activate(shaped)
        except Exception:
            for shaped in self.shapes.values():
                shaped.let_go()
            raise

    def __call__(self, *args):
        shaped = self.shape_for(args)
        with hold():
            self.activate(shaped)
            return shaped.run(args)

    def pack_state(self):
        if self.admission is not None:
            self.admission.pack(self.model, self.optimizer)

    def spill(self):
        """Gives the arena's memory back to the device and keeps its address, its plan and what is live in it; needs
        `releasable=True`. Returns the bytes that others may have until the next step, or until restore()."""
        return self.active.session.step.spill() if self.active is not None else 0

    def restore(self):
        """Takes the memory again. BudgetError: there is no room now; it may be tried again."""
        if self.active is not None:
            self.active.session.step.restore()

    def shape_for(self, args):
        return self.shape_of(signature(self.model, *tree_flatten(args)), lambda: self.make_shape(args))

    def make_shape(self, args):
        captured = capture_step(
            self.model, self.loss_fn, self.optimizer, args, cache=self.options.cache, **self.capture_options)
        made = ShapedStep(captured, self.options, self.model, self.optimizer, self.fraction_of, self.admission)
        self.fraction_of = made.session.fraction_of  # the first sample's, also for other shapes
        return made


class ShapedStep:
    """Runs one captured step."""

    def __init__(self, captured, options, model, optimizer, fraction_of, admission):
        self.captured = captured
        self.optimizer = optimizer
        self.session = Session(captured, options, fraction_of, admission)
        self.meter = StepMeter(self.session.device)
        self.steps = 0
        self.present = sum(s["bytes"] for s in captured.program["storages"] if s["role"] != "computed")
        self.bindings = Bindings(captured, model, OptimizerState(optimizer), same=True)

    def let_go(self):
        """No step will be taken: nothing of it stays in memory, though the error on its way still knows this object."""
        self.captured.updates.undo(self.optimizer)
        self.captured.tensors = {}
        self.bindings.let_go()

    def make_ready(self):
        """Inside a hold."""
        self.session.follow_limit()
        self.session.take_better_plan(self.steps + 1)
        if not self.session.compiled:
            self.session.plan()
            self.session.compile()
            self.memory = self.session.step.memory()
            self.meter.start_afresh()
        self.session.step.restore()
        self.session.look_for_better_plan()

    def release(self):
        self.session.release()

    def report(self):
        return PlanReport(self.session, measured_peak=self.meter.peak_bytes, measured_seconds=self.meter.seconds)

    def run(self, args):
        """Inside a hold."""
        flat, _ = tree_flatten((args, {}))
        step = self.session.step
        self.bindings.bind(step, flat)
        if self.captured.program["scalars"]:
            step.set_scalars(self.captured.scalars(self.optimizer))
        self.steps += 1
        self.meter.begin(self.present + self.memory["arena"] + self.memory["generators"], self.memory["arena"])
        step.run(0)
        self.captured.advance(self.optimizer)
        if self.captured.program["scalars"]:
            self.captured.scalars(self.optimizer)  # most likely the next step's: found while the device works
        loss = step.result(self.captured.output_results[0])
        self.meter.end()
        return loss


class OptimizerState:
    """Where a loaded checkpoint puts its tensors too."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def __getitem__(self, place):
        parameter, key = place
        found = self.optimizer.state[parameter].get(key)
        if found is None:
            raise RuntimeError(
                f"regen: the optimizer has no '{key}' for a parameter of shape {tuple(parameter.shape)} any more; expected the state of "
                "an optimizer that has made a step, or regen.step again")
        return found
