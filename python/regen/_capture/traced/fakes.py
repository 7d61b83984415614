"""What an operator would return, without computing it."""

from collections.abc import Callable
from typing import Any

import torch
import torch._refs as refs
from torch._prims_common import compute_elementwise_output_strides
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from regen._capture.traced.symbols import Symbols

# Raised for results that depend on values.
DEPENDS_ON_VALUES = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
# Kernels whose first result is contiguous, although PyTorch's description gives it the strides of an argument. What follows depends on it: a
# gradient may or may not need a copy. Found by comparing both on all architectures of experiments/coverage.py.
CONTIGUOUS_FIRST = {
    torch.ops.aten.native_layer_norm_backward.default, torch.ops.aten._log_softmax_backward_data.default,
    torch.ops.aten._softmax_backward_data.default,
}
# Elementwise kernels whose result has the layout of their operands, the first of which decides, although PyTorch describes them by a decomposition in
# Python that goes by another one. Found by comparing both on operands of all layouts (tests/capture/layouts_test.py).
LAID_OUT_AS_OPERANDS = {
    torch.ops.aten.softplus_backward.default, torch.ops.aten.hardswish_backward.default, torch.ops.aten.hardsigmoid_backward.default,
    torch.ops.aten.hardtanh_backward.default, torch.ops.aten.logit_backward.default, torch.ops.aten.native_dropout_backward.default,
    torch.ops.aten.xlogy.Tensor, torch.ops.aten.copysign.Tensor,
}
# Operators whose description in C++ makes numbers of symbols; PyTorch has others, in Python.
OF_SYMBOLS: dict[Any, Any] = {torch.ops.aten.constant_pad_nd.default: refs.constant_pad_nd}
# Bytes of zeros with which a kernel may be tried whose description PyTorch lacks.
MOST_TRIAL_BYTES = 1 << 30


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """`function` of every leaf of nested lists and tuples; operators take nothing else."""
    if isinstance(tree, (list, tuple)):
        items = [mapped(function, item) for item in tree]
        return items if isinstance(tree, list) else tuple(items)
    return function(tree)


def leaves_of(tree: Any) -> list[Any]:
    """Of nested lists, tuples and dictionaries."""
    if isinstance(tree, (list, tuple)):
        return [leaf for item in tree for leaf in leaves_of(item)]
    if isinstance(tree, dict):
        return [leaf for item in tree.values() for leaf in leaves_of(item)]
    return [tree]


def tensors_of(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in leaves_of(tree) if isinstance(leaf, torch.Tensor)]


class Fakes:
    """Runs operators on tensors without data."""

    def __init__(self, symbols: Symbols | None = None) -> None:
        """`symbols`: of sizes that vary; None: every size is a number."""
        self.symbols = symbols
        self.mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=None if symbols is None else symbols.env)

    def empty(self, sizes: Any, strides: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        with self.mode:
            return torch.empty_strided(sizes, strides, dtype=dtype, device=device)

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """With the sizes and strides of a real tensor, at the beginning of a storage of its own."""
        return self.empty(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)

    def view(self, fake: torch.Tensor, sizes: Any, strides: Any, offset: int, dtype: torch.dtype) -> torch.Tensor:
        with self.mode:
            return (fake if fake.dtype == dtype else fake.view(dtype)).as_strided(sizes, strides, offset)

    def run(self, op: Any, args: Any, kwargs: Any) -> Any:
        """What `op` returns for fake arguments. Where PyTorch's description of an operator refuses what the kernel accepts, the kernel is tried
        on zeros.
        """
        try:
            with self.mode:
                returned = (op if self.symbols is None else OF_SYMBOLS.get(op, op))(*args, **kwargs)
            if op in LAID_OUT_AS_OPERANDS:
                return self.laid_out(returned, compute_elementwise_output_strides(*tensors_of(args)))
            return self.corrected(op, returned) if op in CONTIGUOUS_FIRST else returned
        except DEPENDS_ON_VALUES:
            raise
        except Exception as refusal:
            if self.symbols is not None:
                raise
            given = tensors_of((args, kwargs))
            if sum(t.untyped_storage().nbytes() for t in given) > MOST_TRIAL_BYTES or op._schema.is_mutable:
                raise
            return self.tried(op, args, kwargs, refusal)

    def corrected(self, op: Any, returned: Any) -> Any:
        """With a first result that is contiguous."""
        first = returned[0] if isinstance(returned, tuple) else returned
        if first is None or first.is_contiguous():
            return returned
        with self.mode:
            first = torch.empty(first.shape, dtype=first.dtype, device=first.device)
        return (first, *returned[1:]) if isinstance(returned, tuple) else first

    def laid_out(self, returned: torch.Tensor, strides: Any) -> torch.Tensor:
        return self.empty(returned.shape, strides, returned.dtype, returned.device)

    def tried(self, op: Any, args: Any, kwargs: Any, refusal: Exception) -> Any:
        try:
            returned = op(*mapped(zeros_like, args), **{k: mapped(zeros_like, a) for k, a in kwargs.items()})
        except Exception as error:
            raise error from refusal
        return mapped(lambda x: self.like(x) if isinstance(x, torch.Tensor) else x, returned)


def zeros_like(leaf: Any) -> Any:
    if not isinstance(leaf, FakeTensor):
        return leaf
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device).zero_()
