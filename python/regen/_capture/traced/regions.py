"""Memory as the tracer sees it, and what is in it at present.

A program is functional: a storage is written once. The user's code writes in place. So each region of memory refers to the program storage that
holds its present contents; a write makes a new program storage, and all views of the region follow at once, because they look their value up
when they are read.
"""

import dataclasses
from typing import Any, NamedTuple

import torch

from regen._capture.conversion import Value
from regen._capture.traced.symbols import plain


class Geometry(NamedTuple):
    """A view of a region. Equal geometries on equal contents are the same value. Where sizes are symbols, numbers may be expressions."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def geometry_of(tensor: torch.Tensor) -> Geometry:
    return Geometry(
        tensor.dtype, tuple(plain(n) for n in tensor.shape), tuple(plain(n) for n in tensor.stride()), plain(tensor.storage_offset()))


class Origin(NamedTuple):
    """Where a region comes from that exists before the step.

    kind "live": a tensor of the model, `key`; kind "input": the number of the flat input; kind "constant": made by the model's code, of numbers.
    """

    kind: str
    key: Any
    tensor: torch.Tensor  # the caller's; of an input, its sample


class Region:
    """A piece of memory: what its views read now, and how it began."""

    def __init__(self, storage: int, whole: torch.Tensor, nbytes: int, origin: Origin | None = None, shift: int = 0) -> None:
        """`whole`: a fake tensor that covers it; `shift`: bytes between the beginnings of the program storage and the region."""
        self.storage = storage
        self.shift = shift
        self.whole = whole
        self.nbytes = nbytes
        self.origin = origin
        self.values: dict[Geometry, Value] = {}
        self.version = 0
        self.first: dict[Geometry, Value] = self.values  # of version 0
        self.first_storage, self.first_shift = storage, shift

    @property
    def brought(self) -> Origin:
        """The origin of a region that exists before the step."""
        assert self.origin is not None, "the step makes this region itself"
        return self.origin

    def hold(self, storage: int, geometry: Geometry, value: Value, offset: int) -> None:
        """New contents, of which `value` is the view `geometry`; `offset` is where it starts in the new storage."""
        self.storage = storage
        self.shift = (offset - geometry.offset) * geometry.dtype.itemsize
        self.values = {geometry: value}
        self.version += 1


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """A tensor of the trace as it was when another was made of it. The tensor itself may get another shape in place."""

    fake: torch.Tensor
    region: Region
    made_by: "Viewing | None"


@dataclasses.dataclass(frozen=True, slots=True)
class Viewing:
    """The view operator that made a tensor, to be called again when its source has new contents."""

    op: Any
    args: Any  # with Views, and real tensors, where the tensors were
    kwargs: Any
    index: int  # among the results
    count: int


def covers(tensor: torch.Tensor, region: Region) -> bool:
    """Does a write to the (fake) tensor replace all of the region?"""
    return tensor.numel() * tensor.element_size() >= region.nbytes and is_dense(tensor)


def is_dense(tensor: torch.Tensor) -> bool:
    """Every element once, without gaps, in whatever order."""
    expected = 1
    for stride, size in sorted((s, n) for n, s in zip(tensor.shape, tensor.stride()) if n > 1):
        if stride != expected:
            return False
        expected *= size
    return True
