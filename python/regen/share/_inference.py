"""`regen.share.infer`: a model's forward pass under a plan, one request at a time."""

import contextlib

import torch
from torch.utils._pytree import tree_flatten

from regen._session.admission import admission_of
from regen._session.budget import device_budget
from regen._capture.capture import capture_inference
from regen._session.job import hold, job
from regen._session.owned import Bindings
from regen._session.report import PlanReport
from regen._session.session import Session
from regen._session.shape_cache import ShapeCache
from regen.options import Options
from regen._wrap import same_random_numbers, signature


def infer(model, args, budget=None, *, kwargs=None, **options):
    """A function that returns what `model(*args)` returns without gradients, bit for bit:

        predict = regen.share.infer(model.eval(), (x,))
        y = predict(x)

    `args` is a sample request. A job of `regen share run` has the device from the beginning of a request until its results are
    complete, and no longer; another program runs at once. Without a budget nothing is recomputed or moved, unless the job's
    memory says so. Other options are those of `regen.step`."""
    if budget is None and job() is None:
        options.setdefault("planner", "keep_all")
    return Inference(model, args, dict(kwargs or {}), Options(budget=budget, **{"improve": False, **options}))


class InferenceSession(Session):
    """A budget may be left out."""

    def check_budget(self):
        if self.options.budget is not None:
            super().check_budget()

    @property
    def budget(self):
        if self.options.budget is None and job() is None:
            return None
        return device_budget(self.options.budget, self.fraction_of, self.device, self.job_limit)


class Inference(ShapeCache):
    """One session for each shape of a request, of which one holds the arena."""

    def __init__(self, model, args, kwargs, options):
        if model.training:
            raise ValueError(f"regen.share.infer: {type(model).__name__} is in training mode; expected model.eval()")
        super().__init__(admission_of(self, deepest="spill"))
        self.model = model
        self.options = options if self.admission is None else self.admission.options_of(options)
        args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        flat, spec = tree_flatten((args, kwargs))
        shaped = self.shape_for(args, kwargs, signature(model, flat, spec))
        with hold(gives_back=True):
            self.activate(shaped)

    def __call__(self, *args, **kwargs):
        flat, spec = tree_flatten((args, kwargs))
        shaped = self.shape_for(args, kwargs, signature(self.model, flat, spec))
        with hold(gives_back=True):
            self.activate(shaped)
            return shaped.run(flat)

    def shape_for(self, args, kwargs, key):
        return self.shape_of(key, lambda: self.make_shape(args, kwargs))

    def make_shape(self, args, kwargs):
        captured = capture_inference(self.model, args, kwargs)
        with same_random_numbers(self.model):
            return ShapedInference(captured, self.options, self.model, self.admission)


class ShapedInference:
    """Runs one captured forward pass."""

    def __init__(self, captured, options, model, admission):
        self.captured = captured
        self.device = str(captured.program["device"])
        # Of high priority, so that its kernels go before those of other streams of this process.
        self.stream = torch.cuda.Stream(self.device, priority=-1) if self.device.startswith("cuda") else None
        with self.on_stream():  # cuBLAS has a workspace for each stream: it belongs to what is recorded
            self.session = InferenceSession(captured, options, admission=admission)
        self.bindings = Bindings(captured, model)

    def make_ready(self):
        """Inside a hold."""
        self.session.follow_limit()
        if not self.session.compiled:
            self.session.plan()
            self.session.compile()

    def release(self):
        self.session.release()

    def report(self):
        return PlanReport(self.session)

    def run(self, flat):
        """Inside a hold."""
        step = self.session.step
        self.bindings.bind(step, flat)
        with self.on_stream():
            step.run(0)
            results = {r: step.result(r) for r in self.captured.output_results}
        return self.captured.rebuild_outputs(results, flat)

    @contextlib.contextmanager
    def on_stream(self):
        """The work inside comes after what the caller has issued, and is done at the end."""
        if self.stream is None:
            yield
            return
        caller = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(caller)
        with torch.cuda.stream(self.stream):
            yield
        self.stream.synchronize()
