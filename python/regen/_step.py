"""`regen.step`: forward pass, loss, backward pass, clipping and update as one plan."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from regen._capture.arguments import flatten_arguments
from regen._capture.capture import SOME_GRADIENTS, Captured, Update, capture_training, check_module, device_of
from regen._capture.gradient_buffers import GradientBuffers
from regen._capture.optimizers import FirstStepDiffers, NoRecipe
from regen._capture.sized_capture import Sizes
from regen._capture.traced.symbols import Symbols
from regen._session.admission import Admission, admission_of
from regen._session.island import Island
from regen._session.job import hold
from regen._session.measured_step import StepMeter
from regen._session.owned import Bindings
from regen._session.report import PlanReport
from regen._session.session import Session
from regen._session.shape_cache import ShapeCache
from regen._session.sized_steps import SizedShapes, SizedSteps, allows_sizes
from regen._session.turns import Turns
from regen._wrap import WrappedModule, signature
from regen.errors import CaptureError, OptionError, OptionTypeError, RegenError, UsageError
from regen.options import Algorithms, Budget, Cache, Link, Options, Size, refuses_old_names


@refuses_old_names
def step(
    model: torch.nn.Module,
    loss_fn: Callable[[Any, Any], torch.Tensor] | None,
    optimizer: torch.optim.Optimizer,
    args: Any,
    budget: Budget = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    clip_grad_norm: float | None = None,
    clip_grad_value: float | None = None,
    accumulate: int = 1,
    scaler: torch.amp.GradScaler | None = None,
    early: bool = True,
    planner: str = "auto",
    host_budget: Size | None = None,
    time_limit: float = 0.0,
    work_limit: int = 0,
    improve: bool | float | None = None,
    plan_file: str | os.PathLike[str] | None = None,
    link: Link | None = None,
    cache: Cache = None,
    algorithms: Algorithms = "default",
    cuda_graphs: bool = False,
    releasable: bool = False,
    quantum: float = 1e-3,
    debug: bool = False,
) -> "TrainingStep":
    """Plans a whole training step: forward pass, loss, backward pass, clipping and update.

        step = regen.step(model, loss_fn, optimizer, (x, y), budget="6GiB")
        for x, y in batches: loss = step(x, y)

    The loss is `loss_fn(model(*args[:-1]), args[-1])`, or what the model returns when `loss_fn` is None: a number, or something with a
    `loss`. Gradients exist only inside the step, so `.grad` stays as it is. One thread at a time may call it: a call beside another one is
    refused, since the order of their updates would be left to chance.

    A function of the model that cannot be captured (it reads what the model computes) runs as it is between planned parts, as an island. Which
    parameters it gives a gradient may depend on the batch, so the optimizer is an island then, too.

    The optimizer's step is part of the plan where it is a fixed list of operators on each parameter, as in all of `torch.optim` except Adafactor and
    SparseAdam, and in most optimizers written by hand; numbers and options are read anew before every step, so schedulers work. Any other runs
    as it is after the planned part of the step, as an island: its gradients then exist together, its state and scratch are measured and belong
    to the budget, and `print(step.plan)` says why.

    Args:
        model: the module to train.
        loss_fn: a function of the model's output and the last argument; None: the model returns the loss.
        optimizer: over parameters of the model; LBFGS, which evaluates the model itself, excepted. State that it makes at its first step is made
            now.
        args: a sample batch.
        budget: bytes of the device for all of the step: "6GiB", 16e9, a fraction of the unplanned peak such as 0.5, or "auto" (what is
            free). None: what a job of `regen share run` was admitted with.
        kwargs: further inputs of the model by name, of the sample batch.
        clip_grad_norm: clip the norm of all gradients, as `torch.nn.utils.clip_grad_norm_` does.
        clip_grad_value: clip every gradient, as `torch.nn.utils.clip_grad_value_` does.
        accumulate: batches for each update. Every call returns its batch's loss and adds its gradients, as `loss.backward()` does; every
            `accumulate`-th one clips and updates too. Nothing is divided: for the mean over the batches, let `loss_fn` divide by `accumulate`.
        scaler: scales the loss, as `scaler.scale(loss).backward()`, `scaler.unscale_(optimizer)` where gradients are clipped,
            `scaler.step(optimizer)` and `scaler.update()` do. The update is an island then, because the scaler decides from the gradients whether
            there is one.
        early: update each parameter as soon as its old value is not read any more; False: all at the end.
        planner: name of the planner, or several with commas between them: the best plan counts.
        host_budget: bytes of the host for tensors that are moved there; 0: none are moved; None: no limit.
        time_limit: seconds for the first plan; 0: 5 s, or 1 s where a search runs beside the training.
        work_limit: counted work for the first plan, which gives the same plan on every machine; 0: not counted.
        improve: search for a better plan while the steps run: True (20 s), False, or seconds; None: True on a GPU.
        plan_file: a plan that was written by `save_plan`, in place of a search.
        link: bytes per second to the host, to the device and both together; None: measured.
        cache: folder for measurements and plans; None: REGEN_CACHE or ~/.cache/regen; False: none.
        algorithms: "default": those of plain PyTorch, so its bits; "any": faster or smaller ones too.
        cuda_graphs: on a GPU, launch stretches that are the same in every step as a whole.
        releasable: the arena's memory can be given back and taken again: `spill()`, `restore()`.
        quantum: of a job that shares its device: seconds of work, at most, before it gives way to another job (or two ops).
        debug: fill released memory with nonsense and check where every result lies.

    Returns:
        A function of a batch that trains the model by one step and returns the loss.

    Raises:
        BudgetError: no plan keeps the budget; the message has the reason and the least budget that works.
        CaptureError: the model, its inputs or its optimizer cannot be captured.
        OptionError: an option has a value that is not expected.
    """
    options = Options(
        budget=budget, planner=planner, host_budget=host_budget, time_limit=time_limit, work_limit=work_limit,
        improve=improve, plan_file=plan_file, link=link, cache=cache,
        algorithms=algorithms, cuda_graphs=cuda_graphs,
        releasable=releasable, quantum=quantum, debug=debug)
    if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
        raise OptionError(f"accumulate={accumulate!r}; expected the number of batches for each update, 1 or more")
    if isinstance(model, WrappedModule):
        raise CaptureError(f"cannot plan a step of {type(model).__name__}: it is wrapped; expected the plain module that was given to regen.wrap")
    check_module(model, type(model).__name__)
    for name, value in {"clip_grad_norm": clip_grad_norm, "clip_grad_value": clip_grad_value}.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0):
            raise OptionError(f"{name}={value!r}; expected a number, 0 or more, or None")
    if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
        raise OptionTypeError(f"scaler={scaler!r}; expected a torch.amp.GradScaler or None")
    return TrainingStep(
        model, loss_fn, optimizer, args, options, StepCapture(clip_grad_norm, clip_grad_value, early, accumulate, scaler), dict(kwargs or {}))


class StepCapture(NamedTuple):
    """What of the options belongs to the captured step, not to its plan."""

    clip_grad_norm: float | None
    clip_grad_value: float | None
    early: bool
    accumulate: int = 1
    scaler: torch.amp.GradScaler | None = None

    @property
    def clips(self) -> bool:
        return self.clip_grad_norm is not None or self.clip_grad_value is not None


class TrainingStep(ShapeCache["ShapedStep"]):
    """A planned training step: plans for the shapes of batches, one arena at a time.

    Called with a batch, it trains the model by one step and returns the loss. Made by `regen.step`.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        loss_fn: Callable[[Any, Any], torch.Tensor] | None,
        optimizer: torch.optim.Optimizer,
        args: Any,
        options: Options,
        capture_options: StepCapture,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(Turns("regen.step"), admission_of(self))
        self.model, self.loss_fn, self.optimizer = model, loss_fn, optimizer
        self.options = options if self.admission is None else self.admission.options_of(options)
        self.capture_options = capture_options
        self.fraction_of: int | None = None
        self.done = 0  # batches since the last update
        self.summed: dict[int, torch.Tensor] = {}  # parameters that have a gradient from these
        self.island = Island(optimizer, GradientBuffers(capture_options.accumulate > 1), device_of(model))
        self.sized = SizedShapes(self)
        self.prepare(args, kwargs or {})

    @property
    def regen(self) -> "TrainingStep":
        """Itself: `step.regen.plan` as `model.regen.plan`."""
        return self

    def prepare(self, args: Any, kwargs: dict[str, Any]) -> None:
        """Plans the step of a sample batch, and takes the arena."""
        args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        try:
            if self.capture_options.accumulate > 1:  # whether it fits is known now
                self.shape_for(args, kwargs, last=True)
            shaped, _ = self.shape_for(args, kwargs)
            with hold():
                self.activate(shaped)
        except Exception:
            for shaped in self.shapes.values():
                shaped.let_go()
            raise

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Trains the model by one step.

        Args:
            args: a batch, as the sample was. One that is larger than all before is planned when it first comes; sizes below share its plan.
            kwargs: by name.

        Returns:
            The loss.

        Raises:
            BudgetError: no plan keeps the budget for a batch of this shape.
            UsageError: a parameter or the optimizer's state is not what it was; or another thread is inside, and nothing was done.
        """
        with self.turns.step():
            return self._train(args, kwargs)

    def _train(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        shaped, inputs = self.shape_for(args, kwargs)
        if shaped.captured.updates is not None and not self.summed.keys() <= {id(p) for p in shaped.captured.trained}:
            shaped, inputs = self.shape_for(args, kwargs, last=False)  # earlier batches have trained more: the update is for those too
        with hold():
            self.activate(shaped)
            try:
                loss = shaped.run(inputs, self._scale())
            except Exception:
                self._start_afresh()
                raise
            self.done += 1
            self.summed |= {id(p): p for p in shaped.with_gradient()}
            if self.done == self.capture_options.accumulate:
                summed = self._start_afresh(clear=False)
                if shaped.captured.updates is None:
                    self._update_beside(shaped, loss, summed)
        return loss

    def _start_afresh(self, clear: bool = True) -> list[torch.Tensor]:
        """The next batch is the first of those for an update. Returns the parameters that have a gradient. `clear`: gradients so far are lost."""
        summed = list(self.summed.values())
        self.done, self.summed = 0, {}
        if clear:
            self.island.buffers.clear()
        return summed

    # Updates beside the plan.

    def _scale(self) -> float | None:
        """Of the loss."""
        scaler = self.capture_options.scaler
        return None if scaler is None else float(scaler.get_scale())

    def _update_beside(self, shaped: "ShapedStep", loss: torch.Tensor, summed: list[torch.Tensor]) -> None:
        """The optimizer's own step, on the gradients that the program has left."""
        for other in self.shapes.values():
            if other.captured.updates is not None:
                other.captured.updates.undo(self.optimizer)  # its first step makes the state
        if not self.island.known:
            shaped.release()  # what it takes is not known yet, and may need the arena's room
        self.island.step(summed, lambda: self._plain_update(shaped, loss))

    def _plain_update(self, shaped: "ShapedStep", loss: torch.Tensor) -> None:
        scaler, options = self.capture_options.scaler, self.capture_options
        if scaler is not None:
            scaler.scale(loss)  # makes what it keeps on the device
            if options.clips:
                scaler.unscale_(self.optimizer)
        if not shaped.captured.clips:
            if options.clip_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), options.clip_grad_norm)
            if options.clip_grad_value is not None:
                torch.nn.utils.clip_grad_value_(self.model.parameters(), options.clip_grad_value)
        if scaler is None:
            self.optimizer.step()
        else:
            scaler.step(self.optimizer)
            scaler.update()

    def pack_state(self) -> None:
        """Where a job's state may have to leave: into one arena."""
        if self.admission is not None:
            self.admission.pack(self.model, self.optimizer)

    def spill(self) -> int:
        """Gives the arena's memory back to the device and keeps its address, its plan and what is live in it.

        Needs `releasable=True`.

        Returns:
            The bytes that are free until the next step, or until `restore()`.

        Raises:
            Error: the step is not releasable.
        """
        with self.turns.question():
            return self.active.session.spill() if self.active is not None else 0

    def restore(self) -> None:
        """Takes the memory again.

        Raises:
            BudgetError: there is no room now; it may be tried again.
        """
        with self.turns.question():
            if self.active is not None:
                self.active.session.restore()

    def shape_for(self, args: tuple[Any, ...], kwargs: dict[str, Any], last: bool | None = None) -> tuple["ShapedStep", list[Any]]:
        """(the captured step for a batch, the program's inputs). `last`: of the batches for an update; None: as the calls are counted."""
        last = self.done + 1 == self.capture_options.accumulate if last is None else last
        flat, spec = flatten_arguments(args, kwargs)
        key = *signature(self.model, flat, spec), last
        if self.serves_sizes():
            found = self.sized.find(key, flat, lambda symbols: self.capture(args, kwargs, last, symbols), self.shapes)
            if found is not None:
                return found
        return self.shape_of(key, lambda: self.level(self.capture(args, kwargs, last)), flat)

    def serves_sizes(self) -> bool:
        """Whether batches of other sizes may run under a plan: not where several programs share gradients."""
        options = self.capture_options
        return self.admission is None and options.accumulate == 1 and options.scaler is None and allows_sizes(self.options)

    def capture(self, args: tuple[Any, ...], kwargs: dict[str, Any], last: bool, symbols: Symbols | None = None) -> Captured:
        """Of a batch; `last`: of those for an update; `symbols`: of sizes that vary."""
        options = self.capture_options
        update = Update(
            options.clip_grad_norm, options.clip_grad_value, options.early, clips=last, updates=last,
            buffers=self.island.buffers if options.accumulate > 1 else None)
        first_only = False
        if not last or options.scaler is not None:
            update = self._without_update(update, "its GradScaler reads the gradients" if last else "")
            captured = capture_training(self.model, self.loss_fn, self.optimizer, args, kwargs, update, symbols=symbols)
        else:
            try:
                captured = capture_training(self.model, self.loss_fn, self.optimizer, args, kwargs, update, symbols=symbols)
            except NoRecipe as reason:
                first_only = isinstance(reason, FirstStepDiffers)
                update = self._without_update(update, str(reason))
                captured = capture_training(self.model, self.loss_fn, self.optimizer, args, kwargs, update, symbols=symbols)
        captured.clips, captured.first_only = update.clips, first_only
        return captured

    def _without_update(self, update: Update, reason: str) -> Update:
        """The gradients are left in buffers. A scaler has to see them before they are clipped."""
        self.island.reason = reason or self.island.reason
        beside = self.capture_options.scaler is not None or reason == SOME_GRADIENTS
        return update._replace(updates=False, clips=update.clips and not beside, buffers=self.island.buffers, scaled=self.capture_options.scaler is not None)

    # Plans for batches of many sizes: sized_steps.Maker.

    def level(self, captured: Captured) -> "ShapedStep":
        """Records."""
        made = ShapedStep(captured, self.options, self.model, self.optimizer, self.fraction_of, self.admission, self.island)
        self.fraction_of = made.session.fraction_of  # the first sample's, also for other shapes
        return made

    def member(self, steps: "SizedSteps[ShapedStep]", sizes: Sizes, captured: Captured) -> "ShapedStep":
        """For batches of other sizes than those of a plan."""
        return SizedStep(steps, sizes, captured)

    def entries(self) -> list["ShapedStep"]:
        """Whatever has a plan."""
        return [*super().entries(), *(level.entry for level in self.sized.levels())]

    def make_room(self) -> None:
        """No other plan holds an arena, or searches."""
        self.release()
        self.stop_searches()


class ShapedStep:
    """Runs one captured step."""

    def __init__(
        self,
        captured: Captured,
        options: Options,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        fraction_of: int | None,
        admission: Admission | None,
        island: Island,
    ) -> None:
        """`island`: where the optimizer runs that is no part of the program."""
        self.captured = captured
        self.island = island
        self.model, self.optimizer = model, optimizer
        self.session = Session(captured, options, fraction_of=fraction_of, admission=admission)
        self.meter = StepMeter(self.session.device)
        self.steps = 0
        self.share: Session | None = None  # whose arena is taken
        self.present = sum(s["bytes"] for s in captured.program["storages"] if s["role"] != "computed")
        self.bindings = Bindings(captured, model, OptimizerState(optimizer), same=True)

    def let_go(self) -> None:
        """No step will be taken: nothing of it stays in memory, though the traceback of the error refers to this object."""
        if self.captured.updates is not None:
            self.captured.updates.undo(self.optimizer)
        self.captured.tensors = {}
        self.bindings.let_go()

    def admit(self, flat: Sequence[Any]) -> list[Any] | None:
        """The program's inputs for a batch; None: it needs another capture, or the optimizer's coming step does."""
        if self.captured.updates is not None and self.captured.updates.look(self.optimizer) is None:
            return None
        if self.captured.first_only and all(self.optimizer.state.get(p) for p in self.updated()):
            return None
        if not self.captured.is_for(self.model):
            return None
        return self.captured.with_derived(flat, lambda storage: self.bindings.tensor_of(self.captured, storage))

    def with_gradient(self) -> list[torch.Tensor]:
        """Parameters that got one in the last step."""
        optional = self.captured.optional
        if not optional:
            return list(self.captured.trained)
        missing = {id(p) for name, p in self.model.named_parameters() if name in optional and self.captured.is_missing(name)}
        return [p for p in self.captured.trained if id(p) not in missing]

    def updated(self) -> list[torch.Tensor]:
        """Parameters that the optimizer changes."""
        members = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        return [p for p in self.captured.trained if id(p) in members]

    def make_room(self) -> None:
        """Plans again if what the optimizer turned out to take does not fit beside the plan."""
        room = self.island.room() if self.captured.updates is None else 0
        if self.session.caller_bytes != room:
            self.session.caller_bytes = room
            if self.session.compiled and not self.session.fits:
                self.session.release()

    def look_for_better_plan(self) -> None:
        """Found by the search beside the training."""
        self.session.take_better_plan(self.steps + 1)

    def make_ready(self) -> None:
        """Inside a hold."""
        self.make_room()
        self.session.follow_job()
        self.look_for_better_plan()
        if not self.session.compiled:
            self.session.plan()
            self.session.compile(self.share)
            self.memory = self.session.memory()
            self.meter.start_afresh()
        self.session.restore()
        self.session.search_beside()

    def release(self) -> None:
        self.session.release()

    def report(self) -> PlanReport:
        peak, beside = self.meter.peak_bytes, self.island.room() if self.captured.updates is None else 0
        text = self.island.text if self.captured.updates is None and self.island.reason else ""
        return PlanReport(self.session, None if peak is None else peak + beside, self.meter.seconds, text)

    def run(self, flat: list[Any], scale: float | None = None) -> torch.Tensor:
        """Inside a hold. `flat`: the program's inputs. `scale`: of the loss."""
        step = self.session
        self.steps += 1
        step.run_first(lambda: self.begin(flat, scale), self.make_ready)
        if self.captured.updates is not None:
            self.captured.advance(self.optimizer)
            self.captured.updates.look(self.optimizer)  # most likely the next step's numbers: found while the device works
        results = {r: step.result(r) for r in self.captured.output_results}
        if self.captured.changes_model():
            self.captured.assign(self.model, results, flat)
        self.meter.end()
        return results[self.captured.output_results[0]]


    def begin(self, flat: list[Any], scale: float | None) -> None:
        """Tensors and numbers of the coming step."""
        self.bindings.bind(self.session, flat)
        if scale is not None:
            self.session.set_scalars([scale])
        elif self.captured.program["scalars"]:
            self.session.set_scalars(self.captured.scalars(self.optimizer))
        self.meter.begin(self.present + self.memory.arena_bytes + self.memory.saved_state_bytes, self.memory.arena_bytes)


class SizedStep(ShapedStep):
    """The batches of certain sizes, under a plan for these or larger ones."""

    def __init__(self, steps: SizedSteps[ShapedStep], sizes: Sizes, captured: Captured) -> None:
        self.holder, self.sizes = steps, sizes
        self.__dict__.update({**vars(steps.level_for(sizes).entry), **self.__dict__})
        captured.tensors, captured.state_of, captured.updates = self.captured.tensors, self.captured.state_of, self.captured.updates
        self.captured = captured
        self.steps = 0
        self.present = sum(s["bytes"] for s in captured.program["storages"] if s["role"] != "computed")

    def make_ready(self) -> None:
        """Inside a hold."""
        entry = self.holder.make_ready(self.sizes).entry
        self.session, self.memory, self.meter = entry.session, entry.memory, entry.meter

    def release(self) -> None:
        self.holder.release()

    def run(self, flat: list[Any], scale: float | None = None) -> torch.Tensor:
        """Inside a hold. `flat`: the program's inputs."""
        try:
            return super().run(flat, scale)
        except RegenError:
            self.holder.refuse(self.sizes)
            raise


class OptimizerState:
    """Where a loaded checkpoint puts its tensors too."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def __getitem__(self, place: tuple[torch.Tensor, str]) -> Any:
        parameter, key = place
        found = self.optimizer.state[parameter].get(key)
        if found is None:
            raise UsageError(
                f"regen: the optimizer has no '{key}' for a parameter of shape {tuple(parameter.shape)} any more; expected the state of "
                "an optimizer that has made a step, or regen.step again")
        return found
