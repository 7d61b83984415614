"""`regen share top`: its numbers, its width, its keys, and the terminal that it leaves behind."""

import codecs
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import unicodedata

import pytest

import wire
from eventually import eventually
from pseudo_terminal import default_signals, is_readable
from regen_program import BINARY

GIB = 2**30
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?25h\x1b[?1049l"


def width(text):
    """Columns that a terminal takes for it."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def becomes_a_session_of_its_own():
    default_signals()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A program at a terminal of a given size."""

    def __init__(self, command, columns, rows=40, **environment):
        self.leader, self.follower = pty.openpty()
        self.resize(columns, rows, None)
        self.before = termios.tcgetattr(self.follower)
        self.output = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        self.process = subprocess.Popen(
            command, stdin=self.follower, stdout=self.follower, stderr=self.follower, start_new_session=True,
            preexec_fn=becomes_a_session_of_its_own,
            env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm", "LC_ALL": "C.UTF-8", **environment})

    def resize(self, columns, rows, process):
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if process:
            process.send_signal(signal.SIGWINCH)

    def read(self):
        """What is there now."""
        while is_readable(self.leader, 0.02):
            try:
                data = os.read(self.leader, 1 << 16)
            except OSError:  # the other side is gone
                return
            self.output += self.decoder.decode(data)
            if len(data) < 1 << 12:
                return

    def frames(self):
        """Whole screens, as lines without marks of style."""
        self.read()
        parts = self.output.split("\x1b[H")[1:]
        whole = [part[: part.index("\x1b[J")] for part in parts if "\x1b[J" in part]
        return [[re.sub(r"\x1b\[[0-9;]*[mK]", "", line) for line in re.split("\r+\n", frame)] for frame in whole]

    def wait_for(self, condition):
        """The first new screen for which it holds."""
        seen = len(self.frames())
        found = []

        def look():
            frames = self.frames()[max(0, seen - 1):]
            found[:] = [frame for frame in frames if condition(frame)]
            return bool(found)

        assert eventually(look), self.frames()[-1:]
        return found[0]

    def type(self, keys):
        os.write(self.leader, keys.encode())

    def end(self, status=0):
        assert eventually(lambda: self.read() or self.process.poll() is not None)
        assert self.process.returncode == status
        self.read()
        assert termios.tcgetattr(self.follower) == self.before, "the terminal is not as it was"
        assert self.output.count(ENTER) == self.output.count(LEAVE)
        assert self.output.endswith(LEAVE) or ENTER not in self.output
        self.close()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for end in ("leader", "follower"):
            if getattr(self, end) is not None:
                os.close(getattr(self, end))
                setattr(self, end, None)


@pytest.fixture
def top(daemon):
    """Starts `regen share top` at a terminal."""
    made = []

    def start(columns, interval=0.05, **more):
        made.append(Terminal([str(BINARY), "share", "top", "--socket", daemon.socket, "--interval", str(interval)], columns, **more))
        return made[-1]

    yield start
    for terminal in made:
        terminal.close()


@pytest.fixture
def jobs(daemon):
    """A holder, one that waits, one that is idle, and one that waits for memory."""
    train, infer, idle, newcomer = (wire.Wire(daemon.socket) for _ in range(4))
    train.register("train", memory=8 * GIB, weight=2.5, priority=1)
    infer.register("infer", memory=GIB)
    idle.register("idle", memory=GIB, priority=3)
    infer.send(wire.REQUESTS, count=3, p50_seconds=0.25, p95_seconds=0.5)
    train.send(wire.ACQUIRE)
    assert train.receive() == (wire.GRANTED, {})
    infer.send(wire.ACQUIRE)
    blocked = wire.Wire(daemon.socket)
    blocked.register("small", memory=900, device="gpu1", points=[[900, 0.1], [500, 0.2]])
    newcomer.send(wire.REGISTER, name="newcomer", identity="newcomer", device="gpu1", memory=500)
    return train, infer, idle, blocked, newcomer


def fits(columns, rows=None):
    """Whether a screen has this size."""
    return lambda frame: all(width(line) <= columns for line in frame) and (len(frame) == rows if rows else any(line.startswith("job ") for line in frame))


def row(frame, name):
    return next((line.split() for line in frame if line.startswith(name)), None)


def heads(frame):
    return next(line for line in frame if line.startswith("job ")).split("  ")


def test_wide(top, jobs):
    terminal = top(170)
    frame = terminal.wait_for(lambda f: row(f, "train") and "100.0 %" in "".join(f))
    assert [head.strip() for head in heads(frame) if head.strip()] == [
        "job", "state", "time", "held", "limit", "prio", "weight", "turns/s", "pauses", "wait p50", "wait p95", "req p50", "req p95", "history"]
    assert row(frame, "train")[:9] == ["train", "holding", "100.0", "%", "8.00", "GiB", "8.00", "GiB", "1"]
    assert row(frame, "infer")[1:4] == ["waiting", "0.0", "%"] and row(frame, "infer")[-5:-1] == ["250", "ms", "500", "ms"]
    assert row(frame, "idle")[8] == "3"
    device = next(line for line in frame if line.startswith("gpu0"))
    assert "held by train" in device and "10.0 GiB of 16.0 GiB" in device and "busy 100.0 %" in device and "turns/s" in device
    assert any(line.startswith("waits for memory:  newcomer  500 B") for line in frame)
    assert "█" in device
    terminal.type("q")
    terminal.end()


# In the order in which they leave (docs/reference/command-line-running.md).
LEAVING = [["weight"], ["req p50", "req p95"], ["turns/s"], ["history"], ["pauses"], ["prio"], ["limit"], ["wait p50", "wait p95"], ["held"]]


def test_columns_leave_in_the_stated_order(top, jobs):
    terminal = top(170)
    everything = {head for group in LEAVING for head in group}
    left = 0
    for columns in range(165, 20, -6):
        terminal.resize(columns, 40, terminal.process)
        frame = terminal.wait_for(fits(columns))
        shown = {head.strip() for head in heads(frame)} & everything
        gone = next(count for count in range(len(LEAVING) + 1) if {head for group in LEAVING[count:] for head in group} == shown)
        assert gone >= left
        left = gone
    assert left == len(LEAVING)
    terminal.type("q")
    terminal.end()


@pytest.mark.parametrize("columns", [40, 120])
def test_no_line_is_wider_than_the_terminal(top, daemon, jobs, columns):
    named = []
    for number, name in enumerate(["x" * 100, "日本語" * 11, "<b>bold</b>", "a\u202egnp.exe", "e\u0301" * 30, "tab\\n", "\u200b", "🙂" * 25]):
        named.append(wire.Wire(daemon.socket))
        named[-1].register(name, identity=str(number))
    terminal = top(columns)
    frame = terminal.wait_for(lambda f: any("\\u{200b}" in line for line in f) and any("%" in line for line in f))
    assert max(width(line) for line in frame) <= columns
    text = "\n".join(frame)
    assert "<b>bold</b>" in text and "a\\u{202e}" in text and "tab\\\\n" in text
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Mn") for c in text.replace("\n", ""))
    shown = {head.strip() for head in heads(frame)}
    assert {"job", "state", "time", "held"} <= shown
    assert ("history" in shown) == (columns == 120)
    terminal.type("q")
    terminal.end()


def test_a_terminal_without_utf8(top, daemon):
    job = wire.Wire(daemon.socket)
    job.register("größer", memory=GIB)
    job.send(wire.ACQUIRE)
    job.receive()
    terminal = top(120, LC_ALL="C")
    frame = terminal.wait_for(lambda f: any("busy 100.0 %" in line for line in f))
    assert "".join(frame).isascii() and row(frame, "gr\\u{f6}\\u{df}er")
    assert "#" in next(line for line in frame if line.startswith("gpu0"))
    terminal.type("q")
    terminal.end()


def test_it_follows_the_size(top, jobs):
    terminal = top(120)
    terminal.wait_for(lambda f: row(f, "train"))
    terminal.resize(44, 6, terminal.process)
    frame = terminal.wait_for(lambda f: len(f) == 6 and all(width(line) <= 44 for line in f))
    assert "more: arrow keys" in frame[-1]
    terminal.type("\x1b[6~" * 2)
    terminal.wait_for(lambda f: len(f) == 6 and any(line.startswith("gpu1") for line in f))
    terminal.type("\x1b[1;5C?" + "\x1b[5~" * 2 + "kjk")
    terminal.wait_for(lambda f: f[1].startswith("gpu0"))
    for rows in (1, 2, 3):
        terminal.resize(20, rows, terminal.process)
        terminal.wait_for(fits(20, rows))
    terminal.type("q")
    terminal.end()


@pytest.mark.parametrize("keys", ["q", "\x03", "xxq"])
def test_keys_that_end_it(top, keys):
    terminal = top(80)
    terminal.wait_for(lambda f: True)
    terminal.type(keys)
    terminal.end()


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)])
def test_signals_that_end_it(top, number, status):
    terminal = top(80)
    terminal.wait_for(lambda f: True)
    terminal.process.send_signal(number)
    terminal.end(status)


def test_it_stops_and_goes_on(top):
    terminal = top(80)
    terminal.wait_for(lambda f: True)
    terminal.type("\x1a")
    assert os.waitpid(terminal.process.pid, os.WUNTRACED)[1] == 0x7F | signal.SIGSTOP << 8
    terminal.read()
    assert terminal.output.endswith(LEAVE) and termios.tcgetattr(terminal.follower) == terminal.before
    terminal.process.send_signal(signal.SIGCONT)
    terminal.wait_for(lambda f: terminal.output.count(ENTER) == 2)
    terminal.type("q")
    terminal.end()


def test_colours_only_where_wanted(top, jobs):
    styled = top(100)
    styled.wait_for(lambda f: row(f, "train"))
    assert "\x1b[1m" in styled.output
    plain = top(100, NO_COLOR="1")
    plain.wait_for(lambda f: row(f, "train"))
    assert "\x1b[1m" not in plain.output and not re.search(r"\x1b\[[0-9;]*m", plain.output)
    for terminal in (styled, plain):
        terminal.type("q")
        terminal.end()


def test_a_daemon_that_goes_and_comes(top, daemon, tmp_path, jobs):
    terminal = top(100)
    terminal.wait_for(lambda f: row(f, "train"))
    daemon.stop(signal.SIGKILL)
    frame = terminal.wait_for(lambda f: f[0].startswith("old numbers: "))
    assert row(frame, "train"), "what was known stays"
    terminal.type("q")
    terminal.end()


def test_without_a_terminal_one_snapshot(regen, daemon, jobs):
    text = regen.ok("share", "top", "--socket", daemon.socket, "--interval", "0.05")
    assert "\x1b" not in text
    once = regen.ok("share", "top", "--socket", daemon.socket, "--interval", "0.05", "--once")
    assert [line.split()[:2] for line in once.splitlines()] == [line.split()[:2] for line in text.splitlines()]
    lines = text.splitlines()
    assert row(lines, "train")[:4] == ["train", "holding", "100.0", "%"]
    assert lines[0].startswith("up 0 min, ")
    dumb = Terminal([str(BINARY), "share", "top", "--socket", daemon.socket, "--interval", "0.05"], 60, TERM="dumb")
    dumb.end()
    assert "\x1b" not in dumb.output and "train" in dumb.output
    assert max(width(line) for line in dumb.output.splitlines()) <= 60


def test_the_daemon_is_asked_once_in_an_interval(top, daemon, jobs):
    """And on one connection, which it keeps."""
    terminal = top(100, interval=0.2)
    terminal.wait_for(lambda f: row(f, "train") and " 6 connections" in f[0])  # five jobs and this one
    before = len(terminal.frames())
    assert eventually(lambda: len(terminal.frames()) >= before + 6)
    watch = wire.Wire(daemon.socket)
    watch.send(wire.STATUS)
    assert watch.receive()[1]["connections"] == 7
    terminal.type("q")
    terminal.end()
