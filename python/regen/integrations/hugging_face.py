"""A budget for `transformers.Trainer`: `Trainer(..., callbacks=[regen.integrations.hugging_face.Budget("20GiB")])`."""

import warnings
from typing import Any

import torch

from regen._session.report import NotPlanned, PlanReport
from regen.errors import CaptureError, MissingPackageError
from regen.integrations.planned_forward import PlannedForward, checked_options
from regen.options import Budget as Bytes

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError as error:
    raise MissingPackageError("regen.integrations.hugging_face needs transformers, which is not installed: pip install transformers") from error


class Budget(TrainerCallback):
    """Trains the model of a `Trainer` under a byte budget, with the bits of a `Trainer` without it.

        trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[regen.integrations.hugging_face.Budget("20GiB")])
        trainer.train()

    The first training batch is the sample. Evaluation, `generate`, checkpoints and what is saved are those of the plain model, which the
    trainer keeps: only its training passes go through the plan, until training ends. Gradient checkpointing is off meanwhile.

    Args:
        budget: bytes of the device for all of the training, as in `regen.wrap`.
        options: the other options of `regen.wrap` by name.

    Raises:
        OptionError: an option has a value or a name that is not expected.
    """

    def __init__(self, budget: Bytes = None, **options: Any) -> None:
        self.options = checked_options("Budget", budget, options)
        self.planned: PlannedForward | None = None
        self.checkpointed: list[Any] = []  # layers whose gradient checkpointing is off meanwhile

    @property
    def plan(self) -> PlanReport:
        """What the plan in use decided, after the training the last one: `print(budget.plan)`."""
        return NotPlanned() if self.planned is None else self.planned.plan

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: torch.nn.Module | None = None, **others: Any
    ) -> None:
        """The training passes of the model go through a plan from here on.

        Args:
            args: of the trainer.
            state: of the trainer.
            control: of the trainer.
            model: that of the trainer, without what Accelerate has put around it.
            others: not used.

        Raises:
            CaptureError: the trainer spreads the model over several devices or compiles it, or the model is planned already.
        """
        assert model is not None, "Trainer hands its model to every callback"
        self.restore()  # after an exception there was no end
        check_arguments(args)
        self.planned = PlannedForward(model, self.options, self._resume_checkpointing)
        self.checkpointed = without_checkpointing(model)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        """The model is as it was.

        Args:
            args: of the trainer.
            state: of the trainer.
            control: of the trainer.
            others: not used.
        """
        self.restore()

    def restore(self) -> None:
        """Leaves the model as it was before the training, and gives the arena back. To be called after a training that was interrupted."""
        if self.planned is not None:
            self.planned.restore()

    def _resume_checkpointing(self) -> None:
        """In the layers where it was on before the training."""
        for layer in self.checkpointed:
            layer.gradient_checkpointing = True
        self.checkpointed = []


def without_checkpointing(model: torch.nn.Module) -> list[Any]:
    """The plan decides what is recomputed. Returns the layers whose gradient checkpointing was on."""
    layers: list[Any] = [layer for layer in model.modules() if getattr(layer, "gradient_checkpointing", False) is True]
    for layer in layers:
        layer.gradient_checkpointing = False
    if layers:
        warnings.warn("regen: gradient checkpointing is off during this training: the plan decides what is recomputed", stacklevel=3)
    return layers


def check_arguments(arguments: TrainingArguments) -> None:
    """What a trainer does around a model that a plan cannot be inside of."""
    spread = {
        "several GPUs in one process (DataParallel)": arguments.n_gpu > 1, "fsdp": bool(arguments.fsdp), "deepspeed": bool(arguments.deepspeed),
        "torch_compile": bool(arguments.torch_compile)}
    for name, found in spread.items():
        if found:
            raise CaptureError(
                f"Budget: the trainer uses {name}; expected one device for each process (torchrun starts DDP), and a model that is not compiled")


__all__ = ["Budget"]
