"""A budget for Lightning: `Trainer(callbacks=[regen.integrations.lightning.Budget("20GiB")])`."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

import torch

from regen._session.report import NotPlanned, PlanReport
from regen.errors import CaptureError, MissingPackageError, OptionError
from regen.integrations.planned_forward import PlannedForward, checked_options
from regen.options import Budget as Bytes

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    def of_lightning() -> Any:
        """The package that the program uses: there are two by now, and the older one brings the same classes under its own name."""
        names = ("lightning.pytorch", "pytorch_lightning")
        for name in sorted(names, key=lambda name: name not in sys.modules):
            try:
                return importlib.import_module(name)
            except ImportError as error:
                cause = error
        raise MissingPackageError("regen.integrations.lightning needs lightning, which is not installed: pip install lightning") from cause

    Callback = of_lightning().Callback

# Strategies that keep parameters in pieces, or elsewhere. Their modules are not what a plan was made for.
SHARDED = ("FSDP", "DeepSpeed", "ModelParallel", "XLA")


class Budget(Callback):
    """Trains the network of a `LightningModule` under a byte budget, with the bits of a `Trainer` without it.

        trainer = lightning.pytorch.Trainer(callbacks=[regen.integrations.lightning.Budget("20GiB")])
        trainer.fit(module, loader)

    The network is the one child of the module that has parameters, or the one that is named. What `training_step` first gives to it is the
    sample. Loss, metrics, logging and optimizers stay outside of the plan; validation and checkpoints are those of the plain module. The
    module is as it was when `fit` has ended.

    Args:
        budget: bytes of the device for all of the training, as in `regen.wrap`.
        module: name of the network inside the LightningModule ("net", "model.encoder"); None: the only child with parameters.
        options: the other options of `regen.wrap` by name.

    Raises:
        OptionError: an option has a value or a name that is not expected.
    """

    def __init__(self, budget: Bytes = None, module: str | None = None, **options: Any) -> None:
        self.options = checked_options("Budget", budget, options)
        self.module = module
        self.planned: PlannedForward | None = None

    @property
    def plan(self) -> PlanReport:
        """What the plan in use decided, after the training the last one: `print(budget.plan)`."""
        return NotPlanned() if self.planned is None else self.planned.plan

    def on_train_start(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        """The training passes of the network go through a plan from here on.

        Args:
            trainer: of Lightning.
            pl_module: the module that is trained.

        Raises:
            OptionError: it is not clear which child is the network.
            CaptureError: the strategy shards the module.
        """
        strategy = type(trainer.strategy).__name__
        if strategy.startswith(SHARDED):
            raise CaptureError(f"Budget: the trainer's strategy is {strategy}; expected one that keeps the module whole (auto, ddp)")
        self.restore()
        self.planned = PlannedForward(network_of(pl_module, self.module), self.options)

    def on_train_end(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        """The module is as it was.

        Args:
            trainer: of Lightning.
            pl_module: the module that was trained.
        """
        self.restore()

    def on_exception(self, trainer: "Trainer", pl_module: "LightningModule", exception: BaseException) -> None:
        """The module is as it was.

        Args:
            trainer: of Lightning.
            pl_module: the module that was trained.
            exception: that ended the training.
        """
        self.restore()

    def restore(self) -> None:
        """Leaves the network as it was before the training, and gives the arena back."""
        if self.planned is not None:
            self.planned.restore()


def network_of(module: torch.nn.Module, name: str | None) -> torch.nn.Module:
    """The child whose training passes are planned."""
    owners = [child for child, network in module.named_children() if next(network.parameters(), None) is not None]
    if name is None:
        if len(owners) != 1 or any(True for _ in module.parameters(recurse=False)):
            raise OptionError(
                f"Budget(module=None): {type(module).__name__} has parameters in {', '.join(owners) or 'itself'}; expected the name of the network whose "
                "passes are planned, as in Budget(\"20GiB\", module=\"net\")")
        name = owners[0]
    try:
        return module.get_submodule(name)
    except AttributeError:
        raise OptionError(f"Budget(module={name!r}): {type(module).__name__} has no such module; expected one of {', '.join(owners)}") from None


__all__ = ["Budget"]
