"""The process that reads for all jobs: started by the job that finds none, ended when the last job has left."""

import contextlib
import itertools
import multiprocessing.spawn
import os
import pickle
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

import torch

from regen import _runtime
from regen.errors import BudgetError, Error
from regen.share._batches import Batches

importing = False  # the script of the job that started this producer, to find its dataset's class

_NOTHING = object()
_MARGIN = 4  # slots are so many times as large as the first batch; memory is only taken where it is written to
_SMALL = 4096

# The job is not the parent of its producer, which outlives it; what comes on the pipe says how to go on.
_SPAWNED = """
import os, pickle, sys
if os.fork(): os._exit(0)
sys.path[:] = pickle.load(sys.stdin.buffer)
from regen.share import _feeder
_feeder.run_spawned(int(sys.argv[1]))
"""


class Producer:
    """How to start the process that reads. `fork` and `spawn` return once it listens, or another one does."""

    def __init__(self, batches: Batches, name: str, path: str, settings: str, options: dict[str, Any]) -> None:
        self.batches = batches
        self.name = name
        self.path = path
        self.settings = settings
        self.options = options

    def fork(self, epoch: int, index: int) -> None:
        """A process that has this one's memory."""
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads: the child uses none of them, as a worker of a DataLoader
            child = os.fork()
        if child == 0:
            try:
                os.setsid()
                if os.fork() == 0:
                    os.close(reader)
                    self.run(epoch, index, writer)
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        _raise_reported_error(self.name, reader)

    def spawn(self, epoch: int, index: int) -> None:
        """A new interpreter."""
        reader, writer = os.pipe()
        try:
            main = multiprocessing.spawn.get_preparation_data(f"producer of {self.name}")
            main.pop("authkey", None)  # it talks to no child of the job
            try:
                # Not multiprocessing's pickler: for tensors it only says where to ask this job for them, which may be dead by then.
                work = pickle.dumps((self, epoch, index))
            except Exception as error:
                raise Error(
                    f"the dataset of the shared input {self.name!r} cannot be sent to its producer: {type(error).__name__}: {error}, "
                    "expected one that can be pickled"
                ) from error
            command = [sys.executable, "-c", _SPAWNED, str(writer)]
            quiet = subprocess.DEVNULL
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, pass_fds=[writer], start_new_session=True
            ) as process:
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError):  # what it has to say comes on the other pipe
                    process.stdin.write(pickle.dumps(sys.path) + pickle.dumps(main) + work)
        finally:
            os.close(writer)
        _raise_reported_error(self.name, reader)

    def run(self, epoch: int, index: int, ready: int) -> None:
        """Reads and serves until every job has left. A line on the pipe `ready` says that it listens, or why it cannot."""
        _be_alone()
        try:
            server = _runtime.FeedProducer(
                self.path,
                self.settings,
                self.options["epochs"] or 2**62,
                self.options["consumers"],
                epoch,
                index,
            )
        except Error as error:
            _report(ready, "" if "serves there already" in str(error) else str(error))
            return
        _report(ready)
        os.close(ready)
        self.serve(server, epoch, index)

    def serve(self, server: _runtime.FeedProducer, epoch: int, index: int) -> None:
        """Until every job has left. An error goes to all of them."""
        where = (epoch, index)
        first: tuple[int, int] | None = where
        try:
            batches = self.start(server, epoch, index)
            while (step := server.begin()) is not None:
                where, jumped = step[:2], step[2]
                if batches is None or (jumped and where != first):
                    batches = self.batches.at(*where)
                first = None  # the first batches are used once
                batch = next(batches, _NOTHING)
                if batch is _NOTHING:
                    server.end_epoch()
                    batches = None
                else:
                    server.publish(batch)
                    batch = None
        except (Error, BudgetError) as error:
            server.fail(f"shared input {self.name!r}: batch {where[1]} of epoch {where[0]}: {error}")
        except BaseException as error:  # every job gets it, whatever it is
            server.fail(f"the dataset of the shared input {self.name!r} raised {type(error).__name__}: {error}")

    def start(self, server: _runtime.FeedProducer, epoch: int, index: int) -> Iterator[Any]:
        """Makes the first batch, which says how large the slots are."""
        try:
            batches = self.batches.at(epoch, index)
            first = next(batches, _NOTHING)
            slot_bytes = self.options["slot_bytes"]
            if slot_bytes is None:
                sample = first if first is not _NOTHING else next(self.batches.at(epoch + 1, 0), None)
                slot_bytes = max(_SMALL, _MARGIN * _runtime.feed_batch_bytes(sample))
            server.start(self.options["slots"], slot_bytes, self.options["gpu"])
        except BaseException:
            server.start(1, _SMALL, -1)
            raise
        return batches if first is _NOTHING else itertools.chain([first], batches)


def run_spawned(ready: int) -> NoReturn:
    """In a new interpreter: what spawn() has written to its standard input."""
    global importing
    try:
        importing = True
        multiprocessing.spawn.prepare(pickle.load(sys.stdin.buffer))
        producer, epoch, index = pickle.load(sys.stdin.buffer)
        importing = False
    except BaseException as error:
        _report(ready, f"its script cannot be imported: {type(error).__name__}: {error}")
        os._exit(1)
    producer.run(epoch, index, ready)
    os._exit(0)


def _be_alone() -> None:
    """Holds none of the streams of the job, and dies of no key pressed there."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)


def _report(ready: int, text: str = "") -> None:
    os.write(ready, " ".join(text.split()).encode()[:4000] + b"\n")


def _raise_reported_error(name: str, reader: int) -> None:
    # One line, not all until the end: another process that this job starts meanwhile may have the other end as well.
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.readline().decode(errors="replace").strip()
    if text:
        raise Error(f"the producer of the shared input {name!r} cannot start: {text}")
