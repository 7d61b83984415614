"""Recurrent layers on a GPU, for the trace.

Eager hands cuDNN the flat buffer in which the weights of a layer lie side by side, after looking at their addresses; tensors without data
have none. Without the buffer cuDNN's operator gathers the weights itself and computes the same."""

import torch
from torch._C import DispatchKey

from regen.errors import CaptureError

aten = torch.ops.aten
MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}


def recurrent(name):
    """A stand-in for `aten::<name>.input` that calls cuDNN where eager does."""
    op = getattr(aten, name).input
    has_memory = name == "lstm"

    def layer(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
        if not torch.cudnn_is_acceptable(input):
            return op._op_dk(
                DispatchKey.CompositeImplicitAutograd, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
        if dropout and train and num_layers > 1:
            raise CaptureError(
                f"cannot capture {name} with dropout={dropout} on {input.device}: cuDNN draws from a state of its own; "
                "expected dropout=0 inside the layer, and nn.Dropout around it")
        state, memory = (hx[0], hx[1]) if has_memory else (hx, None)
        hidden, projection = state.shape[2], 0
        if memory is not None and memory.shape[2] != hidden:
            hidden, projection = memory.shape[2], hidden
        per_layer = (4 if has_biases else 2) + bool(projection)
        made = aten._cudnn_rnn.default(
            input, params, per_layer, None, state, memory, MODES[name], hidden, projection, num_layers, batch_first, 0.0, train,
            bidirectional, [], None)
        return made[:3] if has_memory else made[:2]

    return op, layer


CUDNN_RECURRENT = dict(recurrent(name) for name in MODES)
