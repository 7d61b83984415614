"""What an island's autograd graph saves from its forward to its backward pass, in one block of memory that is planned.

The graph itself holds no memory of tensors then: the block may be kept, moved to the host, or made again with the forward pass, as the plan decides.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

UNIT = 64  # bytes, at which a saved tensor begins
# Bytes of the block over what the sample took: sizes change with values. record.cpp has the same for scratch memory.
MARGIN = 1.25


class Saved(NamedTuple):
    """Where a saved tensor is found again. kind "itself": `holder` is it; "input": in that argument; "block": `offset` is in elements of the block."""

    kind: str
    holder: Any
    sizes: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    offset: int = 0
    dtype: torch.dtype = torch.uint8


class Held:
    """Takes what a graph saves in one forward pass."""

    def __init__(self, block: torch.Tensor | None, inputs: Mapping[int, int], parameters: Sequence[torch.Tensor], device: torch.device) -> None:
        """`block`: None: only count, and let the graph hold what it saves. `inputs`: address of a storage -> argument, for those that the backward
        pass is given too.
        """
        self.block, self.inputs, self.device = block, inputs, device
        self.parameters = {p.untyped_storage().data_ptr() for p in parameters}
        self.bytes = 0
        self.places: dict[Any, tuple[StorageWeakRef, int]] = {}
        self.bytes_of: dict[int, int] = {}  # address of a storage -> bytes that are saved of it
        self.given: Sequence[torch.Tensor] = ()  # to the backward pass
        self.given_block: torch.Tensor | None = None

    @property
    def overflows(self) -> bool:
        return self.block is not None and self.bytes > self.block.numel()

    def pack(self, tensor: torch.Tensor) -> Saved:
        """A hook of autograd's."""
        with torch.no_grad():
            plain = tensor.detach()
            address = plain.untyped_storage().data_ptr()
            if address == 0 or address in self.parameters or plain.device != self.device:
                return Saved("itself", plain)
            view = tuple(plain.shape), tuple(plain.stride()), int(plain.storage_offset()), plain.dtype
            if address in self.inputs:
                return Saved("input", self.inputs[address], *view)
            start = self.place(plain)
            if self.block is None:
                return Saved("itself", plain)
            return Saved("block", None, view[0], view[1], start // plain.element_size(), plain.dtype)

    def place(self, tensor: torch.Tensor) -> int:
        """Bytes from the begin of the block. What is saved twice is there once."""
        span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0
        storage = StorageWeakRef(tensor.untyped_storage())  # keeps its address from being used for another
        key = storage.cdata, tensor.storage_offset(), tensor.dtype, span, tensor._version
        if key in self.places:
            return self.places[key][1]
        start = self.bytes
        self.places[key] = storage, start
        size = -(-span * tensor.element_size() // UNIT) * UNIT
        self.bytes += size
        address = tensor.untyped_storage().data_ptr()
        self.bytes_of[address] = self.bytes_of.get(address, 0) + size
        if self.block is not None and not self.overflows and span:
            flat = (span,), (1,)
            self.in_block(self.block, start // tensor.element_size(), *flat, tensor.dtype).copy_(tensor.as_strided(*flat, tensor.storage_offset()))
        return start

    @staticmethod
    def in_block(block: torch.Tensor, offset: int, sizes: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
        whole = torch.empty(0, dtype=dtype, device=block.device)
        return whole.set_(block.untyped_storage(), int(block.storage_offset()) // dtype.itemsize + offset, sizes, strides)

    def unpack(self, saved: Saved) -> torch.Tensor:
        """A hook of autograd's."""
        if saved.kind == "itself":
            return saved.holder
        with torch.no_grad():
            if saved.kind == "block":
                assert self.given_block is not None, "a backward pass runs"
                return self.in_block(self.given_block, saved.offset, saved.sizes, saved.strides, saved.dtype)
            source = self.given[saved.holder]
            return torch.empty(0, dtype=saved.dtype, device=source.device).set_(source.untyped_storage(), saved.offset, saved.sizes, saved.strides)

    def let_go(self) -> None:
        """After the forward pass."""
        self.block, self.places = None, {}
