"""The tensor that the user's code sees while it is traced: sizes and strides of the real one, and no data.

It is no FakeTensor, so that libraries that ask whether they are being traced take the path they take in eager.
"""

from typing import TYPE_CHECKING, Any

import torch

from regen._capture.traced.fakes import mapped

if TYPE_CHECKING:
    from regen._capture.traced.regions import Region, Viewing
    from regen._capture.traced.tracer import Tracer


class TracedTensor(torch.Tensor):
    """A view of a region. Autograd takes it for a plain tensor.

    Attributes:
        fake: how the tensor looks; its storage identifies the region.
        region: the memory that it is a view of.
        made_by: the view operator that made it; None: no view.
    """

    fake: torch.Tensor
    region: "Region"
    tracer: "Tracer"
    made_by: "Viewing | None"
    kept: torch.Tensor | None

    @staticmethod
    def __new__(cls, fake: torch.Tensor, region: "Region", tracer: "Tracer", requires_grad: bool = False) -> "TracedTensor":
        made: Any = torch.Tensor._make_wrapper_subclass(
            cls, fake.size(), strides=fake.stride(), storage_offset=fake.storage_offset(), dtype=fake.dtype, layout=fake.layout,
            device=fake.device, requires_grad=requires_grad)
        made.fake, made.region, made.tracer, made.made_by, made.kept = fake, region, tracer, None, None
        return made

    # Off, so that `torch.overrides.has_torch_function` says no and fast paths of torch.nn are taken as in eager.
    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore[reportAssignmentType]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Reached only when no tracer is active: a cache of the user's code has kept the tensor beyond its trace."""
        real = [mapped(lambda x: x.constant() if isinstance(x, TracedTensor) else x, tree) for tree in (args, list((kwargs or {}).values()))]
        return func(*real[0], **dict(zip(kwargs or {}, real[1])))

    def constant(self) -> torch.Tensor:
        """The real tensor, for one that does not depend on the batch or the model, such as a table of positions.

        Raises:
            UsageError: it does.
        """
        if self.kept is None:
            self.kept = self.tracer.decisions.constant(self)
        return self.kept

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"TracedTensor(shape={tuple(self.shape)}, dtype={self.dtype})"

    # Ways to read values that do not go through the dispatcher.

    def tolist(self) -> Any:
        return self.tracer.read(self).tolist()

    def numpy(self, *, force: bool = False) -> Any:
        return self.tracer.read(self).numpy(force=force)

    def __array__(self, dtype: Any = None) -> Any:
        return self.tracer.read(self).__array__(dtype)
