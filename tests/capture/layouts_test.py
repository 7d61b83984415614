"""Layouts of results, as the tracer describes them and as kernels make them: what follows (a view or a copy) depends on them."""

import itertools

import pytest
import torch

from regen._capture.traced.fakes import LAID_OUT_AS_OPERANDS, Fakes

aten = torch.ops.aten
MORE = {  # arguments behind the two tensors
    aten.softplus_backward.default: (1.0, 20.0), aten.hardtanh_backward.default: (-1.0, 1.0), aten.logit_backward.default: (1e-6,),
    aten.native_dropout_backward.default: (2.0,), aten.leaky_relu_backward.default: (0.1, False), aten.threshold_backward.default: (0.0,),
    aten.softshrink_backward.default: (0.5,), aten.hardshrink_backward.default: (0.5,),
}
AS_DESCRIBED = [
    aten.gelu_backward.default, aten.silu_backward.default, aten.leaky_relu_backward.default, aten.mish_backward.default, aten.sigmoid_backward.default,
    aten.tanh_backward.default, aten.threshold_backward.default, aten.softshrink_backward.default, aten.hardshrink_backward.default, aten.mul.Tensor,
    aten.add.Tensor, aten.sub.Tensor, aten.div.Tensor, aten.maximum.default, aten.atan2.default, aten.pow.Tensor_Tensor, aten.lt.Tensor, aten.fmod.Tensor,
    aten.hypot.default, aten.logaddexp.default, aten.logical_and.default]
SHAPES = [(2, 3, 4), (2, 3, 4, 5), (2, 1, 4)]


def permuted(shape, order, dtype=torch.float32):
    """Dense, with the dimensions in another order in memory."""
    tensor = torch.zeros([shape[i] for i in order], dtype=dtype)
    return tensor.permute([order.index(i) for i in range(len(shape))])


def strides_of(tensor):
    """Those that matter."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1]


def operands(op, shape):
    """Of all pairs of layouts."""
    orders = list(itertools.permutations(range(len(shape))))
    second = torch.bool if op is aten.native_dropout_backward.default else torch.float32
    for first, other in itertools.product(orders, orders[::1 if len(shape) < 4 else 7]):
        yield permuted(shape, first), permuted(shape, other, second)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", [*sorted(LAID_OUT_AS_OPERANDS, key=str), *AS_DESCRIBED], ids=str)
def test_results_are_described_as_kernels_lay_them_out(op, shape):
    fakes, more = Fakes(), MORE.get(op, ())
    for pair in operands(op, shape):
        described = fakes.run(op, (*(fakes.like(x) for x in pair), *more), {})
        made = op(*pair, *more)
        assert (described.shape, strides_of(described), described.dtype) == (made.shape, strides_of(made), made.dtype), [x.stride() for x in pair]
