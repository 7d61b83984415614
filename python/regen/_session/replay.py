"""A forward pass again from its beginning, at the time of its backward pass.

The arena holds the values of one pass. Some training loops run several before they go back (two images of a pair, a discriminator on real and
on made data), or go back twice through one (`retain_graph=True`). Then the pass whose values are gone runs again, with random numbers and
buffers as they were, and its backward pass at once behind it: more time, no more bytes.

The same serves gradients for outputs that a pass was captured without. A model that returns a loss is captured with a gradient for the loss
alone: others would have to be held to the end. Some loops make a loss of their own from the other outputs. Which of the two a loop does shows
in its first backward pass.
"""

import contextlib
import ctypes
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from regen._capture.capture import Captured
from regen._capture.phases import STATISTICS_PASS_THROUGH
from regen._capture.program_builder import reads_of, referenced_values
from regen._capture.traced.plain_state import Nothing, attribute
from regen._islands.surroundings import foreign_states, set_foreign_states
from regen._session.owned import Bindings
from regen.errors import UsageError

if TYPE_CHECKING:
    from regen._session.wrapped_module import ShapedModule, StepCall

DEVICES = ("cpu", "cuda")


class PassEffects:
    """What a forward pass changes beside its results, and what of that its results depend on. Found once for each captured step.

    Attributes:
        written: storages that it changes in place: buffers, and what the caller gave.
        read: those of them whose contents before the pass lead to results. Running statistics do not.
        changes_inputs: then a pass cannot run again.
        draws: random numbers, from torch's generator.
    """

    def __init__(self, captured: Captured) -> None:
        program = captured.program
        storages = program["storages"]
        self.written = written_storages(program)
        self.read = self.written if captured.conditions is not None else self.written & storages_before(program)
        self.changes_inputs = any(storages[s]["role"] != "buffer" for s in self.written)
        self.draws = bool(captured.islands) or any(node["random"] for node in program["nodes"])


def written_storages(program: dict[str, Any]) -> set[int]:
    """What the forward pass changes in place."""
    written = set()
    for node in program["nodes"]:
        if node["phase"] == "forward" and node["op"].split(".")[0].endswith("_"):
            written |= {program["values"][v]["storage"] for v in referenced_values([node["args"]])}
    return {s for s in written if program["storages"][s]["role"] in ("buffer", "input", "constant")}


def storages_before(program: dict[str, Any]) -> set[int]:
    """Those whose contents before the pass lead to its results."""
    needed = {result["value"] for result in program["results"]}
    for node in reversed(program["nodes"]):
        if any(v in needed for v in node["outputs"]):
            given = {v for v in reads_of(node) if is_computed(program, v)} if node["op"] in STATISTICS_PASS_THROUGH else reads_of(node)
            needed.update(given)
    return {program["values"][v]["storage"] for v in needed if not is_computed(program, v)}


def is_computed(program: dict[str, Any], value: int) -> bool:
    return program["storages"][program["values"][value]["storage"]]["role"] == "computed"


class Replay:
    """What a pass began with: random numbers, buffers that its results depend on, autocast, and its inputs."""

    def __init__(
        self, forward: Callable[[], "StepCall | None"], key: Callable[[], Hashable], begun_with: Hashable, shaped: "ShapedModule", flat: Sequence[Any],
    ) -> None:
        """`forward`: runs the pass again; `key`: of the shape and mode that a pass would be captured for now, `begun_with` that of this one."""
        self.forward, self.key, self.begun_with = forward, key, begun_with
        self.device = torch.device(shaped.session.device)
        self.effects = shaped.effects
        self.generators = generator_states(self.device) if self.effects.draws else None
        self.foreign = foreign_states() if shaped.captured.islands else None
        self.bindings = shaped.bindings
        self.buffers = with_contents(tensors_at(self.bindings, self.effects.read))
        self.attributes = present_attributes(shaped)
        self.autocast = {kind: torch.get_autocast_dtype(kind) for kind in DEVICES if torch.is_autocast_enabled(kind)}
        self.inputs = [(i, x, x._version) for i, x in enumerate(flat) if isinstance(x, torch.Tensor) and not x.is_inference()]

    def gradients(self, old: "ShapedModule", tangents: Sequence[torch.Tensor | None]) -> Mapping[Any, torch.Tensor | None] | None:
        """Of parameters and inputs: (kind, place, term) -> gradient; None: the model is in another mode by now, or has other outputs."""
        self.check_inputs()
        with torch.enable_grad(), self.entered_autocast():
            if not self.is_possible():
                return None
            with self.rewound():
                call = self.forward()
        if call is None or not fits(call.shaped, old):
            return None
        new = call.shaped
        found = {}
        for part, entries in enumerate(new.parts):
            made = call.run_backward(part, tangents if part == 0 else (None,))
            found.update({entry[1:]: gradient for entry, gradient in zip(entries, made)})
        return found

    def is_possible(self) -> bool:
        """Is the model in the same mode?"""
        return self.key() == self.begun_with

    def check_inputs(self) -> None:
        """The pass that runs again has to read what the first one read."""
        for position, tensor, version in self.inputs:
            if tensor._version != version:
                raise UsageError(
                    f"regen: input {position} was changed in place between the forward pass and its backward pass, which runs the forward pass again "
                    "because another one has run since; expected inputs that stay, or each backward pass before the next forward pass")

    @contextlib.contextmanager
    def rewound(self) -> Iterator[None]:
        """Everything is as before the pass inside, and as it is now after."""
        generators, foreign = generator_states(self.device), foreign_states()
        contents = with_contents(tensors_at(self.bindings, self.effects.written))
        set_generators(self.generators or generators, self.device)
        set_foreign_states(self.foreign or foreign)
        put_back(self.buffers)
        present = [(module, name, attribute(module, name)) for module, name, _ in self.attributes]
        set_attributes(self.attributes)
        try:
            yield
        finally:
            set_generators(generators, self.device)
            set_foreign_states(foreign)
            put_back(contents)
            set_attributes(present)

    def entered_autocast(self) -> contextlib.AbstractContextManager[Any]:
        """As it was around the pass. Backward passes run without."""
        stack = contextlib.ExitStack()
        for kind in DEVICES:
            if kind in self.autocast or torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, dtype=self.autocast.get(kind), enabled=kind in self.autocast))
        return stack


def tensors_at(bindings: Bindings, storages: set[int]) -> list[torch.Tensor]:
    """Those of the model that lie there."""
    owned = bindings.owned
    return [tensor for (storage, _), tensor in zip(owned.storages, owned.tensors()) if storage in storages] if storages else []


def with_contents(tensors: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each with a copy."""
    return [(tensor, tensor.detach().clone()) for tensor in tensors]


def fits(new: "ShapedModule", old: "ShapedModule") -> bool:
    """Whether `new` takes the gradients of all outputs of `old`, and makes none for others than `old` has told autograd of."""
    return outputs_of(new) == outputs_of(old) and set(new.targets()) <= set(old.targets())


def outputs_of(shaped: "ShapedModule") -> list[tuple[str, Any]]:
    results, values = shaped.captured.program["results"], shaped.captured.program["values"]
    return [(results[r]["name"], values[results[r]["value"]]["sizes"]) for r in shaped.captured.output_results]


def present_attributes(shaped: "ShapedModule") -> list[tuple[torch.nn.Module, str, Any]]:
    """Those that the pass is about to change."""
    captured, model = shaped.captured, shaped.model()
    names = [(path, name) for path, name, *_ in (*captured.begun, *captured.counts, *captured.assignments)]
    modules = [] if model is None else [(model.get_submodule(path), name) for path, name in names]
    return [(module, name, attribute(module, name)) for module, name in modules]


def set_attributes(values: Sequence[tuple[torch.nn.Module, str, Any]]) -> None:
    """Nothing: there was none."""
    for module, name, value in values:
        if value is not Nothing:
            setattr(module, name, value)
        elif attribute(module, name) is not Nothing:
            delattr(module, name)


def generator_states(device: torch.device) -> list[bytes]:
    """As bytes: on a CPU a tensor would count against the budget."""
    states = [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
    return [ctypes.string_at(state.data_ptr(), state.numel()) for state in states]


def set_generators(states: list[bytes], device: torch.device) -> None:
    tensors = [torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in states]
    torch.set_rng_state(tensors[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(tensors[1], device)


def put_back(contents: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    with torch.no_grad():
        for tensor, content in contents:
            tensor.copy_(content)
