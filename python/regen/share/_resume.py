"""Trainings that can be killed at any instruction, started again, or moved to another process, and end with the same bits."""

import json

import torch

from regen import _runtime
from regen.share._random_state import random_state, restore_random_state
from regen.share._state import PackedState, optimizer_values, parameters_of, stays_on_host

FORMAT = 1
LENGTH = 16  # digits in front of the text of an image
ALIGNMENT = 512  # of the packed state behind it


def resumable(step, path, every=1, *, model=None, optimizer=None, also=None, durable=True):
    """`step` with its state in a file:

        step = regen.step(model, loss_fn, optimizer, (x, y), budget="6GiB")
        train = regen.share.resumable(step, "job.state", every=100)
        for x, y in batches[train.steps_done:]:
            loss = train(x, y)

    After every `every`-th step the state (parameters, buffers, optimizer, random generators) is committed as a whole; whoever is
    started after a crash goes on from there: steps after the last commit are taken again, from the very state that they were
    taken from, so none is applied twice and none is lost. `step` is what `regen.step` gives, or any function together with its `model`
    and `optimizer`. `also`: a dictionary of further objects with `state_dict()` and `load_state_dict()` that JSON can hold, such as
    schedulers. `durable=False` does without waiting for the disk: the state survives the end of the process, not that of the machine."""
    return Resumable(step, path, every, model, optimizer, also, durable)


class Resumable:
    def __init__(self, step, path, every, model, optimizer, also, durable):
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            raise ValueError(f"every={every!r}; expected a number of steps, 1 or more")
        self.step, self.path, self.every, self.durable = step, str(path), every, durable
        self.model = model if model is not None else getattr(step, "model", None)
        self.optimizer = optimizer if optimizer is not None else getattr(step, "optimizer", None)
        if self.model is None:
            raise ValueError("resumable() of a function needs model=..., expected the model that it trains")
        self.also = dict(also or {})
        self.file = None
        self.steps_done = 0
        self.state = PackedState(self.model, self.optimizer)
        self.take_over()

    def __call__(self, *args):
        if self.file is None:
            raise _runtime.RegenError(f"the training was handed over through '{self.path}', expected take_over() before the next step")
        result = self.step(*args)
        self.steps_done += 1
        if self.steps_done % self.every == 0:
            self.commit()
        return result

    def commit(self):
        """Now, whatever `every` says. When it returns, the steps done so far are safe."""
        entries = self.state.gather()
        text = self.text(entries)
        self.file.commit(self.steps_done, text, self.state.arena)

    def hand_over(self):
        """Commits and lets go of the file and of all device memory, so that another process may go on."""
        self.commit()
        self.close()
        self.state.leave()
        if hasattr(self.step, "release"):
            self.step.release()

    def take_over(self):
        """Goes on from what the file holds; begins it if there is none."""
        if self.file is not None:
            return
        file = _runtime.StateFile(self.path, durable=self.durable)
        try:
            if file.newest is not None:
                self.load(file)
            self.state.come_back()
            self.file = file
            if file.newest is None:
                self.commit()
        except BaseException:
            file.close()  # whoever keeps the error must not keep the file
            self.file = None
            raise

    def close(self):
        if self.file is not None:
            self.file.close()
            self.file = None

    # What is beside the packed state: a text that says what the state is, and everything that is no tensor.

    def text(self, entries):
        values = {f"{place}.{key}": as_json(value) for place, _, key, value in self.optimizer_values() if not is_tensor(value)}
        content = {
            "format": FORMAT, "steps_done": self.steps_done, "packed_bytes": self.state.arena.image_bytes,
            "tensors": [layout(*entry) for entry in entries], "values": values,
            "random": random_state(self.state.device), "also": {name: thing.state_dict() for name, thing in self.also.items()}}
        try:
            text = json.dumps(content).encode()
        except TypeError as error:
            raise _runtime.RegenError(f"the state of one of {', '.join(self.also)} cannot be saved: {error}") from None
        room = -(LENGTH + len(text)) % ALIGNMENT
        return f"{len(text):0{LENGTH}d}".encode() + text + b" " * room

    def load(self, file):
        step, size = file.newest
        head = file.read(0, min(LENGTH, size))
        length = int(head) if head.isdigit() else -1
        if not 0 <= length <= size - LENGTH:
            raise _runtime.RegenError(f"state file '{self.path}': what it holds is not the state of a training")
        content = json.loads(file.read(LENGTH, length))
        if content["format"] != FORMAT:
            raise _runtime.RegenError(f"state file '{self.path}': format {content['format']}, expected {FORMAT}")
        self.check_also(content["also"])
        self.check_model(content["tensors"])
        if self.state.away:
            self.state.come_back()  # its contents are about to be replaced
        self.make_optimizer_state(content)
        self.state.gather()
        packed = self.state.arena.image_bytes
        if content["packed_bytes"] != packed:
            raise _runtime.RegenError(
                f"state file '{self.path}' has {content['packed_bytes']:,} bytes of tensors, expected {packed:,}: "
                "other tensors share their memory")
        file.read_state(size - packed, self.state.arena)
        for name, thing in self.also.items():
            thing.load_state_dict(content["also"][name])
        restore_random_state(content["random"], self.state.device)
        self.steps_done = content["steps_done"]

    def optimizer_values(self):
        return [] if self.optimizer is None else list(optimizer_values(self.optimizer))

    def check_also(self, saved):
        if set(saved) != set(self.also):
            raise _runtime.RegenError(
                f"state file '{self.path}' has the state of {sorted(saved)} beside the training, expected {sorted(self.also)}")

    def check_model(self, saved):
        """One line about the first difference between the model and the one that was saved."""
        expected = [layout(*entry) for entry in self.state.entries() if entry[0].startswith("model.")]
        found = [entry for entry in saved if entry["name"].startswith("model.")]
        for want, have in zip(expected, found):
            if want != have:
                raise _runtime.RegenError(f"state file '{self.path}' has {describe(have)}, expected {describe(want)}")
        if len(expected) != len(found):
            raise _runtime.RegenError(f"state file '{self.path}' has {len(found)} tensors of a model, expected {len(expected)}")

    def make_optimizer_state(self, content):
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

    def optimizer_place(self, name):
        kind, index, key = name.split(".", 2)
        if self.optimizer is None:
            raise _runtime.RegenError(f"state file '{self.path}' has the state of an optimizer, expected a training without one")
        known = parameters_of(self.optimizer) if kind == "state" else self.optimizer.param_groups
        if int(index) >= len(known):
            raise _runtime.RegenError(f"state file '{self.path}' has optimizer state {name}, expected {len(known)} of that kind")
        return (self.optimizer.state[known[int(index)]] if kind == "state" else known[int(index)]), key


def is_tensor(value):
    return isinstance(value, torch.Tensor)


def layout(name, tensor, on_host):
    return {"name": name, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "stride": list(tensor.stride()),
            "on_host": on_host}


def describe(entry):
    return f"'{entry['name']}' of {entry['dtype']} {tuple(entry['shape'])} with strides {tuple(entry['stride'])}"


def as_json(value):
    """Tuples are lists in JSON."""
    return {"tuple": list(value)} if isinstance(value, tuple) else value


def from_json(value):
    return tuple(value["tuple"]) if isinstance(value, dict) else value
