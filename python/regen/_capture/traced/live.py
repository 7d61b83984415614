"""Real tensors that meet the trace: parameters, buffers, attributes, constants. Each is found when an operator first takes it."""

from collections.abc import Mapping
from typing import NamedTuple

import torch

from regen._capture.conversion import Brought, Value
from regen._capture.program_builder import ProgramBuilder
from regen._capture.traced.fakes import Fakes
from regen._capture.traced.regions import Origin, Region, geometry_of
from regen.errors import CaptureError


class Lifted(NamedTuple):
    """A real tensor as the tracer sees it."""

    tensor: torch.Tensor  # held: its identity must not be taken by another
    fake: torch.Tensor
    region: Region


class LiveTensors:
    """Regions of real tensors. Tensors that share memory share a region; parameters that lie side by side in one storage do not."""

    def __init__(self, builder: ProgramBuilder, fakes: Fakes, names: Mapping[int, tuple[str, str]], known: Mapping[str, torch.Tensor]) -> None:
        """`names`: id of a tensor -> (name, role); `known`: name -> tensor of the model."""
        self.builder, self.fakes, self.names = builder, fakes, names
        self.lifted: dict[int, Lifted] = {}
        self.regions: dict[int, list[Region]] = {}  # identity of a real storage -> regions in it
        self.owners: dict[int, list[torch.Tensor]] = {}
        for tensor in known.values():
            self.owners.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
        self.brought: list[Brought] = []
        self.owned = dict(known)
        self.constants = 0

    def lift(self, tensor: torch.Tensor, fresh: bool = False) -> Lifted:
        """`fresh`: the model's code has just made it of numbers; what is written to it is lost with it."""
        found = self.lifted.get(id(tensor))
        if found is None:
            if tensor.layout is not torch.strided:
                raise CaptureError(f"a {tensor.layout} tensor; expected dense tensors (x.to_dense())")
            region = self.region_of(tensor, fresh)
            found = self.lifted[id(tensor)] = Lifted(tensor, self.fake_in(region, tensor), region)
        return found

    def region_of(self, tensor: torch.Tensor, fresh: bool) -> Region:
        key = tensor.untyped_storage()._cdata
        for region in self.regions.get(key, ()):
            if contains(region.brought.tensor, tensor):
                return region
        owner = next((o for o in self.owners.get(key, ()) if contains(o, tensor)), tensor)
        region = self.new_region(owner, fresh)
        self.regions.setdefault(key, []).append(region)
        return region

    def new_region(self, owner: torch.Tensor, fresh: bool) -> Region:
        name, role = self.names.get(id(owner), (f"constant.{self.constants}", "constant"))
        self.constants += role == "constant"
        storage = self.builder.add_live_storage(name, role, owner)
        shift = int(owner.storage_offset()) * owner.element_size()
        region = Region(storage, self.fakes.like(owner), span_bytes(owner), Origin("constant" if fresh else "live", name, owner), shift)
        if role in ("parameter", "buffer"):
            value = self.first_value(region)
            self.owned.setdefault(name, owner)
            self.brought.append(Brought(role, name, value))
        return region

    def first_value(self, region: Region) -> Value:
        offset = region.shift // region.whole.element_size()
        value = region.values[geometry_of(region.whole)] = Value(self.builder.add_value(region.storage, region.whole, offset))
        return value

    def fake_in(self, region: Region, tensor: torch.Tensor) -> torch.Tensor:
        start = tensor.storage_offset() * tensor.element_size() - region.first_shift
        offset = start // tensor.element_size()
        if offset == 0 and geometry_of(region.whole)[:3] == geometry_of(tensor)[:3]:
            return region.whole
        return self.fakes.view(region.whole, tensor.shape, tensor.stride(), offset, tensor.dtype)


def span_bytes(tensor: torch.Tensor) -> int:
    """Bytes from the first to the last element, gaps included."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size()


def contains(outer: torch.Tensor, inner: torch.Tensor) -> bool:
    """Of one storage: does the memory of one lie in that of the other?"""
    start, other = outer.storage_offset() * outer.element_size(), inner.storage_offset() * inner.element_size()
    return start <= other and other + span_bytes(inner) <= start + span_bytes(outer)
