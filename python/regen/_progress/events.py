"""`regen.on_progress`: events of work under way, from C++ (regen/base/progress) to callbacks, to `logging` and to notebooks.

C++ notes what changes; nothing there waits for Python. One thread of this module sleeps until there is something, and only where there is a
listener. The thread that does the work takes what is left at its end, so that the events of a call have arrived when it returns.
"""

import atexit
import dataclasses
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from regen import _runtime
from regen._progress import notebook
from regen.errors import OptionTypeError

LOGGER = logging.getLogger("regen")
LOGGER.addHandler(logging.NullHandler())

PERIOD = 0.1  # seconds between two events of one piece of work, at least
FIRST_RECORD, NEXT_RECORD = 1.0, 10.0  # seconds of work until it is logged, and between two records
SHORT_WAIT = 1.0  # seconds; turns of a shared device that come sooner are not logged
PATIENCE = 1.0  # seconds that a caller waits for a callback that another thread is inside of
ASLEEP = 3600.0


@dataclasses.dataclass(frozen=True)
class ProgressEvent:
    """What is known of a piece of work, for callbacks of `regen.on_progress`.

    Attributes:
        number: of the work in this process, ascending; the events of one piece of work have the same.
        stage: "capture", "measure", "plan", "place", "compile", "wait" (for the device or for memory of a job), "improve" (the search beside
            the training).
        done: how many `pieces` are done.
        total: of how many; None: not known.
        pieces: what is counted: "ops".
        best_seconds: of a step under the best plan so far; None: there is none yet.
        bound_seconds: no plan is faster; None: nothing is proven.
        base_seconds: of a step that keeps everything; None: not known.
        seconds: since the work began.
        background: the program does not wait for it.
        ended: the last event of this work, also where it failed.
        text: all of this in one line for people.
    """

    number: int
    stage: str
    done: int
    total: int | None
    pieces: str
    best_seconds: float | None
    bound_seconds: float | None
    base_seconds: float | None
    seconds: float
    background: bool
    ended: bool
    text: str

    @property
    def overhead(self) -> float | None:
        """Of the best plan, over keeping everything, as a fraction; None: not known."""
        if self.best_seconds is None or self.base_seconds is None:
            return None
        return self.best_seconds / self.base_seconds - 1

    @property
    def gap(self) -> float | None:
        """How much faster than the best plan another one could be at most, as a fraction; None: not known."""
        if not self.best_seconds or self.bound_seconds is None:
            return None
        return max(0.0, 1 - self.bound_seconds / self.best_seconds)


class Listener(Protocol):
    """Gets every event."""

    def __call__(self, event: ProgressEvent, /) -> None: ...


class ProgressHandle:
    """What `regen.on_progress` returns. As a context manager it removes the callback at its end."""

    def __init__(self, callback: Callable[[ProgressEvent], object]) -> None:
        self.callback = callback

    def __call__(self, event: ProgressEvent, /) -> None:
        """Calls the callback. One that raises must not end a training: it is called no more."""
        try:
            self.callback(event)
        except Exception as error:  # whatever a caller's function raises
            self.remove()
            warnings.warn(
                f"regen: the callback {name_of(self.callback)} of regen.on_progress raised {type(error).__name__}: {error}; it is not called any more, "
                "and the work goes on", stacklevel=2)

    def remove(self) -> None:
        """Ends the calls."""
        READER.remove(self)

    def __enter__(self) -> "ProgressHandle":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /) -> None:
        self.remove()


def on_progress(callback: Callable[[ProgressEvent], object]) -> ProgressHandle:
    """Calls a function with what is known of long work, for progress bars of frameworks.

        with regen.on_progress(lambda event: print(event.stage, event.done, event.total, event.best_seconds)):
            step = regen.step(model, loss_fn, optimizer, (x, y), budget="6GiB")

    It counts for all work of the process: capturing, measuring, planning, compiling, waiting for a shared device, and searches beside a training,
    wherever they are asked for (`regen.step`, a wrapped model, `torch.compile`, trainers). Each piece of work has an event when it has begun, from
    one to ten in a second while it lasts, and one at its end, before the call that did it returns. Events of searches beside a training come
    when they come.

    The function is called on a thread of regen or on the one that does the work, never twice at the same time. One that raises is named in a warning
    and is not called any more. Plans do not depend on it.

    Args:
        callback: a function of a `regen.ProgressEvent`.

    Returns:
        A handle: `remove()` ends the calls, and so does the end of `with`.

    Raises:
        OptionTypeError: the callback cannot be called.
    """
    if not callable(callback):
        raise OptionTypeError(f"on_progress({callback!r}): expected a function of a regen.ProgressEvent")
    handle = ProgressHandle(callback)
    READER.add(handle)
    return handle


def name_of(callback: object) -> str:
    return str(getattr(callback, "__qualname__", type(callback).__name__))


class LogRecords:
    """Events as records of the logger "regen": at the end of work, and now and then while it lasts."""

    def __init__(self) -> None:
        self.next: dict[int, float] = {}  # number of a work -> seconds of it at which it is due

    def __call__(self, event: ProgressEvent, /) -> None:
        due = self.next.setdefault(event.number, FIRST_RECORD)
        if event.ended:
            del self.next[event.number]
            if event.stage != "wait" or event.seconds >= SHORT_WAIT:
                LOGGER.info("%s", event.text)
        elif event.seconds >= due:
            self.next[event.number] = event.seconds + NEXT_RECORD
            LOGGER.info("%s", event.text)


class Reader:
    """Brings events to listeners."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # of taking and delivering: events stay in order
        self.delivering = False
        self.listeners: list[Listener] = []
        self.own: list[Listener] = []  # of those, the ones that are no callbacks
        self.thread: threading.Thread | None = None
        self.ending = False

    def add(self, listener: Listener) -> None:
        """It gets events from now on."""
        with self.lock:
            self.listeners = [*self.listeners, listener]
            self.start()

    def remove(self, listener: Listener) -> None:
        """It gets no more."""
        with self.lock:
            self.listeners = [other for other in self.listeners if other is not listener]
            if not self.listeners:
                _runtime.read_progress(False)

    def listen_by_itself(self) -> None:
        """Where records are wanted, or this is a notebook."""
        if not self.own and LOGGER.isEnabledFor(logging.INFO):
            self.own.append(LogRecords())
            self.add(self.own[-1])
        if notebook.is_here() and not any(isinstance(other, notebook.Line) for other in self.own):
            self.own.append(notebook.Line())
            self.add(self.own[-1])

    def start(self) -> None:
        _runtime.read_progress(True)
        if self.thread is None and not self.ending:
            self.thread = threading.Thread(target=self.run, name="regen-progress", daemon=True)
            self.thread.start()

    def run(self) -> None:
        """The thread."""
        while not self.ending:
            _runtime.wait_for_progress(ASLEEP)
            self.deliver()
            time.sleep(PERIOD)

    def deliver(self, patience: float = -1) -> None:
        """What has happened since the last call."""
        if not self.listeners or not self.lock.acquire(timeout=patience):
            return
        try:
            if self.delivering:  # a callback has called regen
                return
            self.delivering = True
            try:
                for state in _runtime.take_progress():
                    event = event_of(state)
                    for listener in self.listeners:
                        listener(event)
            finally:
                self.delivering = False
        finally:
            self.lock.release()

    def end(self) -> None:
        """With the process, before Python goes."""
        self.ending = True
        _runtime.wake_progress_reader()
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(PATIENCE)


def event_of(state: _runtime.ProgressState) -> ProgressEvent:
    return ProgressEvent(
        number=state.number, stage=state.stage, done=state.done, total=state.total, pieces=state.pieces, best_seconds=state.best,
        bound_seconds=state.bound, base_seconds=state.base, seconds=state.seconds, background=state.background, ended=state.ended,
        text=state.text)


READER = Reader()


def begin_in_child() -> None:
    """A forked child has the callbacks, but not the thread."""
    global READER
    callbacks = [listener for listener in READER.listeners if isinstance(listener, ProgressHandle)]
    READER = Reader()
    for callback in callbacks:
        READER.add(callback)


os.register_at_fork(after_in_child=begin_in_child)
atexit.register(lambda: READER.end())
