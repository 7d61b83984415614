"""`Trainer(..., callbacks=[Budget(...)])`: an unmodified script gains one argument, and leaves the bits of the script without it."""

import copy
import filecmp
import inspect
import pathlib
import pickle
import sys
import types

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed, which transformers.Trainer needs")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "experiments"))

import transformers as hf

import regen
from frameworks import FAMILIES, assert_same_runs, assert_same_state, budget_of_trainer, build, dataset, history, trained, trainer, twins
from regen.integrations.planned_forward import PlannedForward

WHOLE = dict(max_steps=4, gradient_accumulation_steps=2, max_grad_norm=0.5, eval_strategy="steps", eval_steps=2)


class Watch(hf.TrainerCallback):
    """Notes after each step whether the model's training passes go through a plan."""

    def __init__(self):
        self.steps = []

    def on_step_end(self, args, state, control, model=None, **others):
        planned = vars(model).get("forward")
        self.steps.append(getattr(planned, "sessions", None) is not None and planned.sessions.passes)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_trainer_gains_one_argument(name, tmp_path):
    """Accumulation, clipping, a scheduler, evaluation in between, and a last batch that is smaller."""
    plain, model = twins(build(name))
    budget, watch = budget_of_trainer(0.9), Watch()
    theirs = trained(trainer(name, plain, tmp_path / "plain", **WHOLE))
    ours = trained(trainer(name, model, tmp_path / "budget", [budget, watch], **WHOLE))
    assert_same_runs(ours, theirs)
    assert watch.steps == [2, 4, 6, 8]  # passes that went through a plan
    assert len(budget.planned.sessions.shapes) == 2  # whole batches, and the last of an epoch
    whole, last = (shaped.session for shaped in budget.planned.sessions.shapes.values())
    assert whole.predicted_peak <= whole.gross_budget < whole.unplanned_bytes + whole.caller_bytes  # keeping everything would not fit
    assert budget.plan.session is last and "predicted" in str(budget.plan) and budget.plan.measured_peak <= last.gross_budget
    assert "forward" not in vars(model)


@pytest.mark.parametrize("name", ["gpt2", "vit"])
def test_bf16(name, tmp_path):
    """Accelerate's own forward, which enters autocast, stands on the model already."""
    plain, model = twins(build(name))
    options = dict(max_steps=2, bf16=True)
    theirs = trained(trainer(name, plain, tmp_path / "plain", **options))
    run = trainer(name, model, tmp_path / "budget", [budget := budget_of_trainer(0.9)], **options)
    ours = trained(run)
    assert_same_runs(ours, theirs)
    program = budget.planned.sessions.shapes[next(iter(budget.planned.sessions.shapes))].captured.program
    assert any(value["dtype"] == "bfloat16" for value in program["values"])
    assert run.evaluate()["eval_loss"] == theirs.evaluate()["eval_loss"]
    assert vars(model).keys() == vars(plain).keys() and not isinstance(model.forward, PlannedForward)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: GradScaler of a Trainer")
def test_fp16_on_a_gpu(tmp_path):
    plain, model = twins(build("bert"))
    options = dict(max_steps=3, fp16=True, use_cpu=False)
    theirs = trained(trainer("bert", plain, tmp_path / "plain", **options))
    ours = trained(trainer("bert", model, tmp_path / "budget", [budget_of_trainer(0.9)], **options))
    assert_same_runs(ours, theirs)


def test_a_resumed_training_is_an_uninterrupted_one(tmp_path):
    plain, model, other = *twins(build("gpt2")), build("gpt2", seed=7)
    options = dict(max_steps=4, save_strategy="steps", save_steps=2)
    theirs = trained(trainer("gpt2", plain, tmp_path / "plain", **options))
    trained(trainer("gpt2", model, tmp_path / "budget", [budget_of_trainer(0.9)], **options))
    resumed = trainer("gpt2", other, tmp_path / "resumed", [budget_of_trainer(0.9)], **options)
    ours = trained(resumed, resume_from_checkpoint=str(tmp_path / "budget" / "checkpoint-2"))
    assert history(ours)[:-1] == history(theirs)[:-1]  # the last entry has the mean of the losses since the checkpoint
    assert_same_state(ours.left, theirs.left)


def test_checkpoints_are_those_of_the_plain_model(tmp_path):
    plain, model = twins(build("llama"))
    options = dict(max_steps=2, save_strategy="steps", save_steps=1, bf16=True)
    for folder, network, callbacks in (("plain", plain, []), ("budget", model, [budget_of_trainer(0.9)])):
        trained(trainer("llama", network, tmp_path / folder, callbacks, **options)).save_model()
    files = sorted(str(f.relative_to(tmp_path / "plain")) for f in (tmp_path / "plain").rglob("*") if f.is_file())
    assert files == sorted(str(f.relative_to(tmp_path / "budget")) for f in (tmp_path / "budget").rglob("*") if f.is_file())
    same = [f for f in files if pathlib.Path(f).suffix in (".safetensors", ".pt", ".json") and "trainer_state" not in f]
    _, differ, failed = filecmp.cmpfiles(tmp_path / "plain", tmp_path / "budget", same, shallow=False)
    assert not differ and not failed
    assert {"checkpoint-1/model.safetensors", "checkpoint-1/optimizer.pt", "config.json", "model.safetensors"} <= set(same)
    reloaded = hf.LlamaForCausalLM.from_pretrained(tmp_path / "budget")
    assert torch.equal(reloaded.lm_head.weight, model.lm_head.weight)


class Meanwhile(hf.TrainerCallback):
    """What scripts do with the model between two steps."""

    def __init__(self):
        self.found, self.copies = [], []

    def on_step_end(self, args, state, control, model=None, **others):
        ids = torch.arange(3, 9).unsqueeze(0)
        self.found.append(model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=3, do_sample=False))
        with torch.no_grad():
            self.found.append(model(ids).logits)
        model.train()
        self.copies += [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        self.signature = inspect.signature(model.forward)
        self.names = list(model.state_dict())


def test_between_two_steps_the_model_is_a_plain_one(tmp_path):
    plain, model = twins(build("llama"))
    watched = [Meanwhile(), Meanwhile()]
    theirs = trained(trainer("llama", plain, tmp_path / "plain", [watched[0]], max_steps=2))
    ours = trained(trainer("llama", model, tmp_path / "budget", [budget_of_trainer(0.9), watched[1]], max_steps=2))
    assert_same_runs(ours, theirs)
    assert all(torch.equal(a, b) for a, b in zip(watched[1].found, watched[0].found))
    assert watched[1].signature == watched[0].signature and watched[1].names == watched[0].names
    ids = torch.arange(3, 9).unsqueeze(0)
    for mine, other in zip(watched[1].copies, watched[0].copies):
        assert not isinstance(mine.forward, PlannedForward)
        loss, expected = mine(ids, labels=ids).loss, other(ids, labels=ids).loss
        loss.backward(), expected.backward()
        assert torch.equal(loss, expected) and torch.equal(mine.lm_head.weight.grad, other.lm_head.weight.grad)


def test_gradient_checkpointing_of_the_script_is_off_meanwhile(tmp_path):
    plain, model = twins(build("llama"))
    options = dict(max_steps=2, gradient_checkpointing=True, gradient_checkpointing_kwargs={"every_n_layers": 2})
    theirs = trained(trainer("llama", plain, tmp_path / "plain", **options))
    with pytest.warns(UserWarning, match="gradient checkpointing is off during this training"):
        ours = trained(trainer("llama", model, tmp_path / "budget", [budget_of_trainer(0.9)], **options))
    assert_same_runs(ours, theirs)
    assert [layer.gradient_checkpointing for layer in model.model.layers] == [True, False]


def test_a_wrapped_model_needs_no_sample(tmp_path):
    """Columns are found by the signature of the model's own forward."""
    plain, model = twins(build("bert"))
    data = [{**row, "unused": 1} for row in dataset("bert")]
    theirs = trained(trainer("bert", plain, tmp_path / "plain", data=data, max_steps=3))
    wrapped = regen.wrap(model, budget=0.9, work_limit=20_000)
    run = trainer("bert", wrapped, tmp_path / "wrapped", data=data, max_steps=3)
    assert_same_runs(trained(run), theirs)
    assert isinstance(wrapped, hf.BertForMaskedLM) and wrapped.regen.passes == 3
    run._set_signature_columns_if_needed()
    theirs._set_signature_columns_if_needed()
    assert run._signature_columns == theirs._signature_columns


def test_the_same_trainer_trains_again(tmp_path):
    plain, model = twins(build("gpt2"))
    runs = [trainer("gpt2", plain, tmp_path / "plain", max_steps=2), trainer("gpt2", model, tmp_path / "budget", [budget_of_trainer(0.9)], max_steps=2)]
    for _ in range(2):
        theirs, ours = (trained(run, seed=5) for run in runs)
        assert_same_runs(ours, theirs)


class Weighted(hf.Trainer):
    """The example of a loss of one's own in the documentation of transformers."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.get("labels")
        outputs = model(**inputs)
        loss = torch.nn.functional.cross_entropy(outputs.get("logits"), labels, weight=torch.tensor([1.0, 2.0, 3.0, 4.0]))
        return (loss, outputs) if return_outputs else loss


@pytest.mark.parametrize("options", [dict(kind=Weighted), dict(kind=Weighted, bf16=True), dict(label_smoothing_factor=0.1)])
def test_a_loss_made_of_the_logits(options, tmp_path):
    """Smaller last batch included: what the first pass has shown counts for all shapes."""
    plain, model = twins(build("vit"))
    theirs = trained(trainer("vit", plain, tmp_path / "plain", max_steps=5, **options))
    ours = trained(trainer("vit", model, tmp_path / "budget", [budget := budget_of_trainer(0.95)], max_steps=5, **options))
    assert_same_runs(ours, theirs)
    assert len(budget.planned.sessions.shapes) == (3 if "kind" in options else 2)  # the first pass of a loss of one's own is captured twice


# What goes wrong.

def test_a_budget_that_cannot_be_kept_leaves_a_plain_model(tmp_path):
    plain, model = twins(build("gpt2"))
    run = trainer("gpt2", model, tmp_path / "budget", [budget := budget_of_trainer("20KiB")], max_steps=2, gradient_checkpointing=True)
    with pytest.raises(regen.BudgetError, match="no plan") as error, pytest.warns(UserWarning, match="gradient checkpointing is off"):
        run.train()
    assert model.is_gradient_checkpointing
    model.gradient_checkpointing_disable(), model.disable_input_require_grads()
    assert "\n" not in str(error.value)
    assert "forward" not in vars(model) and str(budget.plan).startswith("no plan is in use: no step has been planned yet")
    assert_same_runs(trained(trainer("gpt2", model, tmp_path / "again", max_steps=2)), trained(trainer("gpt2", plain, tmp_path / "plain", max_steps=2)))


class Stop(hf.TrainerCallback):
    def on_step_end(self, args, state, control, **others):
        raise KeyboardInterrupt


def test_an_interrupted_training_is_left_behind(tmp_path):
    model = build("gpt2")
    run = trainer("gpt2", model, tmp_path, [budget := budget_of_trainer(0.9), Stop()], max_steps=2)
    for _ in range(2):  # the next training begins from a plain model
        with pytest.raises(KeyboardInterrupt):
            run.train()
    assert isinstance(model.forward, PlannedForward)
    budget.restore()
    assert "forward" not in vars(model) and budget.planned.sessions.active is None


@pytest.mark.parametrize("options, message", [
    (dict(budget="much"), "much"),
    (dict(budget=1), "budget=1; expected bytes"),
    (dict(budget=None), "budget=None; expected bytes"),
    (dict(budget=0.5, plannr="auto"), "Budget\\(plannr=...\\): no such option; expected one of algorithms"),
    (dict(budget=0.5, window=1e-3), "the option is called 'quantum' now"),
    (dict(budget=0.5, quantum=7), "quantum=7; expected seconds")])
def test_options_are_checked_at_once(options, message):
    with pytest.raises(regen.Error, match=message) as error:
        regen.integrations.hugging_face.Budget(**options)
    assert "\n" not in str(error.value)


def test_a_model_is_planned_once(tmp_path):
    run = trainer("gpt2", build("gpt2"), tmp_path, [budget_of_trainer(0.9), budget_of_trainer(0.8)], max_steps=1)
    with pytest.raises(regen.CaptureError, match="planned already; expected one budget"):
        run.train()
    assert isinstance(run.model.forward, PlannedForward)  # by the first of the two
    wrapped = regen.wrap(build("gpt2"), budget=0.9, work_limit=20_000)
    with pytest.raises(regen.CaptureError, match="regen.wrap has wrapped it already"):
        trainer("gpt2", wrapped, tmp_path, [budget_of_trainer(0.9)], max_steps=1).train()
    with pytest.raises(regen.CaptureError, match="torch.compile has compiled it"):
        PlannedForward(torch.compile(torch.nn.Linear(2, 2)), {"budget": 0.9})


@pytest.mark.parametrize("found", [dict(n_gpu=2), dict(fsdp=["full_shard"]), dict(deepspeed="zero.json")])
def test_a_trainer_that_spreads_its_model_is_refused(found):
    arguments = types.SimpleNamespace(**(dict(n_gpu=1, fsdp=[], deepspeed=None, torch_compile=False) | found))
    budget, model = budget_of_trainer(0.9), build("gpt2")
    with pytest.raises(regen.CaptureError, match="the trainer uses .*; expected one device for each process"):
        budget.on_train_begin(arguments, None, None, model=model)
    assert "forward" not in vars(model)


def test_a_trainer_that_compiles_is_refused(tmp_path):
    with pytest.raises(regen.CaptureError, match="the trainer uses torch_compile"):
        trainer("gpt2", build("gpt2"), tmp_path, [budget_of_trainer(0.9)], max_steps=1, torch_compile=True, torch_compile_backend="eager").train()
