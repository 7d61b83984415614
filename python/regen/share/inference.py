"""`regen.share.infer`: a model's forward pass under a plan, one request at a time."""

import contextlib

import torch
from torch.utils._pytree import tree_flatten

from regen.admission import admission_of
from regen.budget import device_budget
from regen.capture import capture_inference
from regen.job import hold, job
from regen.owned import Owned, place_of
from regen.runner import Runner
from regen.settings import Settings
from regen.wrap import same_random_numbers, signature


def infer(model, args, budget=None, *, kwargs=None, **options):
    """A function that returns what `model(*args)` returns without gradients, bit for bit:

        predict = regen.share.infer(model.eval(), (x,))
        y = predict(x)

    `args` is a sample request. A job of `regen share run` has the device from the beginning of a request until its results are
    complete, and no longer; another program runs at once. Without a budget nothing is recomputed or moved, unless the job's
    memory says so. Other options are those of `regen.step`."""
    if budget is None and job() is None:
        options.setdefault("planner", "keep_all")
    return Inference(model, args, dict(kwargs or {}), Settings(budget=budget, **{"improve": False, **options}))


class InferencePlan(Runner):
    """A budget may be left out."""

    def check_budget(self):
        if self.settings.budget is not None:
            super().check_budget()

    @property
    def budget(self):
        if self.settings.budget is None and job() is None:
            return None
        return device_budget(self.settings.budget, self.share_of, self.device, self.job_limit)


class Inference:
    """One runner for each kind of request, of which one holds the arena."""

    def __init__(self, model, args, kwargs, settings):
        if model.training:
            raise ValueError(f"regen.share.infer: {type(model).__name__} is in training mode; expected model.eval()")
        self.model = model
        self.admission = admission_of(self, deepest="spill")
        self.settings = settings if self.admission is None else self.admission.settings(settings)
        self.runners = {}
        self.active = None
        args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        flat, spec = tree_flatten((args, kwargs))
        runner = self.runner_for(args, kwargs, signature(model, flat, spec))
        with hold(gives_back=True):
            self.activate(runner)

    def __call__(self, *args, **kwargs):
        flat, spec = tree_flatten((args, kwargs))
        runner = self.runner_for(args, kwargs, signature(self.model, flat, spec))
        with hold(gives_back=True):
            self.activate(runner)
            return runner.run(flat)

    def runner_for(self, args, kwargs, key):
        if key not in self.runners:
            self.release()  # measuring needs room
            captured = capture_inference(self.model, args, kwargs)
            with same_random_numbers(self.model):
                self.runners[key] = InferenceRunner(captured, self.settings, self.model, self.admission)
            if self.admission is not None:
                self.admission.introduce(self.runners[key].plan)
        elif self.admission is not None:
            self.admission.tell()
        return self.runners[key]

    def activate(self, runner):
        if self.active is not runner:
            self.release()
        runner.make_ready()
        self.active = runner

    def release(self):
        """Gives the arena back until the next request."""
        if self.active is not None:
            self.active.plan.release()
            self.active = None


class InferenceRunner:
    """Runs one captured forward pass."""

    def __init__(self, captured, settings, model, admission):
        self.captured = captured
        self.device = str(captured.program["device"])
        # Of high priority, so that its kernels go before those of other streams of this process.
        self.stream = torch.cuda.Stream(self.device, priority=-1) if self.device.startswith("cuda") else None
        with self.on_stream():  # cuBLAS has a workspace for each stream: it belongs to what is recorded
            self.plan = InferencePlan(captured, settings, admission=admission)
        self.find_bindings(model)

    def find_bindings(self, model):
        program = self.captured.program
        values = program["values"]
        self.inputs = [(values[v]["storage"], index, values[v]["offset"]) for index, v in self.captured.input_values.items()]
        names = {id(t): n for n, t in [*model.named_buffers(), *model.named_parameters()]}
        self.owned, self.constants = Owned(), []
        for storage, tensor in self.captured.tensors.items():
            if id(tensor) in names:
                self.owned.add(storage, place_of(model, names[id(tensor)]), tensor, program["storages"][storage]["name"])
            elif program["storages"][storage]["role"] != "input":
                self.constants.append((storage, tensor, tensor.storage_offset()))

    def make_ready(self):
        """Inside a hold."""
        self.plan.follow_limit()
        if not self.plan.compiled:
            self.plan.plan()
            self.plan.compile()

    def run(self, flat):
        """Inside a hold."""
        step = self.plan.step
        inputs = [(storage, flat[index], offset) for storage, index, offset in self.inputs]
        self.owned.bind(step)
        step.bind([*inputs, *self.constants])
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
