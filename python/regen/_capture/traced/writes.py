"""Operators that write, as functional ones whose results become the contents of what is written."""

from typing import TYPE_CHECKING, Any

import torch

from regen._capture.traced.fakes import leaves_of
from regen._capture.traced.functional_forms import functional_form, written_arguments
from regen._capture.traced.regions import covers, geometry_of, is_dense
from regen._capture.traced.tensor import TracedTensor
from regen.errors import CaptureError

if TYPE_CHECKING:
    from regen._capture.traced.tracer import Tracer

aten = torch.ops.aten
CUDNN_BATCH_NORM = aten.cudnn_batch_norm.default
# Elements from which on the CPU fills contiguous memory with normal numbers, in another order than other memory. The functional form keeps the
# layout of a dense tensor, so it does the same; gaps it does not keep.
LEAST_FILLED = 16
FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)


class Writes:
    """Makes writes functional, for a tracer."""

    def __init__(self, tracer: "Tracer") -> None:
        self.tracer = tracer
        self.special = {
            aten.copy_.default: self.copy,
            aten.zero_.default: lambda target: self.fill(target, 0),
            aten.fill_.Scalar: self.fill,
            aten.fill_.Tensor: self.copy,
        }

    def write(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Returns what `op` returns: the written tensors themselves, and new ones."""
        if op in self.special:
            self.special[op](*args)
            return args[0]
        targets = [tensor for argument in self.written(op, args, kwargs) for tensor in leaves_of(argument) if tensor is not None]
        if torch.Tag.nondeterministic_seeded in op.tags and len(targets) == 1 and targets[0] is args[0]:
            self.draw(op, targets[0], with_defaults(op, args)[1:], kwargs)
            return targets[0]
        form = functional_form(op)
        given = {k: a for k, a in kwargs.items() if not self.is_out(op, k)}
        made = self.tracer.compute(form, args, given)
        return self.returned(op, args, kwargs, targets, made)

    def written(self, op: Any, args: Any, kwargs: Any) -> list[Any]:
        return [
            args[w.position] if w.position is not None and w.position < len(args) else kwargs.get(w.name) for w in written_arguments(op)]

    def is_out(self, op: Any, name: str) -> bool:
        """Written only, not read."""
        return any(w.position is None and w.name == name for w in written_arguments(op))

    def returned(self, op: Any, args: Any, kwargs: Any, targets: list[Any], made: Any) -> Any:
        made = leaves_of(made)
        plain = len(made) - len(targets)
        for target, result in zip(targets, made[plain:]):
            self.store(target, result)
        kinds = [r.alias_info is not None for r in op._schema.returns]
        if not kinds:
            return None
        rest, own = iter(made[:plain]), iter(self.written(op, args, kwargs))
        returned = [next(own) if aliased else next(rest) for aliased in kinds]
        return returned[0] if len(returned) == 1 else tuple(returned)

    # Special operators.

    def copy(self, target: torch.Tensor, source: Any, non_blocking: bool = False) -> None:
        compute = self.tracer.compute
        fake, region = self.tracer.place(target)
        if not isinstance(source, torch.Tensor):
            return self.fill(target, source)
        if source.shape != fake.shape:
            source = compute(aten.expand.default, (source, list(fake.shape)))
        if not covers(fake, region) and source.device == fake.device:
            return self.store(target, source)
        memory_format = next((f for f in FORMATS if fits(fake, f)), None)
        if memory_format is None:
            made = compute(aten.copy.default, (target, source))
        elif source.dtype != fake.dtype or source.device != fake.device:
            made = compute(aten._to_copy.default, (source,), {"dtype": fake.dtype, "device": fake.device, "memory_format": memory_format})
        else:
            made = compute(aten.clone.default, (source,), {"memory_format": memory_format})
        self.store(target, made)

    def fill(self, target: torch.Tensor, number: Any) -> None:
        fake, _ = self.tracer.place(target)
        if fake.is_contiguous():
            options = {"dtype": fake.dtype, "device": fake.device, "layout": torch.strided, "pin_memory": False}
            made = self.tracer.compute(aten.full.default, (list(fake.shape), number), options)
        else:
            made = self.tracer.compute(aten.full_like.default, (target, number))
        self.store(target, made)

    def draw(self, op: Any, target: torch.Tensor, rest: Any, kwargs: Any) -> None:
        """In place, numbers are drawn in the order of memory; the functional form draws in the order of indices into contiguous memory.
        Turned so that both orders agree, it draws the same.
        """
        compute, (fake, _) = self.tracer.compute, self.tracer.place(target)
        order = sorted(range(fake.dim()), key=lambda d: -fake.stride(d))
        turned = order != list(range(fake.dim())) and not fake.is_contiguous() and op is not aten.normal_.default
        if op is aten.normal_.default and not is_dense(fake) and fake.numel() >= LEAST_FILLED:
            raise CaptureError("normal_() on a part of a tensor, which draws by itself what no functional operator draws; expected a whole tensor")
        source = compute(aten.permute.default, (target, order)) if turned else target
        made = compute(functional_form(op), (source, *rest), kwargs)
        if turned:
            made = compute(aten.permute.default, (made, [order.index(d) for d in range(fake.dim())]))
        self.store(target, made)

    def batch_norm(self, op: Any, args: Any) -> Any:
        """The functional form runs the same kernel on copies of the running statistics and hands the new ones back."""
        data, weight, bias, mean, variance, _, momentum, epsilon = args
        given = (data, weight, bias, mean, variance, momentum, epsilon) if op is CUDNN_BATCH_NORM else args
        made = self.tracer.compute(functional_form(op), given)
        self.store(mean, made[-2])
        self.store(variance, made[-1])
        return tuple(made[:-2])

    # Contents.

    def store(self, target: torch.Tensor, made: Any) -> None:
        """`made` becomes what is in `target`."""
        tracer = self.tracer
        fake, region = tracer.place(target)
        if made.shape != fake.shape:
            raise CaptureError(f"a result of shape {tuple(made.shape)} is written to a tensor of shape {tuple(fake.shape)}; expected the same")
        if not covers(fake, region):
            return self.store_part(target, made)
        if made.dtype != fake.dtype:
            made = tracer.compute(aten._to_copy.default, (made,), {"dtype": fake.dtype})
        made_fake, made_region = tracer.place(made)
        if not (same_strides(made_fake, fake) and covers(made_fake, made_region)):
            return self.store_relaid(target, made)
        value = tracer.value_of(made)
        region.hold(made_region.storage, geometry_of(fake), value, tracer.builder.values[value]["offset"])

    def store_relaid(self, target: torch.Tensor, made: Any) -> None:
        made = self.tracer.compute(aten.copy.default, (target, made))
        made_fake, made_region = self.tracer.place(made)
        fake, region = self.tracer.place(target)
        if not same_strides(made_fake, fake):
            raise CaptureError(f"a write to a tensor with strides {tuple(fake.stride())}; expected a dense tensor")
        value = self.tracer.value_of(made)
        region.hold(made_region.storage, geometry_of(fake), value, self.tracer.builder.values[value]["offset"])

    def store_part(self, target: torch.Tensor, made: Any) -> None:
        tracer = self.tracer
        fake, region = tracer.place(target)
        whole = TracedTensor(region.whole, region, tracer)
        if fake.dtype != region.whole.dtype or not is_dense(region.whole):
            raise CaptureError("a write to a part of a tensor through a view of another type, or of one with gaps; expected neither")
        offset = fake.storage_offset() - region.whole.storage_offset()
        scattered = tracer.compute(aten.as_strided_scatter.default, (whole, made, list(fake.shape), list(fake.stride()), offset))
        value = tracer.value_of(scattered)
        region.hold(scattered.region.storage, geometry_of(region.whole), value, tracer.builder.values[value]["offset"])


def with_defaults(op: Any, args: Any) -> list[Any]:
    """All positional arguments: the functional form may have other defaults, or none."""
    missing = [a.default_value for a in op._schema.arguments[len(args):] if not a.kwarg_only]
    return [*args, *missing]


def fits(fake: torch.Tensor, memory_format: torch.memory_format) -> bool:
    dimensions = {torch.channels_last: 4, torch.channels_last_3d: 5}.get(memory_format)
    return dimensions in (None, fake.dim()) and fake.is_contiguous(memory_format=memory_format)


def same_strides(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Strides of dimensions of size one mean nothing."""
    return all(a == b for a, b, n in zip(one.stride(), other.stride(), one.shape) if n > 1)
