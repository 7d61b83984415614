"""Recurrent layers on a GPU, for the trace.

Eager hands cuDNN the flat buffer in which the weights of a layer lie side by side, after looking at their addresses; tensors without data
have none. Without the buffer cuDNN's operator gathers the weights itself and computes the same.
"""

import contextlib
import functools

import torch
from torch import _meta_registrations as meta
from torch._C import DispatchKey
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensorMode

from regen.errors import CaptureError

aten = torch.ops.aten
BATCH_FIRST = 6  # among the arguments behind the buffer of weights
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


@contextlib.contextmanager
def recurrent_by_cudnn():
    """`torch.nn`'s layers call the stand-ins: eager looks at addresses and sets storages, which is not for tensors without data."""
    functions = torch._VF
    before = {name: getattr(functions, name) for name in MODES}

    def chosen(name, *args):
        is_padded = len(args) == 9 and isinstance(args[3], bool)  # packed sequences go elsewhere
        return CUDNN_RECURRENT[getattr(aten, name).input](*args) if is_padded and args[0].is_cuda else before[name](*args)

    for name in MODES:
        setattr(functions, name, functools.partial(chosen, name))
    try:
        with fake_recurrent():
            yield
    finally:
        for name in MODES:
            setattr(functions, name, before[name])


def fake_forward(mode, op, input, weight, weight_stride0, weight_buf, *rest, **options):
    """Torch's own gives no buffer back where none was handed in; the real one returns what it gathered, and the backward pass reads it.
    The real one computes step by step: a batch in front is a view of that.
    """
    buffer = input.new_empty(sum(w.numel() for w in weight)) if weight_buf is None else weight_buf
    output, *others = meta._cudnn_rnn(input, weight, weight_stride0, buffer, *rest, **options)
    batch_first = rest[BATCH_FIRST]
    if batch_first and output.dim() == 3:
        output = output.transpose(0, 1).contiguous().transpose(0, 1)
    return (output, *others)


def fake_backward(mode, op, input, weight, weight_stride0, weight_buf, hx, cx, *rest, **options):
    """Torch has none. Gradients look like what they are for."""
    wanted = options.get("output_mask", rest[-1])
    of_state = torch.empty_like(hx) if wanted[1] else None
    of_memory = torch.empty_like(cx) if cx is not None and wanted[2] else None
    return (torch.empty_like(input) if wanted[0] else None, of_state, of_memory,
            [torch.empty_like(w) for w in weight] if wanted[3] else [])


@contextlib.contextmanager
def fake_recurrent():
    """Tensors without data go through cuDNN's operators in both directions."""
    table = fake_impls.op_implementations_dict
    ours = {aten._cudnn_rnn.default: fake_forward, aten._cudnn_rnn_backward.default: fake_backward}
    before = {op: table[op] for op in ours if op in table}
    table.update(ours)
    forget_results(ours)
    try:
        yield
    finally:
        forget_results(ours)
        for op in ours:
            del table[op]
        table.update(before)


def forget_results(ops):
    """Results of calls without data are remembered for the whole process."""
    cache = FakeTensorMode.cache
    for key in [key for key in cache if key.key and key.key[0] in ops]:
        del cache[key]
