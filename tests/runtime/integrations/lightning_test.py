"""`Trainer(callbacks=[Budget(...)])` of Lightning: the bits of the trainer without it."""

import copy
import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F

pl = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")

import regen
from regen._check import same_bits
from regen.integrations.planned_forward import PlannedForward
from small_training import Net


class Classifier(pl.LightningModule):
    """As users write them: a network, a loss that has no parameters, logging."""

    def __init__(self, seed=0, dropout=0.1):
        super().__init__()
        torch.manual_seed(seed)
        self.net = Net(dropout=dropout)
        self.loss = nn.CrossEntropyLoss()
        self.seen, self.watched = [], []

    def training_step(self, batch, index):
        loss = self.loss(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        self.seen.append(loss.detach().clone())
        self.watched.append(type(vars(self.net).get("forward")).__name__)
        return loss

    def validation_step(self, batch, index):
        self.log("val", self.loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2)}


def loader(rows=40, shuffle=False):
    """The last batch is a smaller one."""
    generator = torch.Generator().manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.randn(rows, 8, generator=generator), torch.randint(4, (rows,), generator=generator))
    return torch.utils.data.DataLoader(data, batch_size=16, shuffle=shuffle)


def budget_of(budget=0.9, **options):
    return regen.integrations.lightning.Budget(budget, work_limit=20_000, **options)


def fit(module, folder, callbacks=(), resume=None, **options):
    trainer = pl.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder, callbacks=list(callbacks),
        **(dict(max_epochs=2, enable_checkpointing=False, num_sanity_val_steps=1) | options))
    torch.manual_seed(3)
    trainer.fit(module, loader(), loader(16), ckpt_path=resume, weights_only=False)
    module.left = dict(module.state_dict()) | {"generator": torch.get_rng_state()}
    for index, state in trainer.optimizers[0].state_dict()["state"].items():
        module.left |= {f"optimizer {index} {key}": torch.as_tensor(value) for key, value in state.items()}
    return trainer


def assert_same(ours, theirs):
    assert ours.left.keys() == theirs.left.keys()
    for name in theirs.left:
        assert same_bits(ours.left[name], theirs.left[name]), f"{name} differs"
    assert len(ours.seen) == len(theirs.seen) and all(same_bits(a, b) for a, b in zip(ours.seen, theirs.seen))


# Whole batches and the last one, which is smaller: under one plan for both sizes, or one plan each.
ONE, EACH = (0, 1), (2, 0)


@pytest.mark.parametrize(("options", "plans"), [
    (dict(accumulate_grad_batches=2, gradient_clip_val=0.5), ONE), (dict(precision="bf16-mixed"), EACH),
    (dict(gradient_clip_val=0.1, gradient_clip_algorithm="value"), ONE)])
def test_a_trainer_gains_one_callback(options, plans, tmp_path):
    plain, module = Classifier(), Classifier()
    theirs = fit(plain, tmp_path / "plain", **options)
    ours = fit(module, tmp_path / "budget", [budget := budget_of()], **options)
    assert_same(module, plain)
    assert ours.callback_metrics.keys() == theirs.callback_metrics.keys() == {"loss", "val"}
    assert all(torch.equal(ours.callback_metrics[name], theirs.callback_metrics[name]) for name in theirs.callback_metrics)
    assert set(module.watched) == {"PlannedForward"} and "forward" not in vars(module.net)
    sessions = budget.planned.sessions
    assert (sessions.passes, len(sessions.shapes), len(sessions.sized.levels())) == (6, *plans)
    assert "predicted" in str(budget.plan)


def test_a_resumed_training_is_an_uninterrupted_one(tmp_path):
    """Without dropout: Lightning's checkpoints have no random numbers."""
    plain, module, other = Classifier(dropout=0), Classifier(dropout=0), Classifier(seed=5, dropout=0)
    checkpoint = pl.callbacks.ModelCheckpoint(dirpath=tmp_path / "kept", save_top_k=-1, every_n_epochs=1)
    fit(plain, tmp_path / "plain")
    fit(module, tmp_path / "budget", [budget_of(), checkpoint], enable_checkpointing=True)
    assert_same(module, plain)
    kept = tmp_path / "kept" / "epoch=0-step=3.ckpt"
    assert list(torch.load(kept, weights_only=False)["state_dict"]) == list(plain.state_dict())
    fit(other, tmp_path / "resumed", [budget := budget_of()], resume=kept)
    assert budget.planned.sessions.passes == 3
    other.seen = [*module.seen[:3], *other.seen]
    del other.left["generator"], plain.left["generator"]  # the loader draws a seed in each epoch
    assert_same(other, plain)


class TwoNetworks(Classifier):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 4)

    def training_step(self, batch, index):
        self.seen.append(F.cross_entropy(self.head(self.net(batch[0])), batch[1]))
        return self.seen[-1]


def test_the_network_is_named(tmp_path):
    plain, module = TwoNetworks(), TwoNetworks()
    fit(plain, tmp_path / "plain", max_epochs=1)
    fit(module, tmp_path / "budget", [budget := budget_of(module="net")], max_epochs=1)
    assert_same(module, plain)
    assert budget.planned.model is module.net
    for name, message in ((None, "has parameters in net, head; expected the name"), ("body", "no such module; expected one of net, head")):
        with pytest.raises(regen.OptionError, match=message):
            fit(TwoNetworks(), tmp_path, [budget_of(module=name)], max_epochs=1)


def test_a_strategy_that_shards_is_refused():
    trainer = types.SimpleNamespace(strategy=type("FSDPStrategy", (), {})())
    with pytest.raises(regen.CaptureError, match="strategy is FSDPStrategy; expected one that keeps the module whole"):
        budget_of().on_train_start(trainer, Classifier())


def test_after_an_error_the_module_is_plain(tmp_path):
    module = Classifier()
    class Stop(pl.Callback):
        def on_train_batch_end(self, trainer, module, *others):
            assert isinstance(module.net.forward, PlannedForward) and type(copy.deepcopy(module.net).forward) is not PlannedForward
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fit(module, tmp_path, [budget := budget_of(), Stop()], max_epochs=1)
    assert "forward" not in vars(module.net) and budget.planned.sessions.active is None
