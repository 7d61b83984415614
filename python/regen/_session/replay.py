"""A forward pass again from its beginning, when gradients arrive for outputs that it was captured without.

A model that returns a loss is captured with a gradient for the loss alone: others would have to be held to the end. Some training loops make
a loss of their own from the other outputs. Which of the two a loop does shows in its first backward pass.
"""

import contextlib
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from regen._capture.capture import Captured
from regen._capture.program_builder import referenced_values
from regen._islands.surroundings import foreign_states, set_foreign_states
from regen._session.owned import Bindings

if TYPE_CHECKING:
    from regen._session.wrapped_module import ShapedModule, StepCall

DEVICES = ("cpu", "cuda")


class Replay:
    """What the first pass began with: random numbers, buffers that it changes, autocast, and its inputs."""

    def __init__(self, forward: Callable[[], "StepCall | None"], key: Callable[[], Hashable], shaped: "ShapedModule") -> None:
        """`forward`: runs the pass again; `key`: of the shape and mode that the next pass would be captured for."""
        self.forward, self.key_now, self.key = forward, key, key()
        self.device = torch.device(shaped.session.device)
        self.generators = generator_states(self.device)
        self.foreign = foreign_states() if shaped.captured.islands else None
        self.buffers = [(tensor, tensor.detach().clone()) for tensor in written_tensors(shaped)]
        self.autocast = {kind: torch.get_autocast_dtype(kind) for kind in DEVICES if torch.is_autocast_enabled(kind)}

    def gradients(self, old: "ShapedModule", tangents: Sequence[torch.Tensor | None]) -> Mapping[Any, torch.Tensor | None] | None:
        """Of parameters and inputs: (kind, place) -> gradient, by a pass that was captured with gradients for all outputs; None: the model is
        in another mode by now, or has other outputs.
        """
        with torch.enable_grad(), self.entered_autocast():
            if self.key_now() != self.key:
                return None
            with self.rewound():
                call = self.forward()
        if call is None or not fits(call.shaped, old):
            return None
        new = call.shaped
        found = {}
        for part, entries in enumerate(new.parts):
            made = call.run_backward(part, tangents if part == 0 else (None,))
            found.update({(kind, place): gradient for (_, kind, place), gradient in zip(entries, made)})
        return found

    @contextlib.contextmanager
    def rewound(self) -> Iterator[None]:
        """Everything is as before the pass inside, and as it is now after."""
        generators, foreign = generator_states(self.device), foreign_states()
        contents = [(tensor, tensor.detach().clone()) for tensor, _ in self.buffers]
        set_generators(self.generators, self.device)
        set_foreign_states(self.foreign or foreign)
        put_back(self.buffers)
        try:
            yield
        finally:
            set_generators(generators, self.device)
            set_foreign_states(foreign)
            put_back(contents)

    def entered_autocast(self) -> contextlib.AbstractContextManager[Any]:
        """As it was around the pass. Backward passes run without."""
        stack = contextlib.ExitStack()
        for kind in DEVICES:
            if kind in self.autocast or torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, dtype=self.autocast.get(kind), enabled=kind in self.autocast))
        return stack


def written_storages(captured: Captured) -> set[int]:
    """What the forward pass changes in place: buffers, and what the caller gave."""
    program = captured.program
    written = set()
    for node in program["nodes"]:
        if node["phase"] == "forward" and node["op"].split(".")[0].endswith("_"):
            written |= {program["values"][v]["storage"] for v in referenced_values([node["args"]])}
    return {s for s in written if program["storages"][s]["role"] in ("buffer", "input", "constant")}


def written_tensors(shaped: "ShapedModule") -> list[torch.Tensor]:
    return tensors_at(shaped.bindings, written_storages(shaped.captured))


def tensors_at(bindings: Bindings, storages: Container[int]) -> list[torch.Tensor]:
    """Those of the model that lie there."""
    owned = bindings.owned
    return [tensor for (storage, _), tensor in zip(owned.storages, owned.tensors()) if storage in storages]


def changes_inputs(shaped: "ShapedModule") -> bool:
    """Then a pass cannot run again."""
    storages = shaped.captured.program["storages"]
    return any(storages[s]["role"] != "buffer" for s in written_storages(shaped.captured))


def fits(new: "ShapedModule", old: "ShapedModule") -> bool:
    """Whether `new` takes the gradients of all outputs of `old`, and makes those of the same parameters and inputs."""
    made = [{(kind, place) for _, kind, place in shaped.captured.gradient_results} for shaped in (new, old)]
    return outputs_of(new) == outputs_of(old) and made[0] == made[1]


def outputs_of(shaped: "ShapedModule") -> list[tuple[str, Any]]:
    results, values = shaped.captured.program["results"], shaped.captured.program["values"]
    return [(results[r]["name"], values[results[r]["value"]]["sizes"]) for r in shaped.captured.output_results]


def generator_states(device: torch.device) -> list[torch.Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def set_generators(states: list[torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)


def put_back(contents: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    with torch.no_grad():
        for tensor, content in contents:
            tensor.copy_(content)
