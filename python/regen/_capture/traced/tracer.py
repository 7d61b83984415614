"""One dispatch mode below autograd: every operator that eager would run becomes a node of the program, and runs without data."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from regen._capture.conversion import Value
from regen._capture.program_builder import ProgramBuilder, draws_random_numbers, json_argument
from regen._capture.traced.decisions import Decisions
from regen._capture.traced.draws import Draws
from regen._capture.traced.fakes import DEPENDS_ON_VALUES, Fakes, leaves_of, mapped, tensors_of
from regen._capture.traced.functional_forms import functional_form
from regen._capture.traced.live import LiveTensors
from regen._capture.traced.regions import Origin, Region, View, Viewing, geometry_of
from regen._capture.traced.sources import Source, Sources
from regen._capture.traced.symbols import plain
from regen._capture.traced.tensor import TracedTensor
from regen._capture.traced.writes import Writes
from regen._islands.places import NeedsIsland, Place, running_functions
from regen._progress.work import current_capture
from regen.errors import CaptureError

aten = torch.ops.aten

# Views that change nothing; a fresh tensor of numbers arrives by the last two.
SAME = {aten.detach.default, aten.alias.default, aten.lift_fresh.default, aten.lift.default}
FRESH = {aten.lift_fresh.default, aten.lift.default}
# Lazy operators, which mark a view, as those that do it: a program has no such marks.
MATERIALISED = {aten._conj.default: aten._conj_physical.default, aten._neg_view.default: aten.neg.default}
# Operators whose second argument is a list of indices or masks.
PUTS = {aten.index_put.default, aten._index_put_impl.default, aten._unsafe_index_put.default, aten.index.Tensor}
# Batch norm changes running statistics behind its schema's back. In training its backward pass is handed the buffers and does not read them;
# the old ones stand there, so that the new ones need not live across the step. Where the statistics are among the arguments:
BATCH_NORMS = {aten.native_batch_norm.default, aten.cudnn_batch_norm.default}
BATCH_NORM_BACKWARDS = {aten.native_batch_norm_backward.default: (3, 4), aten.cudnn_batch_norm_backward.default: (3, 4)}


class Tracer(TorchDispatchMode):
    """Writes down a program while the user's code runs."""

    def __init__(self, builder: ProgramBuilder, live: LiveTensors, fakes: Fakes, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.builder, self.live, self.fakes = builder, live, fakes
        self.regions: dict[int, Region] = {}  # identity of a fake storage -> region
        self.sources, self.draws = Sources(model), Draws(builder.device)
        self.writes = Writes(self)
        self.decisions = Decisions(self)
        self.counts: dict[str, int] = {}
        self.refused_at = ""  # the user's line whose operator cannot be captured
        self.refused_in: list[Place] = []  # functions of the model that were running then
        self.reasons: dict[Any, str] = {}  # Place.key() -> why it is an island
        self.samples: list[Any] = []  # flat inputs, then what is derived from them
        self.progress = current_capture()

    # What exists before the step.

    def new_input(self, name: str, role: str, key: Any, sample: torch.Tensor, requires_grad: bool = False) -> TracedTensor:
        """A tensor that the caller brings: an input, or the gradient of an output."""
        fake = self.input_like(key, sample) if role == "input" else self.fakes.like(sample)
        storage = self.builder.add_storage(name, role, fake.untyped_storage().nbytes(), fake.device)
        if role == "input":
            self.builder.tensors[storage] = sample
            self.decisions.inputs[storage] = key
        region = Region(storage, fake, fake.untyped_storage().nbytes(), Origin(role, key, sample))
        region.values[geometry_of(fake)] = Value(self.builder.add_value(storage, fake, 0))
        self.regions[fake.untyped_storage()._cdata] = region
        return TracedTensor(fake, region, self, requires_grad)

    def input_like(self, flat_input: int, sample: torch.Tensor) -> torch.Tensor:
        symbols = self.fakes.symbols
        if symbols is None or flat_input >= len(self.samples):
            return self.fakes.like(sample)
        sizes = symbols.sizes_of(flat_input, sample)
        if not sample.is_contiguous():
            if any(isinstance(n, torch.SymInt) for n in sizes):
                raise CaptureError("an input whose sizes vary is not contiguous; expected contiguous ones")
            return self.fakes.like(sample)
        strides: list[Any] = [1] * len(sizes)
        for dimension in range(len(sizes) - 2, -1, -1):
            strides[dimension] = strides[dimension + 1] * sizes[dimension + 1]
        return self.fakes.empty(sizes, strides, sample.dtype, sample.device)

    def place(self, tensor: torch.Tensor | View, fresh: bool = False) -> tuple[torch.Tensor, Region]:
        """How a tensor looks, and the memory it is a view of."""
        if isinstance(tensor, View):
            return tensor.fake, tensor.region
        if isinstance(tensor, TracedTensor):
            if tensor.tracer is self:
                return tensor.fake, tensor.region
            tensor = tensor.constant()  # an earlier capture has left it in a cache of the user's code
        lifted = self.live.lift(tensor, fresh)
        self.regions.setdefault(lifted.fake.untyped_storage()._cdata, lifted.region)
        return lifted.fake, lifted.region

    # Operators.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """An operator as eager would run it."""
        try:
            return self.dispatched(func, args, kwargs or {})
        except CaptureError as error:
            self.note_refusal(error)
            raise

    def note_refusal(self, error: CaptureError) -> None:
        """Where the user's code is."""
        self.refused_at = self.refused_at or self.sources.here().line
        if isinstance(error, NeedsIsland) and not self.refused_in:
            self.refused_in = running_functions(self.model)

    def dispatched(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func in SAME:
            return self.same(args[0], func in FRESH)
        if is_composite(func):  # under inference_mode nothing above has taken it apart
            with self:
                return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        if returns_numbers(func):
            return self.number(func, args, kwargs)
        if func in MATERIALISED:
            return self.compute(MATERIALISED[func], args, kwargs)
        if self.fakes.symbols is not None and func is aten.slice_backward.default and is_whole(args):
            return self.same(args[0])
        if torch.Tag.inplace_view in func.tags:
            return self.change_shape(func, args, kwargs)
        if func._schema.is_mutable:
            return self.writes.write(func, args, kwargs)
        if func in BATCH_NORMS and args[5] and args[3] is not None:
            return self.writes.batch_norm(func, args)
        return self.compute(func, args, kwargs)

    def same(self, tensor: torch.Tensor, fresh: bool = False) -> TracedTensor:
        fake, region = self.place(tensor, fresh)
        made = TracedTensor(fake, region, self)
        made.made_by = getattr(tensor, "made_by", None)
        return made

    def compute(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
        """A functional operator or a view: adds its node and returns what it makes."""
        kwargs = kwargs or {}
        if op in PUTS:
            args = (args[0], self.decisions.with_known_places(args[1]), *args[2:])
        try:
            returned = self.fakes.run(op, self.as_fakes(args), {k: self.as_fakes(a) for k, a in kwargs.items()})
        except DEPENDS_ON_VALUES as error:
            return self.decisions.sized_by_values(op, args, kwargs, error)
        return self.computed(op, args, kwargs, returned)

    def computed(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any], returned: Any) -> Any:
        """The same with what the operator would return."""
        random = draws_random_numbers(op, args, kwargs)
        if random:
            repeated = self.repeated_draw(op, args, kwargs, returned)
            if repeated is not None:
                return repeated
        source = self.sources.here()
        json_args = [self.argument(a, op, position, args) for position, a in enumerate(args)]
        json_kwargs = {k: self.argument(a, op) for k, a in kwargs.items()}
        made = self.results(op, args, kwargs, returned, json_args, json_kwargs, source)
        if random:
            self.note_draw(op, args, kwargs, made)
        return made

    def as_fakes(self, tree: Any) -> Any:
        return mapped(lambda leaf: self.place(leaf)[0] if isinstance(leaf, torch.Tensor) else leaf, tree)

    def results(self, op: Any, args: Any, kwargs: Any, returned: Any, json_args: list[Any], json_kwargs: dict[str, Any], source: Source) -> Any:
        """Traced tensors for what an operator returns, and its node unless all of that is known already."""
        name, fakes = self.next_name(op), leaves_of(returned)
        for fake in tensors_of(returned):
            check_layout(fake)
        before = {id(f) for f in fakes if isinstance(f, torch.Tensor) and f.untyped_storage()._cdata in self.regions}
        values: list[Value | None] = []
        made: list[Any] = []
        known = 0  # views that exist already
        for index, fake in enumerate(fakes):
            if not isinstance(fake, torch.Tensor):
                check_result(op, fake)
                values.append(None)
                made.append(fake)
                continue
            tensor, value, new = self.result(f"{name}.{index}" if len(fakes) > 1 else name, fake)
            if id(fake) in before:
                tensor.made_by = Viewing(op, mapped(as_view, args), {k: mapped(as_view, a) for k, a in kwargs.items()}, index, len(fakes))
            if not new and value in values:  # two results in one memory: values are made once
                value, new = self.new_value(tensor.region, fake), True
            known += not new
            values.append(value if new else None)
            made.append(tensor)
        if known < len(fakes) or not fakes:
            self.add_node(self.builder.make_node(name, op, "forward", json_args, json_kwargs, values, *source))
        rest = iter(made)
        return mapped(lambda _: next(rest), returned)

    def result(self, name: str, fake: torch.Tensor) -> tuple[TracedTensor, Value, bool]:
        """(tensor, value, whether the value is new) for one fake tensor that an operator returned."""
        key = fake.untyped_storage()._cdata
        region = self.regions.get(key)
        if region is None:
            storage = self.builder.add_storage(name, "computed", fake.untyped_storage().nbytes(), fake.device)
            region = self.regions[key] = Region(storage, fake, fake.untyped_storage().nbytes())
        tensor = TracedTensor(fake, region, self)
        value = region.values.get(geometry_of(fake))
        if value is None:
            return tensor, self.new_value(region, fake), True
        return tensor, value, False

    def new_value(self, region: Region, fake: torch.Tensor) -> Value:
        offset = fake.storage_offset() + region.shift // fake.element_size()
        value = region.values[geometry_of(fake)] = Value(self.builder.add_value(region.storage, fake, offset))
        return value

    def new_results(self, name: str, fakes: Sequence[torch.Tensor]) -> tuple[list[TracedTensor], list[Value | None]]:
        """(tensors, values) of a node that makes all of its results in memory of their own."""
        made = [self.result(f"{name}.{index}" if len(fakes) > 1 else name, fake) for index, fake in enumerate(fakes)]
        return [tensor for tensor, _, _ in made], [value for _, value, _ in made]

    def set_bytes(self, tensor: TracedTensor, size: int) -> None:
        """Of a flat tensor, once it is known."""
        self.builder.storages[tensor.region.storage]["bytes"] = size
        for value in tensor.region.values.values():
            self.builder.values[value]["sizes"] = [size]

    def add_node(self, node: dict[str, Any]) -> None:
        self.builder.nodes.append(node)
        if self.progress is not None:
            self.progress.reach(len(self.builder.nodes))
        self.decisions.note_node(node)

    def next_name(self, op: Any) -> str:
        return self.own_name(op._schema.name.split("::")[1])

    def own_name(self, name: str) -> str:
        """Of a node."""
        count = self.counts[name] = self.counts.get(name, -1) + 1
        return f"{name}_{count}" if count else name

    # Arguments.

    def argument(self, argument: Any, op: Any = None, position: int = -1, args: Sequence[Any] = ()) -> Any:
        if isinstance(argument, (torch.Tensor, View)):
            statistics = position in BATCH_NORM_BACKWARDS.get(op, ()) and (op is not aten.native_batch_norm_backward.default or args[7])
            if statistics and isinstance(argument, torch.Tensor):
                return {"value": int(self.value_before(argument))}
            return {"value": int(self.value_of(argument))}
        if isinstance(argument, (list, tuple)):
            return [self.argument(item) for item in argument]
        return json_argument(argument, self.builder.name)

    def value_of(self, tensor: torch.Tensor | View) -> Value:
        """What is in a tensor now."""
        fake, region = self.place(tensor)
        value = region.values.get(geometry_of(fake))
        if value is not None:
            return value
        if region.version == 0 and region.origin is not None:
            return self.new_value(region, fake)
        made_by = getattr(tensor, "made_by", None)
        return self.as_strided(region, fake) if made_by is None else self.viewed_again(region, fake, made_by)

    def value_before(self, tensor: torch.Tensor) -> Value:
        """What was in a tensor before the step."""
        fake, region = self.place(tensor)
        if region.version == 0 or region.origin is None:
            return self.value_of(tensor)
        value = region.first.get(geometry_of(fake))
        if value is None:
            offset = fake.storage_offset() + region.first_shift // fake.element_size()
            value = region.first[geometry_of(fake)] = Value(self.builder.add_value(region.first_storage, fake, offset))
        return value

    def viewed_again(self, region: Region, fake: torch.Tensor, by: Viewing) -> Value:
        """The view operator that made a tensor, once more, on the new contents of its source."""
        args, kwargs = [self.argument(a) for a in by.args], {k: self.argument(a) for k, a in by.kwargs.items()}
        value = self.new_value(region, fake)
        values = [value if i == by.index else None for i in range(by.count)]
        self.add_node(self.builder.make_node(self.next_name(by.op), by.op, "forward", args, kwargs, values, *self.sources.here()))
        return value

    def as_strided(self, region: Region, fake: torch.Tensor) -> Value:
        """A view of new contents that were written through another view."""
        whole = next(iter(region.values.values()))
        op = aten.as_strided.default
        value = self.new_value(region, fake)
        args = [{"value": int(whole)}, list(fake.shape), list(fake.stride()), self.builder.values[value]["offset"]]
        self.add_node(self.builder.make_node(self.next_name(op), op, "forward", args, {}, [value], *self.sources.here()))
        return value

    # Random numbers.

    def repeated_draw(self, op: Any, args: Any, kwargs: Any, returned: Any) -> Any:
        fakes = tensors_of(returned)
        earlier = self.draws.repeated(fakes[0].device, draw_of(op, args, kwargs))
        if earlier is None:
            return None
        rest = iter(earlier)

        def again(fake: Any) -> Any:
            if not isinstance(fake, torch.Tensor):
                return fake
            storage, value = next(rest)
            region = self.regions[fake.untyped_storage()._cdata] = Region(storage, fake, fake.untyped_storage().nbytes())
            region.values[geometry_of(fake)] = value
            return TracedTensor(fake, region, self)

        return mapped(again, returned)

    def note_draw(self, op: Any, args: Any, kwargs: Any, made: Any) -> None:
        tensors = tensors_of(made)
        places = [(self.place(t)[1].storage, self.value_of(t)) for t in tensors]
        self.draws.note(tensors[0].device, draw_of(op, args, kwargs), places)

    # Numbers and shapes.

    def number(self, op: Any, args: Any, kwargs: Any) -> Any:
        """An operator that returns no tensor: of sizes, or of values."""
        if op is not aten._local_scalar_dense.default and op is not aten.equal.default:
            try:
                return self.fakes.run(op, self.as_fakes(args), {k: self.as_fakes(a) for k, a in kwargs.items()})
            except DEPENDS_ON_VALUES:
                pass
        return self.decisions.number(op, args, kwargs)

    def read(self, tensor: TracedTensor) -> torch.Tensor:
        """The values of a tensor, for Python."""
        try:
            with no_dispatch(), torch.no_grad():
                return self.decisions.contents(tensor)
        except CaptureError as error:
            self.note_refusal(error)
            raise

    def change_shape(self, op: Any, args: Any, kwargs: Any) -> Any:
        """`unsqueeze_` and the like: another view of the same memory by the same tensor."""
        tensor = args[0]
        if not isinstance(tensor, TracedTensor):
            raise CaptureError(f"{op} on a tensor of the model; expected views that leave it as it is (the form without an underscore)")
        made = self.compute(functional_form(op), args, kwargs)
        with no_dispatch():
            op(*args, **kwargs)
        tensor.fake, tensor.made_by = made.fake, made.made_by
        return tensor


@functools.cache
def returns_numbers(op: Any) -> bool:
    """Numbers and nothing else."""
    kinds = [str(r.type) for r in op._schema.returns]
    return bool(kinds) and all(kind in ("bool", "int", "float", "number", "Scalar", "SymInt") for kind in kinds)


@functools.cache
def is_composite(op: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd") and not any(
        torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key) for key in ("CPU", "CUDA", "CompositeExplicitAutograd"))


def is_whole(args: Sequence[Any]) -> bool:
    """Of a slice's gradient: was nothing cut off? `x[:, 0:]` is `x` itself where sizes are numbers, and a slice where they are symbols."""
    gradient, sizes = args[0], args[1]
    return args[5] == 1 and [plain(n) for n in gradient.shape] == [plain(n) for n in sizes]


def as_view(leaf: Any) -> Any:
    return View(leaf.fake, leaf.region, leaf.made_by) if isinstance(leaf, TracedTensor) else leaf


def draw_of(op: Any, args: Any, kwargs: Any) -> Any:
    """What two draws from the same state must have in common."""
    described = [(tuple(x.shape), tuple(x.stride()), x.dtype) if isinstance(x, torch.Tensor) else str(x) for x in leaves_of((args, kwargs))]
    return op, tuple(described)


def check_layout(fake: torch.Tensor) -> None:
    if fake.layout is not torch.strided or fake.is_conj() or fake.is_neg():
        kind = fake.layout if fake.layout is not torch.strided else "lazily conjugated or negated tensor"
        raise CaptureError(
            f"an operator returns a {kind}; expected dense tensors (nn.Embedding(sparse=False), x.to_dense(), x.resolve_conj(), x.resolve_neg())")


def check_result(op: Any, result: Any) -> None:
    if result is not None and not isinstance(result, (bool, int, float)):
        raise CaptureError(f"{op} returns a {type(result).__name__}; expected operators that return dense tensors")


