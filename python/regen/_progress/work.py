"""Around work that takes long."""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from regen import _runtime
from regen._progress import events, terminal

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Work inside shows a line where there is a terminal, and its events have arrived at the end."""
    events.READER.listen_by_itself()
    line = terminal.is_allowed()
    _runtime.allow_progress_line(line)
    shown = line and _runtime.progress_line_wanted()
    if shown:
        terminal.STREAMS.enter()
    try:
        yield
    finally:
        if shown:
            terminal.STREAMS.leave()
        events.READER.deliver(events.PATIENCE)


class Capture:
    """A capture under way, which counts the operators that it has written down."""

    def __init__(self) -> None:
        self.progress = _runtime.Progress("capture", pieces="ops")

    def reach(self, ops: int) -> None:
        """So many operators by now."""
        self.progress.reach(ops)


CAPTURE: contextvars.ContextVar[Capture | None] = contextvars.ContextVar("regen.capture", default=None)


def current_capture() -> Capture | None:
    """Of this thread; None: no capture is under way."""
    return CAPTURE.get()


def watched_capture(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """`function`, which captures."""

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        with watched():
            capture = Capture()
            token = CAPTURE.set(capture)
            try:
                return function(*args, **kwargs)
            finally:
                CAPTURE.reset(token)
                capture.progress.end()

    return call
