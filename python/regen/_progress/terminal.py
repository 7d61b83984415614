"""The line on the terminal, which C++ draws on standard error (regen/base/progress/progress_line.h): whether it may, and what else Python writes
meanwhile.
"""

import logging
import os
import sys
import threading
from typing import Any

from regen import _runtime
from regen._progress import notebook


def is_allowed() -> bool:
    """Whether standard error is the terminal that C++ would write to, and no other rank of a job writes there too."""
    if notebook.is_here() or os.environ.get("RANK", "0") != "0":
        return False
    return is_terminal(sys.stderr, 2)


def is_terminal(stream: Any, descriptor: int | None = None) -> bool:
    try:
        return bool(stream.isatty()) and descriptor in (None, stream.fileno())
    except (AttributeError, OSError, ValueError):  # no stream, one without a file, or a closed one
        return False


class BesideLine:
    """A stream whose output never stands in the line: the line goes first, and comes again when the output has ended its own line."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> Any:
        """As the stream's."""
        if not text:
            return self.stream.write(text)
        _runtime.pause_progress_line()
        try:
            written = self.stream.write(text)
            self.stream.flush()
        finally:
            _runtime.resume_progress_line(not text.endswith("\n"))
        return written

    def writelines(self, lines: Any) -> None:
        """As the stream's."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Streams:
    """`sys.stdout` and `sys.stderr` while there may be a line, and those of the root logger's handlers, which hold on to a stream."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.replaced: dict[str, BesideLine] = {}
        self.handlers: list[tuple[logging.StreamHandler[Any], BesideLine]] = []

    def enter(self) -> None:
        """A piece of work begins."""
        with self.lock:
            self.users += 1
            if self.users > 1:
                return
            for name in ("stdout", "stderr"):
                if is_terminal(getattr(sys, name)):
                    self.replaced[name] = BesideLine(getattr(sys, name))
                    setattr(sys, name, self.replaced[name])
            for handler in logging.getLogger().handlers:
                if isinstance(handler, logging.StreamHandler) and is_terminal(handler.stream):
                    self.handlers.append((handler, BesideLine(handler.stream)))
                    handler.setStream(self.handlers[-1][1])

    def leave(self) -> None:
        """It has ended. A stream that other code has put in place meanwhile stays."""
        with self.lock:
            self.users -= 1
            if self.users > 0:
                return
            for name, stream in self.replaced.items():
                if getattr(sys, name) is stream:
                    setattr(sys, name, stream.stream)
            for handler, stream in self.handlers:
                if handler.stream is stream:
                    handler.setStream(stream.stream)
            self.replaced, self.handlers = {}, []


STREAMS = Streams()
