"""Models of transformers, unchanged, from their default configurations at tiny sizes: training under a plan gives plain PyTorch's bits.

One of each kind; experiments/coverage.py has all of them."""

import copy
import pathlib
import sys

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "experiments"))

import coverage
from regen.capture import capture

# A cache in the output and `labels=input_ids`, experts, a state space, masks with values, layer drop, images, sound, text with images.
NAMES = ["llama", "mixtral", "mamba", "qwen3_next", "bert", "bart", "vit", "whisper", "clip"]


def case_of(name):
    return next(a for a in coverage.ARCHITECTURES if a.name == name)


@pytest.mark.parametrize("name", NAMES)
def test_training_is_the_same(name):
    row = coverage.examine(case_of(name), [1.0, 0.7], capture_only=False, operators=True)
    assert (row.message, row.operators, row.equal) == ("", "yes", ["yes", "yes"])


def test_attention_is_the_one_that_eager_runs():
    """Asked whether it is being traced, transformers would make a mask; eager has none, and says that attention is causal."""
    torch.manual_seed(0)
    case = case_of("llama")
    program = capture(copy.deepcopy(case.build()), (), case.batch()).program
    attention = [node for node in program["nodes"] if "scaled_dot_product" in node["op"] and node["phase"] == "forward"]
    assert len(attention) == 2
    for node in attention:
        assert node["op"] == "aten::_scaled_dot_product_flash_attention_for_cpu"
        assert node["args"][4] is True and node["kwargs"].get("attn_mask") is None  # is_causal
