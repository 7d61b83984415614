"""One reader for many jobs: each batch is read, decoded and copied once for all of them."""

import json
from collections.abc import Callable
from typing import Any, Literal

import torch

from regen import _runtime
from regen.errors import OptionError, UsageError
from regen.share import _feeder
from regen.share._batches import Batches, number_of_batches


def loader(
    dataset: Any,
    name: str,
    *,
    batch_size: int | None = 1,
    shuffle: bool = False,
    seed: int = 0,
    drop_last: bool = False,
    num_workers: int = 0,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    epochs: int | None = None,
    consumers: int = 1,
    policy: Literal["wait", "skip"] = "wait",
    join: Literal["now", "epoch"] = "now",
    slots: int = 8,
    slot_bytes: int | None = None,
    device: str | torch.device = "cpu",
    start: Literal["auto", "fork", "spawn"] = "auto",
) -> "SharedLoader":
    """Batches of the shared input `name`, which the first job to ask for it starts.

    Args:
        dataset: map-style, iterable, or a DataLoader (then batch_size and the like are its own). Every job passes its own:
            whichever finds no producer, or loses it, starts one from it.
        name: what jobs with the same input agree on; it belongs to this user on this machine.
        batch_size: items of a batch, as for a DataLoader; None: each item is a batch. Jobs must agree on it.
        shuffle: in an order that seed and epoch decide. Jobs must agree on it.
        seed: of the order. Jobs must agree on it.
        drop_last: leave out a last batch that is smaller. Jobs must agree on it.
        num_workers: processes that read, as for a DataLoader; those of the job that starts the producer.
        collate_fn: makes a batch of items, as for a DataLoader; that of the job that starts the producer.
        epochs: how many the input has; without it, no end.
        consumers: the first batch is made when so many jobs are attached.
        policy: "wait": the others wait for this job; "skip": it loses its oldest batches (counted in `lost`) when it is slow.
        join: a job that comes later begins "now", inside the epoch, or with the next "epoch".
        slots: batches that may be there at once, those in use included.
        slot_bytes: room for one batch; without it, four times the first one.
        device: "cpu", or "cuda[:N]": each batch is copied there once.
        start: how the producer is started: "fork", "spawn" (as multiprocessing does: the script needs its
            `if __name__ == "__main__":`), or "auto": fork, unless CUDA is in use. With a GPU always "spawn".

    Returns:
        An iterator over the batches of one epoch after the other; a context manager that leaves the input at its end.

    Raises:
        OptionError: an argument has a value that is not expected.
        Error: the producer cannot start, or other jobs use the input with other arguments.
    """
    _check("batch_size", batch_size, batch_size is None or _whole(batch_size, 1), "a whole number from 1, or None")
    _check("slots", slots, _whole(slots, 2) and slots <= 4096, "a whole number from 2 to 4096")
    _check("slot_bytes", slot_bytes, slot_bytes is None or _whole(slot_bytes, 1), "a whole number from 1, or None")
    _check("epochs", epochs, epochs is None or _whole(epochs, 1), "a whole number from 1, or None")
    _check("consumers", consumers, _whole(consumers, 1), "a whole number from 1")
    _check("seed", seed, _whole(seed, 0), "a whole number from 0")
    _check("num_workers", num_workers, _whole(num_workers, 0), "a whole number from 0")
    _check("policy", policy, policy in ("wait", "skip"), "'wait' or 'skip'")
    _check("join", join, join in ("now", "epoch"), "'now' or 'epoch'")
    _check("start", start, start in ("auto", "fork", "spawn"), "'auto', 'fork' or 'spawn'")
    gpu = _gpu_index(device)
    _check("start", start, gpu < 0 or start != "fork", "'auto' or 'spawn' on a GPU, which a forked process cannot use")
    batches = Batches(dataset, batch_size, shuffle, seed, drop_last, num_workers, collate_fn)
    options = {"slots": slots, "slot_bytes": slot_bytes, "epochs": epochs, "consumers": consumers, "gpu": gpu}
    if start == "auto":
        start = "spawn" if gpu >= 0 or torch.cuda.is_initialized() else "fork"
    return SharedLoader(batches, str(name), options, policy, join, start)


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _check(name: str, value: object, good: bool, expected: str) -> None:
    if not good:
        raise OptionError(f"regen.share.loader: {name} is {value!r}, expected {expected}")


def _gpu_index(device: str | torch.device) -> int:
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise OptionError(f"regen.share.loader: device is {found!r}, expected 'cpu', 'cuda' or 'cuda:N'")
    return -1 if found.type == "cpu" else found.index or 0


class SharedLoader:
    """Batches that are read once for all jobs. Iterating over it gives those of one epoch. Made by `regen.share.loader`.

    Batches are the shared memory itself: a job that keeps them keeps their slots.

    Attributes:
        name: of the shared input.
        lost: batches that this job was too slow for.
        epoch: of the last batch; None before the first.
    """

    def __init__(self, batches: Batches, name: str, options: dict[str, Any], policy: str, join: str, start: str) -> None:
        if _feeder.importing:
            raise UsageError(
                f"regen.share.loader({name!r}) was called while the script was imported for a producer, "
                "expected it under if __name__ == '__main__':"
            )
        self.name = name
        self.lost = 0
        self.epoch: int | None = None
        self._length = number_of_batches(batches)
        if options["gpu"] >= 0 and torch.cuda.is_available():
            torch.cuda.init()  # the first batch is memory that torch did not allocate, and its operators need torch's allocator
        self._inside = False
        path = _runtime.feed_socket(name)
        settings = json.dumps({**batches.settings(), "epochs": options["epochs"], "gpu": options["gpu"]}, sort_keys=True)
        self._consumer: _runtime.FeedConsumer | None = None
        producer = _feeder.Producer(batches, name, path, settings, options)
        self._consumer = _runtime.FeedConsumer(path, settings, policy == "skip", join == "epoch", getattr(producer, start))

    def __len__(self) -> int:
        """Batches of an epoch; a TypeError where only reading shows it."""
        if self._length is None:
            raise TypeError(f"the shared input {self.name!r} does not know how many batches its dataset has")
        return self._length

    def __iter__(self) -> "SharedLoader":
        """The batches of the next epoch."""
        if self._inside and self._consumer is not None and self.epoch is not None:  # the last epoch was left in its middle
            self._consumer.move(self.epoch + 1)
            self._inside = False
        return self

    def __next__(self) -> Any:
        """The next batch of the epoch."""
        if self._consumer is None:
            raise StopIteration
        kind, epoch, _, lost, batch = self._consumer.next()
        self.lost += lost
        self._inside = kind == "batch"
        if kind != "batch":
            raise StopIteration
        self.epoch = epoch
        return batch

    @property
    def producers_lost(self) -> int:
        """How often the producer was lost and replaced."""
        return 0 if self._consumer is None else self._consumer.losses

    def close(self) -> None:
        """Leaves the shared input; batches in use stay."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.leave()

    def __enter__(self) -> "SharedLoader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
