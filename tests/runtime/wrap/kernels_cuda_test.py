"""A wrapped model that keeps everything launches plain PyTorch's kernels, in plain PyTorch's order: the four workloads of
benchmarks/transformers_steps.py at their real widths, on a GPU. Copies and fills by the driver are left out."""

import pytest
import torch

import regen
from benchmarks.transformers_steps import WORKLOADS, kernels_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def training(model, batch, autocast):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()

    return step


def kernels_after(step, steps=3):
    """What the first steps set up is no part of a step."""
    for _ in range(steps):
        step()
    return kernels_of(step)


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "vit"])
def test_the_kernels_are_those_of_plain_pytorch(name):
    torch.manual_seed(0)
    model, batch, autocast = WORKLOADS[name]()
    theirs = kernels_after(training(model.train(), batch, autocast))
    model.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()
    wrapped = regen.wrap(model, budget="120GiB", cache=False, improve=False)
    ours = kernels_after(training(wrapped, batch, autocast))
    wrapped.regen.release()
    assert len(theirs) > 1000
    assert ours == theirs
