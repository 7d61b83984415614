"""One reader for many jobs: each batch is read, decoded and copied once, whoever looks at it."""

import json

import torch

from regen import _runtime
from regen.share import _feeder
from regen.share._batches import Batches, number_of_batches


def loader(
    dataset,
    name,
    *,
    batch_size=1,
    shuffle=False,
    seed=0,
    drop_last=False,
    num_workers=0,
    collate_fn=None,
    epochs=None,
    consumers=1,
    policy="wait",
    join="now",
    slots=8,
    slot_bytes=None,
    device="cpu",
    start="auto",
):
    """Batches of the shared input `name`, which the first job to ask for it starts.

    Args:
        dataset: map-style, iterable, or a DataLoader (then batch_size and the like are its own). Every job passes its own:
            whichever finds no producer, or loses it, starts one from it.
        name: what jobs with the same input agree on; it belongs to this user on this machine.
        batch_size, shuffle, seed, drop_last, collate_fn, num_workers: as for a DataLoader; shuffled by seed and epoch. Jobs must
            agree on them (num_workers and collate_fn are those of whoever starts the producer).
        epochs: how many the input has; without it, no end.
        consumers: the first batch is made when so many jobs are attached.
        policy: "wait": the others wait for this job; "skip": it loses its oldest batches (counted in `lost`) when it is slow.
        join: a job that comes later begins "now", inside the epoch, or with the next "epoch".
        slots: batches that may be there at once, those in use included.
        slot_bytes: room for one batch; without it, four times the first one.
        device: "cpu", or "cuda[:N]": each batch is copied there once.
        start: how the producer is started: "fork", "spawn" (as multiprocessing does: the script needs its
            `if __name__ == "__main__":`), or "auto": fork, unless CUDA is in use. With a GPU always "spawn".
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


def _whole(value, least):
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _check(name, value, good, expected):
    if not good:
        raise ValueError(f"regen.share.loader: {name} is {value!r}, expected {expected}")


def _gpu_index(device):
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError):
        device = None
    _check("device", device, device is not None and device.type in ("cpu", "cuda"), "'cpu', 'cuda' or 'cuda:N'")
    return -1 if device.type == "cpu" else device.index or 0


class SharedLoader:
    """Iterating over it gives the batches of one epoch. Batches are the memory itself: whoever keeps them keeps their slots."""

    def __init__(self, batches, name, options, policy, join, start):
        if _feeder.importing:
            raise RuntimeError(
                f"regen.share.loader({name!r}) was called while the script was imported for a producer, "
                "expected it under if __name__ == '__main__':"
            )
        self.name = name
        self.lost = 0  # batches that this job was too slow for
        self.epoch = None  # of the last batch
        self._length = number_of_batches(batches)
        if options["gpu"] >= 0 and torch.cuda.is_available():
            torch.cuda.init()  # the first batch is memory that torch did not allocate, and its operators want torch's allocator
        self._inside = False
        path = _runtime.feed_socket(name)
        settings = json.dumps({**batches.settings(), "epochs": options["epochs"], "gpu": options["gpu"]}, sort_keys=True)
        self._consumer = None
        producer = _feeder.Producer(batches, name, path, settings, options)
        self._consumer = _runtime.FeedConsumer(path, settings, policy == "skip", join == "epoch", getattr(producer, start))

    def __len__(self):
        if self._length is None:
            raise TypeError(f"the shared input {self.name!r} does not know how many batches its dataset has")
        return self._length

    def __iter__(self):
        if self._inside:  # the last epoch was left in its middle
            self._consumer.move(self.epoch + 1)
            self._inside = False
        return self

    def __next__(self):
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
    def producers_lost(self):
        """How often the producer was lost and replaced."""
        return self._consumer.losses

    def close(self):
        """Wants no more batches; those in use stay."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.leave()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
