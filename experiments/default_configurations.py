"""Every architecture of transformers that its automatic classes know, from its default configuration made small: does it train under `regen.wrap`,
bit for bit?

    python experiments/default_configurations.py [--family causal,masked] [--only llama,qwen3_next] [--csv FILE]

The rows of the record are results/default_configurations.csv.

experiments/coverage.py has a configuration and a batch by hand for each of its networks; here one rule makes all of them, so that families nobody
thought of are tried too. A row: family, model type, and "equal", what differs, or the message. What plain PyTorch does not train from such a
configuration, or what stays large or slow, is counted apart. Prints what is not equal, then the counts.
"""

import argparse
import collections
import copy
import csv
import functools
import logging
import pathlib
import signal
from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from transformers.models.auto import modeling_auto

import coverage
import regen

results_measure = coverage.results_measure  # tools/ is on the path by it

MOST_PARAMETERS = 8_000_000
SECONDS = 60  # for building a model and training it plainly, and as many for training it under a plan
WIDTHS = ("hidden_size", "d_model", "n_embd", "dim", "embedding_size")
LAYERS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "n_shared_experts", "first_k_dense_replace", "n_group",
    "topk_group", "expand", "bos_token_id", "num_experts_per_tok")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads")
INNER = ("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "n_inner")
SMALL: dict[str, int] = {
    **dict.fromkeys(WIDTHS, 32), **dict.fromkeys(LAYERS, 2), **dict.fromkeys(HEADS, 4), **dict.fromkeys(INNER, 48),
    "num_key_value_heads": 2, "d_kv": 8, "head_dim": 8, "vocab_size": 99, "max_position_embeddings": 64, "n_positions": 64, "num_experts": 4,
    "num_local_experts": 4, "n_routed_experts": 4, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "q_lora_rank": 16,
    "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "state_size": 8, "mamba_d_state": 8, "mamba_n_heads": 4,
    "mamba_d_head": 16, "image_size": 32, "patch_size": 8, "num_labels": 4}


def words() -> dict[str, Any]:
    ids = coverage.tokens()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def picture(size: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(2, 3, size, size)}


def boxes(count: int) -> dict[str, torch.Tensor]:
    return {"class_labels": torch.arange(1, count + 1), "boxes": torch.rand(count, 4) * 0.4 + 0.2}


def shapes(count: int) -> torch.Tensor:
    return (torch.rand(count, 64, 64) > 0.5).float()


FAMILIES: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "causal": ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", coverage.causal),
    "masked": ("MODEL_FOR_MASKED_LM_MAPPING_NAMES", coverage.masked),
    "seq2seq": ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", coverage.seq2seq),
    "sequences": ("MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES", lambda: {**coverage.causal(), "labels": torch.tensor([0, 3])}),
    "vision": ("MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", coverage.image),
    "tokens": ("MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES", lambda: {**words(), "labels": torch.randint(4, (2, 12))}),
    "questions": ("MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES", lambda: {
        **words(), "start_positions": torch.tensor([1, 3]), "end_positions": torch.tensor([4, 20])}),
    "choice": ("MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES", lambda: {
        "input_ids": coverage.tokens(4).view(2, 2, 12), "attention_mask": torch.ones(2, 2, 12, dtype=torch.long), "labels": torch.tensor([0, 1])}),
    "pretraining": ("MODEL_FOR_PRETRAINING_MAPPING_NAMES", words),
    "detection": ("MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES", lambda: {"pixel_values": torch.randn(2, 3, 64, 64), "labels": [boxes(2), boxes(1)]}),
    "semantic": ("MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES", lambda: {
        "pixel_values": torch.randn(2, 3, 64, 64), "labels": torch.randint(4, (2, 64, 64))}),
    "universal": ("MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING_NAMES", lambda: {
        "pixel_values": torch.randn(2, 3, 64, 64), "mask_labels": [shapes(2), shapes(1)], "class_labels": [torch.tensor([1, 2]), torch.tensor([3])]}),
    "depth": ("MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES", lambda: picture(64)),
    "pictures": ("MODEL_FOR_IMAGE_TO_IMAGE_MAPPING_NAMES", lambda: picture(64)),
    "backbone": ("MODEL_FOR_BACKBONE_MAPPING_NAMES", lambda: picture(64)),
    "masked pictures": ("MODEL_FOR_MASKED_IMAGE_MODELING_MAPPING_NAMES", lambda: {**picture(32), "bool_masked_pos": torch.rand(2, 16) > 0.5}),
    "pairs": ("MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES", lambda: {**words(), **picture(32), "return_loss": True}),
    "text of pictures": ("MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES", lambda: {**words(), **picture(32), "labels": coverage.tokens()}),
    "sounds": ("MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES", coverage.audio),
    "ctc": ("MODEL_FOR_CTC_MAPPING_NAMES", lambda: {"input_values": torch.randn(2, 1600), "labels": coverage.tokens(length=3, high=32)}),
    "speech": ("MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES", lambda: {"input_features": torch.randn(2, 80, 128), "labels": coverage.tokens(length=7)}),
    # Their loss is made of an output outside of the model; the others have no gradient.
    "base": ("MODEL_MAPPING_NAMES", words),
    "base pictures": ("MODEL_MAPPING_NAMES", lambda: picture(64)),
    "base pairs": ("MODEL_MAPPING_NAMES", lambda: {**words(), **picture(32)}),
    "base sounds": ("MODEL_MAPPING_NAMES", lambda: {"input_values": torch.randn(2, 1600)})}
COLUMNS = ["family", "network", "result", *results_measure.data.PROVENANCE]


class TooSlow(Exception):
    """It took more than its seconds."""


def limited(seconds: int, work: Callable[[], Any]) -> Any:
    def end(*_: object) -> None:
        raise TooSlow

    signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        return work()
    finally:
        signal.alarm(0)


def shorter(name: str, numbers: list[int]) -> list[int] | None:
    """An attribute that is a list with a number for each stage of a network; None: it stays as it is."""
    if "depths" in name or name in ("depth", "num_block_repeats", "stage_numb_of_layers"):
        return [1] * len(numbers)
    if name in ("hidden_sizes", "embed_dims") or (name == "embed_dim" and numbers):
        return [8 << stage for stage in range(len(numbers))]
    if name in ("num_heads", "num_attention_heads", "encoder_num_attention_heads"):
        return [1 << min(stage, 2) for stage in range(len(numbers))]
    return None


def small(config_class: Any, shorten: bool) -> Any:
    """A configuration with its defaults but for sizes, and so are the configurations in it. `shorten`: lists too."""
    default = config_class()
    chosen: dict[str, Any] = {}
    for key, number in SMALL.items():
        if isinstance(getattr(default, key, "absent"), (int, type(None))):
            chosen[key] = number
    for key in getattr(config_class, "sub_configs", {}):
        inner = getattr(default, key, None)
        if isinstance(inner, hf.PreTrainedConfig):
            chosen[key] = small(type(inner), shorten).to_dict()
    for key, numbers in vars(default).items() if shorten else ():
        if isinstance(numbers, (list, tuple)) and numbers and all(type(n) is int for n in numbers):
            made = shorter(key, list(numbers))
            chosen |= {} if made is None else {key: made}
    layers = getattr(default, "layer_types", None)
    if layers:  # one of each kind
        chosen["layer_types"] = (list(dict.fromkeys(layers)) * 2)[:2]
    return config_class(**chosen)


def build(kind: str, name: str, shorten: bool = True) -> torch.nn.Module:
    """With its default configuration but for sizes.

    Raises:
        TooSlow: it is large.
    """
    config = small(hf.CONFIG_MAPPING[kind], shorten)
    with torch.device("meta"):  # takes no memory
        numbers = sum(p.numel() for p in getattr(hf, name)(copy.deepcopy(config)).parameters())
    if numbers > MOST_PARAMETERS:
        raise TooSlow
    torch.manual_seed(0)
    return getattr(hf, name)(config).train()


def examine(kind: str, name: str, batch: Callable[[], dict[str, Any]]) -> str:
    """The row's result."""
    def plainly(shorten: bool) -> tuple[torch.nn.Module, list[dict[str, Any]], list[dict[str, torch.Tensor]]]:
        model = build(kind, name, shorten)
        torch.manual_seed(1)
        batches = [batch() for _ in range(coverage.STEPS)]
        return model, batches, coverage.train(copy.deepcopy(model), batches, seed=3)

    failed = []
    for shorten in (True, False):
        try:
            model, batches, theirs = limited(SECONDS, functools.partial(plainly, shorten))
            break
        except TooSlow:
            failed.append("large or slow")
        except Exception as error:  # such a configuration is none for it
            failed.append(f"not trained by plain PyTorch: {type(error).__name__}")
    else:
        return failed[0]
    wrapped = regen.wrap(model, budget="1GiB", work_limit=coverage.WORK)
    try:
        found = coverage.difference(limited(SECONDS, lambda: coverage.train(wrapped, batches, seed=3)), theirs)
    except TooSlow:
        return "slow under a plan"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        wrapped.regen.release()
    return "equal" if found == "yes" else found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default=",".join(FAMILIES))
    parser.add_argument("--only", default="")
    parser.add_argument("--csv", type=pathlib.Path, help="add the rows to this file, and leave out those that are there")
    arguments = parser.parse_args()
    hf.logging.set_verbosity(logging.CRITICAL)
    torch.set_num_threads(1)
    done = set()
    if arguments.csv and arguments.csv.exists():
        with arguments.csv.open(newline="") as file:
            done = {(row["family"], row["network"]) for row in csv.DictReader(file)}
    origin = results_measure.provenance("")
    counts: collections.Counter[str] = collections.Counter()
    for family in arguments.family.split(","):
        mapping, batch = FAMILIES[family]
        for kind, names in getattr(modeling_auto, mapping).items():
            if (arguments.only and kind not in arguments.only.split(",")) or (family, kind) in done:
                continue
            result = examine(kind, names if isinstance(names, str) else names[0], batch)
            counts[result.split(":")[0]] += 1
            if result != "equal" and not result.startswith(("not trained", "large")):
                print(f"{family:10} {kind:24} {result[:400]}", flush=True)
            if arguments.csv:
                with arguments.csv.open("a", newline="") as file:
                    rows = csv.writer(file, lineterminator="\n")
                    if file.tell() == 0:
                        rows.writerow(COLUMNS)
                    command = f"experiments/default_configurations.py --family '{family}' --only {kind}"
                    known = {"family": family, "network": kind, "result": result[:400], **origin, "command": command}
                    rows.writerow([known[column] for column in COLUMNS])
    print(dict(counts))


if __name__ == "__main__":
    main()
