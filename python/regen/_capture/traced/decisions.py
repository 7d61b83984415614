"""Values that the user's code reads while it is traced: a branch on a mask, a number, a size.

They are computed for real from the sample batch. What came out is a condition of the capture: before each later step the same few operators run
on the new batch, and another outcome needs another capture. Only what follows from inputs, buffers and random draws can be read so.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._mode_utils import no_dispatch

from regen._capture.program_builder import reads_of, referenced_values
from regen._capture.traced.evaluation import Described, Evaluation, flat, view_of_input, view_of_storage
from regen._capture.traced.fakes import mapped
from regen._capture.traced.symbols import of_sample
from regen._islands.operators import NAMES
from regen._islands.places import NeedsIsland
from regen.errors import CaptureError, UsageError

if TYPE_CHECKING:
    from regen._capture.traced.tracer import Tracer

aten = torch.ops.aten
# Elements, of all that is computed for one decision: at each step it is computed before the step begins.
MOST_ELEMENTS = 1 << 24
ROLES = ("input", "buffer", "constant")
# Operators whose results have sizes that follow from some of their arguments: the places of the others.
SIZED_BESIDE = {aten._ctc_loss.Tensor: (0,)}


class LayoutsBeside:
    """Calls an operator with zeros in the place of some arguments, and says how its results look."""

    def __init__(self, op: Any, looks: dict[int, tuple[Any, ...]]) -> None:
        """`looks`: place of an argument -> sizes, strides, type, device."""
        self.op, self.looks = op, looks
        self.made: list[tuple[Any, ...]] = []  # of the last call's results, the same

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        given = list(args)
        for place, (sizes, strides, dtype, device) in self.looks.items():
            given[place] = torch.empty_strided(sizes, strides, dtype=dtype, device=device).zero_()
        self.made = [(tuple(t.shape), tuple(t.stride()), t.dtype, t.device) for t in flat(self.op(*given, **kwargs))]
        return repr(self.made)


@dataclasses.dataclass
class Decision:
    """One read of values, with what leads to it."""

    source: str
    op: Any  # None: the contents of one tensor
    args: list[Any]
    kwargs: dict[str, Any]
    nodes: list[tuple[dict[str, Any], bool]]  # node, and whether it runs only for its draw
    outcome: Any = None
    derived: list[int] = dataclasses.field(default_factory=list)  # values that it makes, which are inputs of the program

    def run(self, evaluation: Evaluation) -> Any:
        for node, for_its_draw in self.nodes:
            evaluation.run(node, for_its_draw)
        args = [evaluation.argument(a) for a in self.args]
        if self.op is None:
            return args[0]
        return self.op(*args, **{k: evaluation.argument(a) for k, a in self.kwargs.items()})

    def holds(self, evaluation: Evaluation) -> list[torch.Tensor] | None:
        """The tensors that it derives for a new batch; None: the user's code would do something else."""
        returned = self.run(evaluation)
        if outcome_of(returned, bool(self.derived)) != self.outcome:
            return None
        made = [t for t in flat(returned) if isinstance(t, torch.Tensor)] if self.derived else []
        evaluation.found.update(zip(self.derived, made))
        return made


@dataclasses.dataclass
class Conditions:
    """All decisions of a capture, in the form that later steps ask."""

    decisions: list[Decision]
    described: dict[int, Described]  # value -> how it looks, and where it is: "input" (a number), "tensor" (a constant) or "storage"

    def for_sizes(self, numbers: Callable[[Any], Any]) -> "Conditions":
        """The same for a batch of other sizes. `numbers`: of a tree with symbols.

        Raises:
            CaptureError: what was read has another size, too.
        """
        for decision in self.decisions:
            if decision.derived or decision.op is None or isinstance(decision.op, LayoutsBeside):
                raise CaptureError("the contents of a tensor are read where sizes vary; expected decisions that are numbers")
        nodes = {id(node): numbers(node) for decision in self.decisions for node, _ in decision.nodes}
        decisions = [
            dataclasses.replace(d, args=numbers(d.args), kwargs=numbers(d.kwargs), nodes=[(nodes[id(n)], drawn) for n, drawn in d.nodes])
            for d in self.decisions]
        return Conditions(decisions, {value: numbers(described) for value, described in self.described.items()})

    def derived(self, inputs: Sequence[Any], tensor_of: Callable[[int], torch.Tensor]) -> list[torch.Tensor] | None:
        """What the capture takes beside the inputs; None: it is not for this batch.

        Args:
            inputs: flat, of the batch.
            tensor_of: the live tensor of a storage.
        """
        def bring(value: int) -> torch.Tensor:
            described = self.described[value]
            if "input" in described:
                return view_of_input(inputs[described["input"]], described)
            if "tensor" in described:
                return view_of_storage(described["tensor"], described)
            return view_of_storage(tensor_of(described["storage"]), described)

        made: list[torch.Tensor] = []
        with torch.no_grad(), torch._C._DisableAutocast():  # as below autograd, where they were traced
            evaluation = Evaluation(self.described, bring, {})
            for decision in self.decisions:
                tensors = decision.holds(evaluation)
                if tensors is None:
                    return None
                made += tensors
        return made


class Decisions:
    """Reads of a trace, for a tracer."""

    def __init__(self, tracer: "Tracer") -> None:
        self.tracer = tracer
        self.items: list[Decision] = []
        self.node_of: dict[int, dict[str, Any]] = {}
        self.order: dict[int, int] = {}  # identity of a node -> its place
        self.nodes: list[dict[str, Any]] = []  # held: identities are addresses
        self.random: list[dict[str, Any]] = []
        self.described: dict[int, Described] = {}
        self.evaluation: Evaluation | None = None
        self.inputs: dict[int, Any] = {}  # storage -> flat input
        self.places: dict[int, list[torch.Tensor]] = {}  # value of a mask -> where it is set, for each dimension

    def note_node(self, node: dict[str, Any]) -> None:
        """Keeps a copy: nodes of the program lose the results that only decisions read."""
        node = dict(node)
        self.order[id(node)] = len(self.order)
        self.nodes.append(node)
        if node["random"]:
            self.random.append(node)
        for value in node["outputs"]:
            if value is not None:
                self.node_of[int(value)] = node

    # What is read.

    def number(self, op: Any, args: Any, kwargs: Any) -> Any:
        dtype = args[0].dtype if args and isinstance(args[0], torch.Tensor) else None
        what = "a branch depends on the values of a tensor" if dtype is torch.bool or op._schema.returns[0].type.kind() == "BoolType" else (
            "a tensor's value is read into Python")
        return self.decide(op, [self.tracer.argument(a) for a in args], self.keywords(kwargs), what)

    def contents(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of a tensor's values."""
        argument = {"value": int(self.tracer.value_of(tensor))}
        return self.decide(None, [argument], {}, "a tensor's values are read into Python").clone()

    def constant(self, tensor: torch.Tensor) -> torch.Tensor:
        """The values of a tensor that outlives its trace. Computed anew: nothing of a batch or of the model may be in it."""
        with no_dispatch(), torch.no_grad():
            value = int(self.tracer.value_of(tensor))
            try:
                nodes = self.nodes_behind([value], "", ("constant",))
            except CaptureError:
                nodes = None
            if nodes is None or any(node["random"] for node, _ in nodes):
                raise UsageError(
                    "regen: a tensor that was only there while a model was captured is used afterwards; expected forward passes that keep no tensors "
                    "of a step in global variables or caches")
            return Decision("", None, [{"value": value}], {}, nodes).run(Evaluation(self.described, self.bring, {}))

    def known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The sample's values of a tensor; None: they do not follow from inputs, buffers, constants and draws."""
        try:
            value = int(self.tracer.value_of(tensor))
            nodes = self.nodes_behind([value], "")
        except CaptureError:
            return None
        return Decision("", None, [{"value": value}], {}, nodes).run(self.on_sample())

    def on_sample(self) -> Evaluation:
        if self.evaluation is None:
            self.evaluation = Evaluation(self.described, self.bring, self.tracer.draws.before)
        return self.evaluation

    def sized_by_values(self, op: Any, args: Any, kwargs: Any, error: Exception) -> Any:
        """Results whose sizes depend on values are inputs of the program: they are made before each step."""
        if op is aten.index.Tensor or op is aten.masked_select.default:
            return self.index_by_numbers(*args)
        if op in SIZED_BESIDE:
            return self.sized_beside(op, args, kwargs)
        given = [self.tracer.argument(a) for a in args]
        returned = self.decide(op, given, self.keywords(kwargs), "the size of a tensor depends on the values of another", derives=True)

        def as_input(made: Any) -> Any:
            if not isinstance(made, torch.Tensor):
                return made
            tracer = self.tracer
            index = len(tracer.samples)
            tracer.samples.append(made)
            traced = tracer.new_input(f"derived.{index}", "input", index, made)
            value = int(tracer.value_of(traced))
            decision.derived.append(value)
            assert self.evaluation is not None
            self.evaluation.found[value] = made
            return traced

        decision = self.items[-1]
        return mapped(as_input, returned)

    def sized_beside(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Some arguments are what the model computes, and sizes follow from the others, as the lengths of a CTC loss."""
        beside = SIZED_BESIDE[op]
        looks = {i: self.tracer.place(args[i])[0] for i in beside}
        sized = LayoutsBeside(op, {i: (tuple(f.shape), tuple(f.stride()), f.dtype, f.device) for i, f in looks.items()})
        given = [None if i in beside else self.tracer.argument(a) for i, a in enumerate(args)]
        self.decide(sized, given, self.keywords(kwargs), "the size of a tensor depends on the values of another")
        return self.tracer.computed(op, args, kwargs, tuple(self.tracer.fakes.empty(*layout) for layout in sized.made))

    def index_by_numbers(self, tensor: torch.Tensor, masks: Any) -> Any:
        """Selecting by a mask is selecting by the places where it is set, which may be known although the tensor's values are not."""
        compute = self.tracer.compute
        if isinstance(masks, torch.Tensor):
            sizes = list(torch.broadcast_shapes(tensor.shape, masks.shape))
            tensor, masks = (compute(aten.expand.default, (t, sizes)) for t in (tensor, masks))
            masks = [masks]
        indices: list[Any] = []
        for mask in masks:
            if mask is None or mask.dtype not in (torch.bool, torch.uint8):
                indices.append(mask)
            else:
                places = compute(aten.nonzero.default, (mask,))
                self.places[self.tracer.value_of(mask)] = [compute(aten.select.int, (places, 1, d)) for d in range(mask.dim())]
                indices += self.places[self.tracer.value_of(mask)]
        return compute(aten.index.Tensor, (tensor, indices))

    def with_known_places(self, masks: Sequence[Any]) -> list[Any]:
        """The masks that something was selected by, as the places where they are set: what is put there has that many elements."""
        found = []
        for mask in masks:
            is_mask = isinstance(mask, torch.Tensor) and mask.dtype in (torch.bool, torch.uint8)
            known = self.places.get(self.tracer.value_of(mask)) if is_mask and self.places else None
            found += [mask] if known is None else known
        return found

    def keywords(self, kwargs: Any) -> dict[str, Any]:
        return {k: self.tracer.argument(a) for k, a in kwargs.items()}

    # How it is computed.

    def decide(self, op: Any, args: list[Any], kwargs: dict[str, Any], what: str, derives: bool = False) -> Any:
        source = self.tracer.sources.here().line
        nodes = self.nodes_behind(referenced_values([args, list(kwargs.values())]), what)
        decision = Decision(source, op, args, kwargs, nodes)
        returned = decision.run(self.on_sample())
        decision.outcome = outcome_of(returned, derives)
        self.items.append(decision)
        return returned

    def nodes_behind(self, values: list[int], what: str, roles: Sequence[str] = ROLES) -> list[tuple[dict[str, Any], bool]]:
        """The nodes that lead to values, in order, and all draws before the last of theirs."""
        behind: dict[int, dict[str, Any]] = {}
        pending, elements = list(values), 0
        while pending:
            value = int(pending.pop())
            elements += math.prod(of_sample(self.describe(value)["sizes"]))
            node = self.node_of.get(value)
            if node is None:
                self.check_brought(value, what, roles)
            elif node["op"] in NAMES:
                raise NeedsIsland(f"{what} that follows from an island ({node['name']}); expected branches, numbers and sizes that follow from inputs")
            elif id(node) not in behind:
                behind[id(node)] = node
                pending += reads_of(node)
        if elements > MOST_ELEMENTS:
            raise NeedsIsland(f"{what}, which follows from {elements} numbers; expected {MOST_ELEMENTS} at most")
        last = max((self.order[id(n)] for n in behind.values() if n["random"]), default=-1)
        drawn = [n for n in self.random if self.order[id(n)] <= last and id(n) not in behind]
        if any(n["op"] in NAMES for n in drawn):
            raise NeedsIsland(f"{what} that follows from a draw behind those of an island; expected draws whose number is known")
        for node in drawn:
            for value in reads_of(node):
                self.describe(value)
        return sorted([(n, False) for n in behind.values()] + [(n, True) for n in drawn], key=lambda item: self.order[id(item[0])])

    def check_brought(self, value: int, what: str, roles: Sequence[str]) -> None:
        builder = self.tracer.builder
        storage = builder.storages[builder.values[value]["storage"]]
        if storage["role"] not in roles:
            raise NeedsIsland(
                f"{what} that the model computes (it follows from {storage['name']}); expected branches, numbers and sizes that follow from "
                "inputs")

    def describe(self, value: int) -> Described:
        value = int(value)
        if value not in self.described:
            builder = self.tracer.builder
            described = dict(builder.values[value])
            storage = described["storage"]
            described["device"] = builder.storages[storage].get("device", str(builder.device))
            if builder.storages[storage]["role"] == "input":
                described["input"] = self.inputs[storage]
            if builder.storages[storage]["role"] == "constant":
                described["tensor"] = builder.tensors[storage]
            self.described[value] = described
        return self.described[value]

    def bring(self, value: int) -> torch.Tensor:
        described = of_sample(self.describe(value))
        tensor = self.tracer.builder.tensors[described["storage"]]
        return view_of_input(tensor, described) if "input" in described else view_of_storage(tensor, described)

    def conditions(self, storage_map: dict[int, int]) -> Conditions | None:
        """For later steps; None: the capture is for every batch of its shape."""
        if not self.items:
            return None
        described = {
            v: {**d, "storage": storage_map.get(d["storage"], -1)} for v, d in self.described.items()}
        return Conditions(self.items, described)


def outcome_of(returned: Any, derives: bool) -> Any:
    """What the user's code can see of a result: a number, the sizes of derived tensors, or the bits of contents."""
    if derives:
        return tuple((tuple(t.shape), tuple(t.stride()), t.dtype) for t in flat(returned) if isinstance(t, torch.Tensor))
    if isinstance(returned, torch.Tensor):
        return tuple(returned.shape), returned.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes()
    return repr(returned)
