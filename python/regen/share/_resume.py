"""Trainings that can be killed at any instruction, started again, or moved to another process, and end with the same bits."""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from regen import _runtime
from regen.errors import Error, OptionError
from regen.share._random_state import random_state, restore_random_state
from regen.share._state import Entry, PackedState, optimizer_values, parameters_of

FORMAT = 1
LENGTH = 16  # digits in front of the text of an image
ALIGNMENT = 512  # of the packed state behind it


class HasState(Protocol):
    """Further state of a training, such as that of a scheduler."""

    def state_dict(self) -> dict[str, Any]:
        """What JSON can hold."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """What `state_dict` gave."""
        ...


def resumable(
    step: Callable[..., Any],
    path: str | os.PathLike[str],
    every: int = 1,
    *,
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    also: Mapping[str, HasState] | None = None,
    durable: bool = True,
) -> "Resumable":
    """A training step with its state in a file.

        step = regen.step(model, loss_fn, optimizer, (x, y), budget="6GiB")
        train = regen.share.resumable(step, "job.state", every=100)
        for x, y in batches[train.steps_done:]:
            loss = train(x, y)

    After every `every`-th step the state (parameters, buffers, optimizer, random generators) is committed as a whole. A process that is
    started after a crash goes on from there: steps after the last commit are taken again, from the very state that they were
    taken from, so none is applied twice and none is lost.

    Args:
        step: what `regen.step` gives, or any function together with its `model` and `optimizer`.
        path: of the file.
        every: steps between two commits.
        model: that the function trains; None: that of the step.
        optimizer: that the function uses; None: that of the step.
        also: further objects with `state_dict()` and `load_state_dict()` that JSON can hold, such as schedulers, by name.
        durable: wait for the disk. False: the state survives the end of the process, not that of the machine.

    Returns:
        A function that takes the step; `steps_done` says where it goes on.

    Raises:
        OptionError: `every` is no number of steps, or the model is not known.
        Error: the file holds the state of another training, or another process has it.
    """
    return Resumable(step, path, every, model, optimizer, also, durable)


class Resumable:
    """A training step that commits its state to a file. Made by `regen.share.resumable`.

    Attributes:
        steps_done: steps since the beginning of the training, also those of earlier processes.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        path: str | os.PathLike[str],
        every: int,
        model: torch.nn.Module | None,
        optimizer: torch.optim.Optimizer | None,
        also: Mapping[str, HasState] | None,
        durable: bool,
    ) -> None:
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            raise OptionError(f"every={every!r}; expected a number of steps, 1 or more")
        self.step, self.path, self.every, self.durable = step, str(path), every, durable
        model = model if model is not None else getattr(step, "model", None)
        self.optimizer: torch.optim.Optimizer | None = optimizer if optimizer is not None else getattr(step, "optimizer", None)
        if model is None:
            raise OptionError("resumable() of a function needs model=..., expected the model that it trains")
        self.model: torch.nn.Module = model
        self.also = dict(also or {})
        self.file: _runtime.StateFile | None = None
        self.steps_done = 0
        self.state = PackedState(self.model, self.optimizer)
        self.take_over()

    def __call__(self, *args: Any) -> Any:
        """Takes one step, and commits where `every` says so.

        Args:
            args: of the step.

        Returns:
            What the step returns.

        Raises:
            Error: the training was handed over, or the file cannot be written.
        """
        if self.file is None:
            raise Error(f"the training was handed over through '{self.path}', expected take_over() before the next step")
        result = self.step(*args)
        self.steps_done += 1
        if self.steps_done % self.every == 0:
            self.commit()
        return result

    def commit(self) -> None:
        """Commits now, whatever `every` says. When it returns, the steps done so far are safe.

        Raises:
            Error: the training was handed over, or the file cannot be written.
        """
        if self.file is None:
            raise Error(f"the training was handed over through '{self.path}', expected take_over() before commit()")
        entries = self.state.gather()
        text = self.text(entries)
        self.file.commit(self.steps_done, text, self.state.arena)

    def hand_over(self) -> None:
        """Commits and lets go of the file and of all device memory, so that another process may go on."""
        self.commit()
        self.close()
        self.state.leave()
        release = getattr(self.step, "release", None)
        if release is not None:
            release()

    def take_over(self) -> None:
        """Goes on from what the file holds; begins it if there is none.

        Raises:
            Error: the file holds the state of another training, or another process has it.
        """
        if self.file is not None:
            return
        file = _runtime.StateFile(self.path, durable=self.durable)
        try:
            if file.newest is not None:
                self.load(file, file.newest[1])
            self.state.come_back()
            self.file = file
            if file.newest is None:
                self.commit()
        except BaseException:
            file.close()  # the error may live on, the lock must not
            self.file = None
            raise

    def close(self) -> None:
        """Lets go of the file; what was not committed is not in it."""
        if self.file is not None:
            self.file.close()
            self.file = None

    # What is beside the packed state: a text that says what the state is, and everything that is no tensor.

    def text(self, entries: list[Entry]) -> bytes:
        """What the state is, and everything that is no tensor."""
        values = {f"{place}.{key}": as_json(value) for place, _, key, value in self.optimizer_values() if not is_tensor(value)}
        content = {
            "format": FORMAT, "steps_done": self.steps_done, "packed_bytes": self.state.arena.image_bytes,
            "tensors": [layout(*entry) for entry in entries], "values": values,
            "random": random_state(self.state.device), "also": {name: thing.state_dict() for name, thing in self.also.items()}}
        try:
            text = json.dumps(content).encode()
        except TypeError as error:
            raise Error(f"the state of one of {', '.join(self.also)} cannot be saved: {error}") from None
        room = -(LENGTH + len(text)) % ALIGNMENT
        return f"{len(text):0{LENGTH}d}".encode() + text + b" " * room

    def load(self, file: _runtime.StateFile, size: int) -> None:
        """Takes the state from a file whose newest image has `size` bytes."""
        head = file.read(0, min(LENGTH, size))
        length = int(head) if head.isdigit() else -1
        if not 0 <= length <= size - LENGTH:
            raise Error(f"state file '{self.path}': what it holds is not the state of a training")
        content = json.loads(file.read(LENGTH, length))
        if content["format"] != FORMAT:
            raise Error(f"state file '{self.path}': format {content['format']}, expected {FORMAT}")
        self.check_also(content["also"])
        self.check_model(content["tensors"])
        if self.state.away:
            self.state.come_back()  # its contents are about to be replaced
        self.make_optimizer_state(content)
        self.state.gather()
        packed = self.state.arena.image_bytes
        if content["packed_bytes"] != packed:
            raise Error(
                f"state file '{self.path}' has {content['packed_bytes']:,} bytes of tensors, expected {packed:,}: "
                "other tensors share their memory")
        file.read_state(size - packed, self.state.arena)
        for name, thing in self.also.items():
            thing.load_state_dict(content["also"][name])
        restore_random_state(content["random"], self.state.device)
        self.steps_done = content["steps_done"]

    def optimizer_values(self) -> list[tuple[str, dict[str, Any], str, Any]]:
        """Of no optimizer: none."""
        return [] if self.optimizer is None else list(optimizer_values(self.optimizer))

    def check_also(self, saved: dict[str, Any]) -> None:
        """The same further objects as were saved."""
        if set(saved) != set(self.also):
            raise Error(
                f"state file '{self.path}' has the state of {sorted(saved)} beside the training, expected {sorted(self.also)}")

    def check_model(self, saved: list[dict[str, Any]]) -> None:
        """One line about the first difference between the model and the one that was saved."""
        expected = [layout(*entry) for entry in self.state.entries() if entry[0].startswith("model.")]
        found = [entry for entry in saved if entry["name"].startswith("model.")]
        for want, have in zip(expected, found):
            if want != have:
                raise Error(f"state file '{self.path}' has {describe(have)}, expected {describe(want)}")
        if len(expected) != len(found):
            raise Error(f"state file '{self.path}' has {len(found)} tensors of a model, expected {len(expected)}")

    def make_optimizer_state(self, content: dict[str, Any]) -> None:
        """Tensors where the saved optimizer had some, to be filled, and all its numbers."""
        saved = {entry["name"]: entry for entry in content["tensors"] if entry["name"].startswith("optimizer.")}
        for place, holder, key, _ in self.optimizer_values():
            if f"optimizer.{place}.{key}" not in saved and f"{place}.{key}" not in content["values"]:
                del holder[key]
        present = {name: layout(name, tensor, on_host) for name, tensor, on_host in self.state.entries()}
        for name, entry in saved.items():
            if present.get(name) != entry:
                holder, key = self.optimizer_place(name.removeprefix("optimizer."))
                device = "cpu" if entry["on_host"] else self.state.device
                holder[key] = torch.empty_strided(entry["shape"], entry["stride"], dtype=getattr(torch, entry["dtype"]), device=device)
        for name, value in content["values"].items():
            holder, key = self.optimizer_place(name)
            holder[key] = from_json(value)

    def optimizer_place(self, name: str) -> tuple[dict[str, Any], str]:
        """The dictionary of the optimizer, and the key in it, that a saved name stands for."""
        kind, index, key = name.split(".", 2)
        if self.optimizer is None:
            raise Error(f"state file '{self.path}' has the state of an optimizer, expected a training without one")
        known: list[Any] = parameters_of(self.optimizer) if kind == "state" else self.optimizer.param_groups
        if int(index) >= len(known):
            raise Error(f"state file '{self.path}' has optimizer state {name}, expected {len(known)} of that kind")
        return (self.optimizer.state[known[int(index)]] if kind == "state" else known[int(index)]), key


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def layout(name: str, tensor: torch.Tensor, on_host: bool) -> dict[str, Any]:
    return {"name": name, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "stride": list(tensor.stride()),
            "on_host": on_host}


def describe(entry: dict[str, Any]) -> str:
    return f"'{entry['name']}' of {entry['dtype']} {tuple(entry['shape'])} with strides {tuple(entry['stride'])}"


def as_json(value: Any) -> Any:
    """Tuples are lists in JSON."""
    return {"tuple": list(value)} if isinstance(value, tuple) else value


def from_json(value: Any) -> Any:
    return tuple(value["tuple"]) if isinstance(value, dict) else value
