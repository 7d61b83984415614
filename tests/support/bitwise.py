"""Equality to the last bit, signs of zeros included."""

import pytest
import torch


@pytest.fixture(autouse=True)
def single_thread():
    """Sums are split among threads; one thread on both sides keeps the split the same, and the machine free."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


def raw(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def assert_same_bits(what, ours, theirs):
    assert ours is not None and ours.shape == theirs.shape and ours.dtype == theirs.dtype, what
    assert torch.equal(raw(ours), raw(theirs)), f"{what} differs from eager"


def assert_same_model(ours, theirs):
    """Parameters, their gradients and buffers."""
    for (name, mine), (_, other) in zip(ours.named_parameters(), theirs.named_parameters()):
        assert_same_bits(name, mine, other)
        assert (mine.grad is None) == (other.grad is None), f"gradient of {name}"
        if other.grad is not None:
            assert_same_bits(f"gradient of {name}", mine.grad, other.grad)
    for (name, mine), (_, other) in zip(ours.named_buffers(), theirs.named_buffers()):
        assert_same_bits(name, mine, other)
