"""`regen.share.infer`: a model's forward pass under a plan, for requests of any number of threads."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from regen._capture.arguments import ArgumentSpec, flatten_arguments
from regen._capture.capture import Captured, capture_inference
from regen._session.admission import Admission, admission_of
from regen._session.job import hold, job
from regen._session.owned import Bindings
from regen._session.report import PlanReport
from regen._session.session import Session
from regen._session.shape_cache import ShapeCache
from regen._session.turns import Turns
from regen._wrap import same_random_numbers, signature
from regen.errors import OptionError
from regen.options import Algorithms, Budget, Cache, Link, Options, Size, refuses_old_names


@refuses_old_names
def infer(
    model: torch.nn.Module,
    args: Any,
    budget: Budget = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    planner: str | None = None,
    host_budget: Size | None = None,
    time_limit: float = 0.0,
    work_limit: int = 0,
    improve: bool | float | None = False,
    plan_file: str | os.PathLike[str] | None = None,
    link: Link | None = None,
    cache: Cache = None,
    algorithms: Algorithms = "default",
    cuda_graphs: bool = False,
    releasable: bool = False,
    quantum: float = 1e-3,
    debug: bool = False,
) -> "Inference":
    """Plans a model's forward pass without gradients, for requests.

        predict = regen.share.infer(model.eval(), (x,))
        y = predict(x)

    A job of `regen share run` has the device from the beginning of a request until its results are complete, and no longer; another
    program runs at once. It may be called from any number of threads: requests are answered one after the other, in the order in which
    they came, each with its own results.

    Args:
        model: a module in evaluation mode.
        args: a sample request.
        budget: bytes of the device as in `regen.step`. None: what the job was admitted with; in another program nothing is recomputed or
            moved.
        kwargs: further sample inputs by name.
        planner: name of the planner, or several with commas between them; None: "keep_all" without a budget, else "auto".
        host_budget: bytes of the host for tensors that are moved there; 0: none are moved; None: no limit.
        time_limit: seconds for the first plan; 0: 5 s, or 1 s where a search runs beside the training.
        work_limit: counted work for the first plan, which gives the same plan on every machine; 0: not counted.
        improve: search for a better plan while requests are served: True (20 s), False, or seconds; None: True on a GPU.
        plan_file: a plan that was written by `save_plan`, in place of a search.
        link: bytes per second to the host, to the device and both together; None: measured.
        cache: folder for measurements and plans; None: REGEN_CACHE or ~/.cache/regen; False: none.
        algorithms: "default": those of plain PyTorch, so its bits; "any": faster or smaller ones too.
        cuda_graphs: on a GPU, launch stretches that are the same in every step as a whole.
        releasable: the arena's memory can be given back and taken again: `spill()`, `restore()`.
        quantum: of a job that shares its device: seconds of work, at most, before it gives way to another job (or two ops).
        debug: fill released memory with nonsense and check where every result lies.

    Returns:
        A function of a request that returns what `model(*args, **kwargs)` returns, bit for bit.

    Raises:
        BudgetError: no plan keeps the budget; the message has the reason and the least budget that works.
        CaptureError: the model or its inputs cannot be captured.
        OptionError: an option has a value that is not expected, or the model is in training mode.
    """
    if planner is None:
        planner = "keep_all" if budget is None and job() is None else "auto"
    options = Options(
        budget=budget, planner=planner, host_budget=host_budget, time_limit=time_limit, work_limit=work_limit,
        improve=improve, plan_file=plan_file, link=link, cache=cache,
        algorithms=algorithms, cuda_graphs=cuda_graphs,
        releasable=releasable, quantum=quantum, debug=debug)
    return Inference(model, args, dict(kwargs or {}), options)


class InferenceSession(Session):
    """A budget may be left out."""

    needs_budget = False


class Inference(ShapeCache["ShapedInference"]):
    """A planned forward pass: one session for each shape of a request, of which one holds the arena. Made by `regen.share.infer`."""

    def __init__(self, model: torch.nn.Module, args: Any, kwargs: dict[str, Any], options: Options) -> None:
        if model.training:
            raise OptionError(f"regen.share.infer: {type(model).__name__} is in training mode; expected model.eval()")
        super().__init__(Turns("regen.share.infer"), admission_of(self, deepest="spill"))
        self.model = model
        self.options = options if self.admission is None else self.admission.options_of(options)
        args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        shaped, _ = self.shape_for(args, kwargs, *flatten_arguments(args, kwargs))
        with hold(gives_back=True):
            self.activate(shaped)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answers one request.

        Args:
            args: as the sample was. A request of another shape is planned when it first comes.
            kwargs: further inputs by name.

        Returns:
            What the model returns.

        Raises:
            BudgetError: no plan keeps the budget for a request of this shape.
        """
        flat, spec = flatten_arguments(args, kwargs)
        with self.turns.request():
            shaped, inputs = self.shape_for(args, kwargs, flat, spec)
            with hold(gives_back=True):
                self.activate(shaped)
                return shaped.run(inputs)

    def shape_for(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], flat: list[Any], spec: ArgumentSpec
    ) -> tuple["ShapedInference", list[Any]]:
        """(the captured forward pass for a request, the program's inputs)."""
        return self.shape_of(signature(self.model, flat, spec), lambda: self.make_shape(args, kwargs), flat)

    def make_shape(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "ShapedInference":
        """Captures and records."""
        captured = capture_inference(self.model, args, kwargs)
        with same_random_numbers(self.model):
            return ShapedInference(captured, self.options, self.model, self.admission)


class ShapedInference:
    """Runs one captured forward pass."""

    def __init__(self, captured: Captured, options: Options, model: torch.nn.Module, admission: Admission | None) -> None:
        self.captured, self.model = captured, model
        self.device = str(captured.program["device"])
        # Of high priority, so that its kernels go before those of other streams of this process.
        self.stream = torch.cuda.Stream(self.device, priority=-1) if self.device.startswith("cuda") else None
        with self.on_stream():  # cuBLAS has a workspace for each stream: it belongs to what is recorded
            self.session = InferenceSession(captured, options, admission=admission)
        self.bindings = Bindings(captured, model)

    def admit(self, flat: Sequence[Any]) -> list[Any] | None:
        """The program's inputs for a request; None: it needs another capture."""
        if not self.captured.is_for(self.model):
            return None
        return self.captured.with_derived(flat, lambda storage: self.bindings.tensor_of(self.captured, storage))

    def make_ready(self) -> None:
        """Inside a hold."""
        self.session.follow_job()
        if not self.session.compiled:
            self.session.plan()
            self.session.compile()

    def release(self) -> None:
        self.session.release()

    def report(self) -> PlanReport:
        return PlanReport(self.session)

    def run(self, flat: list[Any]) -> Any:
        """Inside a hold."""
        step = self.session
        with self.on_stream():
            step.run_first(lambda: self.bindings.bind(step, flat), self.make_ready)
            results = {r: step.result(r) for r in self.captured.output_results}
        if self.captured.changes_model():
            self.captured.assign(self.model, results, flat)
        return self.captured.rebuild_outputs(results, flat)

    @contextlib.contextmanager
    def on_stream(self) -> Iterator[None]:
        """The work inside comes after what the caller has issued, and is done at the end."""
        if self.stream is None:
            yield
            return
        caller = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(caller)
        with torch.cuda.stream(self.stream):
            yield
        self.stream.synchronize()
