"""Recurrent layers of a GPU, traced without one: tensors without data through cuDNN's operators and back."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from regen._capture.cudnn_recurrent import MODES, fake_recurrent


def tensors(gates, memory):
    def empty(*sizes):
        return torch.empty(sizes, device="meta", requires_grad=True)

    weights = [empty(4 * gates, 8), empty(4 * gates, 4), empty(4 * gates), empty(4 * gates)]
    return empty(5, 3, 8), weights, empty(1, 3, 4), empty(1, 3, 4) if memory else None


@pytest.mark.parametrize("name, gates", [("lstm", 4), ("gru", 3), ("rnn_tanh", 1)])
def test_gradients_look_like_what_they_are_for(name, gates):
    with fake_recurrent(), FakeTensorMode():
        x, weights, state, memory = tensors(gates, memory=name == "lstm")
        made = torch.ops.aten._cudnn_rnn.default(
            x, weights, 4, None, state, memory, MODES[name], 4, 0, 1, False, 0.0, True, False, [], None)
        output, last, _, _, buffer = made
        assert output.shape == (5, 3, 4) and last.shape == state.shape
        assert buffer.shape == (sum(w.numel() for w in weights),)  # what the real one gathers, for the backward pass
        wanted = [x, state, *weights] + ([memory] if memory is not None else [])
        gradients = torch.autograd.grad(output.sum() + last.sum(), wanted)
    assert [g.shape for g in gradients] == [w.shape for w in wanted]


def test_a_batch_in_front_is_a_view_of_the_steps():
    with fake_recurrent(), FakeTensorMode():
        x, weights, _state, memory = tensors(3, memory=False)
        made = torch.ops.aten._cudnn_rnn.default(
            x, weights, 4, None, torch.empty((1, 5, 4), device="meta"), memory, MODES["gru"], 4, 0, 1, True, 0.0, True, False, [], None)
    assert made[0].shape == (5, 3, 4) and made[0].stride() == (4, 20, 1)


def test_torch_is_left_as_it_was():
    with fake_recurrent():
        pass
    with FakeTensorMode():
        x, weights, state, memory = tensors(4, memory=True)
        made = torch.ops.aten._cudnn_rnn.default(
            x, weights, 4, None, state, memory, MODES["lstm"], 4, 0, 1, False, 0.0, True, False, [], None)
    assert made[4] is None
