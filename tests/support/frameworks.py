"""Tiny models from configurations, with random weights, and data for them: what the tests of integrations share."""

import copy
import functools
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers as hf

import coverage
from regen import integrations
from regen._check import same_bits

# Planners get a counted amount of work, so that they are quick and give the same plans every time.
OPTIONS = dict(work_limit=20_000)
FAMILIES = ("llama", "gpt2", "bert", "vit")
hf.logging.set_verbosity_error()

budget_of_trainer = functools.partial(integrations.hugging_face.Budget, **OPTIONS)


def build(name, seed=0):
    """A model of coverage.ARCHITECTURES, with the dropout of its default configuration."""
    torch.manual_seed(seed)
    return next(a for a in coverage.ARCHITECTURES if a.name == name).build()


def dataset(name, count=7, seed=1):
    """Rows as a dataset has them."""
    generator = torch.Generator().manual_seed(seed)
    if name == "vit":
        return [{"pixel_values": torch.randn(3, 32, 32, generator=generator), "labels": i % 4} for i in range(count)]
    rows = [torch.randint(3, 64, (12,), generator=generator) for _ in range(count)]
    return [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row.clone()} for row in rows]


def trainer(name, model, folder, callbacks=(), kind=hf.Trainer, data=None, **arguments):
    """Two rows in a batch, so that the last batch of seven rows is a smaller one."""
    arguments = dict(
        use_cpu=True, per_device_train_batch_size=2, logging_steps=1, save_strategy="no", lr_scheduler_type="cosine", warmup_steps=1, seed=3) | arguments
    made = hf.TrainingArguments(output_dir=str(folder), report_to=[], disable_tqdm=True, **arguments)
    data = data or dataset(name)
    return kind(model=model, args=made, train_dataset=data, eval_dataset=data[:3], callbacks=list(callbacks))


def history(run):
    """All that was logged, but times."""
    return [{k: v for k, v in entry.items() if "runtime" not in k and "per_second" not in k} for entry in run.state.log_history]


def state_of(run):
    """Parameters, buffers, the state of the optimizer and the random numbers to come, by name."""
    found = {f"model {name}": tensor.clone() for name, tensor in run.model.state_dict().items()}
    for index, state in run.optimizer.state_dict()["state"].items():
        found.update({f"optimizer {index} {key}": torch.as_tensor(value).clone() for key, value in state.items()})
    return found | {"generator": torch.get_rng_state()}


def assert_same_state(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert same_bits(ours[name], theirs[name]), f"{name} differs"


def assert_same_runs(ours, theirs):
    """Of two trainers, after training: what was logged, and what is left."""
    assert history(ours) == history(theirs)
    assert ours.state.global_step == theirs.state.global_step > 0
    assert_same_state(ours.left, theirs.left)


def trained(run, seed=3, **options):
    """Trains, and keeps what is left before anything else happens."""
    torch.manual_seed(seed)
    run.train(**options)
    run.left = state_of(run)
    return run


def twins(model):
    return copy.deepcopy(model), copy.deepcopy(model)
