"""Trainers of TRL with a budget: their losses are made of log-probabilities, with passes without gradients and generation in between."""

import pathlib
import sys

import pytest

trl = pytest.importorskip("trl", reason="trl is not installed")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "experiments"))

import datasets
import peft
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers

from frameworks import assert_same_state, budget_of_trainer, build, history, trained, twins

pytestmark = pytest.mark.filterwarnings("ignore:regen. gradient checkpointing is off", "ignore:regen. hooks on")


def tokenizer():
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(64)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return hf.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", bos_token="w1", eos_token="w2")


def text(first, count):
    return " ".join(f"w{3 + (first * 7 + j) % 60}" for j in range(count))


def rows(**columns):
    """Seven rows; a column is (first word of the first row, words)."""
    return datasets.Dataset.from_dict({name: [text(first + i, count) for i in range(7)] for name, (first, count) in columns.items()})


def length_of(completions, **others):
    return [float(len(completion)) for completion in completions]


PREFERENCES = dict(prompt=(0, 4), chosen=(9, 5), rejected=(20, 5))
KINDS = {
    "sft": (lambda **given: trl.SFTTrainer(train_dataset=rows(text=(0, 11)), **given), trl.SFTConfig, {}),
    "packed": (lambda **given: trl.SFTTrainer(train_dataset=rows(text=(0, 11)), **given), trl.SFTConfig, dict(packing=True, max_length=16)),
    "dpo": (lambda **given: trl.DPOTrainer(train_dataset=rows(**PREFERENCES), **given), trl.DPOConfig, {}),
    "grpo": (lambda **given: trl.GRPOTrainer(train_dataset=rows(prompt=(0, 4)), reward_funcs=length_of, **given), trl.GRPOConfig,
             dict(num_generations=2, max_completion_length=6))}


@pytest.mark.parametrize("kind, lora", [("sft", False), ("packed", True), ("dpo", True), ("grpo", False)])
def test_a_trainer_gains_one_argument(kind, lora, tmp_path):
    """Gradient checkpointing, which TRL turns on, is off with the budget."""
    make, config, options = KINDS[kind]
    runs = []
    for model, callbacks in zip(twins(build("llama")), ([], [budget := budget_of_trainer("64MiB")])):
        arguments = config(
            output_dir=str(tmp_path), per_device_train_batch_size=2, max_steps=3, logging_steps=1, report_to=[], use_cpu=True, disable_tqdm=True,
            save_strategy="no", seed=3, bf16=False, **options)
        adapters = peft.LoraConfig(r=4, target_modules="all-linear") if lora else None
        hf.set_seed(5)
        runs.append(trained(make(model=model, args=arguments, processing_class=tokenizer(), callbacks=callbacks, peft_config=adapters)))
    theirs, ours = runs
    untimed = [[{k: v for k, v in entry.items() if "time" not in k} for entry in history(run)] for run in runs]
    assert untimed[0] == untimed[1]
    assert_same_state(ours.left, theirs.left)
    assert budget.planned.sessions.passes >= 3
