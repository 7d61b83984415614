"""A program on a terminal of a given width, and what a person would see there.

The screen is a model of its own: it knows carriage returns, line ends, wrapping, colours and the two codes that wipe, and refuses all else.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable

PATIENCE = 120  # seconds
CODE = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])")


def is_readable(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read within so many seconds. For descriptors of any number, which select() does not take."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


class Screen:
    """Rows of text, a cursor, and each line of progress that was ever complete."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.rows: list[list[str]] = [[]]
        self.row = self.column = 0
        self.codes: set[str] = set()
        self.lines: list[str] = []  # of progress

    def feed(self, text: str) -> None:
        """What a program has written."""
        at = 0
        while at < len(text):
            code = CODE.match(text, at)
            if code:
                self.obey(code[1], code[2])
                at = code.end()
                continue
            self.put(text[at])
            at += 1

    def obey(self, numbers: str, letter: str) -> None:
        self.codes.add(letter)
        if letter == "J" and numbers in ("", "0"):
            del self.rows[self.row][self.column:]
            del self.rows[self.row + 1:]
        elif letter == "K" and numbers in ("", "0"):
            del self.rows[self.row][self.column:]
        else:
            assert letter == "m", f"a code that not every terminal knows: {numbers}{letter}"

    def put(self, character: str) -> None:
        if character == "\r":
            self.note_line()
            self.column = 0
        elif character == "\n":
            self.go_down()
        else:
            assert character.isprintable(), repr(character)
            if self.column == self.columns:
                self.go_down()
                self.column = 0
            row = self.rows[self.row]
            row.extend(" " * (self.column + 1 - len(row)))
            row[self.column] = character
            self.column += 1

    def go_down(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append([])

    def note_line(self) -> None:
        text = "".join(self.rows[self.row]).rstrip()
        if text.startswith("regen: ") and (not self.lines or self.lines[-1] != text):
            self.lines.append(text)

    def text(self) -> list[str]:
        """The rows, without empty ones at the end."""
        rows = ["".join(row).rstrip() for row in self.rows]
        while rows and not rows[-1]:
            rows.pop()
        return rows


class PseudoTerminal:
    """A program whose outputs are a terminal. `separate`: standard output is a pipe; `silent_input`: standard input is one that says nothing."""

    def __init__(self, *command: str, columns: int = 80, separate: bool = False, silent_input: bool = False, **environment: str) -> None:
        self.leader, follower = pty.openpty()
        self.screen = Screen(columns)
        self.resize(columns, follower)
        inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "REGEN_PROGRESS", "RANK")}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE if silent_input else subprocess.DEVNULL, stdout=subprocess.PIPE if separate else follower, stderr=follower,
            env={**inherited, "TERM": "xterm", **environment}, preexec_fn=default_signals)
        os.close(follower)
        self.output = b""

    def resize(self, columns: int, terminal: int | None = None) -> None:
        """As when a person changes the window; text that is there stays as it is."""
        fcntl.ioctl(self.leader if terminal is None else terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.screen.columns = columns

    def read(self, seconds: float) -> bool:
        """Some of what comes; False at the end."""
        if not is_readable(self.leader, seconds):
            return True
        try:
            some = os.read(self.leader, 65536)
        except OSError:  # the other side is gone
            return False
        self.output += some
        self.screen.feed(some.decode())
        return bool(some)

    def read_until(self, seen: Callable[[Screen], bool]) -> None:
        """Until the screen shows what is waited for."""
        end = time.monotonic() + PATIENCE
        while not seen(self.screen):
            if not self.read(1.0) or time.monotonic() > end:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"never seen; the screen has {self.screen.text()}, lines were {self.screen.lines[-3:]}")

    def end(self) -> int:
        """Reads to the end of the program; its exit status."""
        end = time.monotonic() + PATIENCE
        while self.read(1.0):
            if time.monotonic() > end:
                self.process.kill()
                self.process.wait()
                raise AssertionError("the program does not end")
        os.close(self.leader)
        if self.process.stdin is not None:
            self.process.stdin.close()
        return self.process.wait(60)


def default_signals() -> None:
    """A test run in the background ignores SIGINT and SIGQUIT, and so would its children."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def shows(word: str) -> Callable[[Screen], bool]:
    """Whether a line of progress with the word was seen."""
    return lambda screen: any(word in line for line in screen.lines)
