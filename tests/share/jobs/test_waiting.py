"""A job that waits says so on its terminal, with its place in the queue, and Ctrl-C ends it."""

import signal
import subprocess
import sys

import pytest

import wire
from eventually import eventually
from pseudo_terminal import PseudoTerminal, shows
from regen_program import BINARY, ROOT
from share_daemon import Daemon

JOB = f"""
import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "python")!r}]
import regen
try:
    job = regen.share.job(required=True)
    with regen.share.hold():
        print("its turn")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture
def daemon(tmp_path):
    running = Daemon(tmp_path, "--device", "gpu:100000")
    yield running
    running.stop(signal.SIGKILL)
    running.process.stdout.close()
    running.process.stderr.close()


def run(daemon, name, priority=0):
    """A job on a terminal of its own."""
    return PseudoTerminal(
        str(BINARY), "share", "run", "--socket", daemon.socket, "--name", name, "--memory", "40000", "--priority", str(priority), "--", sys.executable,
        "-c", JOB, columns=100)


def neighbour(daemon, **options):
    """A job that could do with fewer bytes, but does not hear of it."""
    present = wire.Wire(daemon.socket)
    present.register("neighbour", memory=90_000, **options)
    return present


def status(daemon):
    asking = wire.Wire(daemon.socket)
    asking.send(wire.STATUS)
    _, report = asking.receive()
    asking.close()
    return report["devices"][0]


def test_for_admission(daemon):
    present = neighbour(daemon, least_bytes=10_000)
    waiting = run(daemon, "waiting")
    waiting.read_until(shows("waiting for admission"))
    waiting.read_until(shows("place 1 of 1"))
    urgent = run(daemon, "urgent", priority=1)
    urgent.read_until(shows("place 1 of 2"))
    waiting.read_until(shows("place 2 of 2"))
    urgent.process.send_signal(signal.SIGINT)
    assert urgent.end() == 0 and urgent.screen.text() == ["interrupted"]
    waiting.read_until(lambda screen: "place 1 of 1" in screen.lines[-1])
    present.close()
    assert waiting.end() == 0 and waiting.screen.text() == ["its turn"]


def test_for_the_device(daemon):
    present = wire.Wire(daemon.socket)
    present.register("neighbour", memory=10_000)
    present.send(wire.ACQUIRE)
    assert present.receive()[0] == wire.GRANTED
    waiting = run(daemon, "waiting")
    waiting.read_until(shows("waiting for the device"))
    waiting.read_until(shows("no other job waits"))
    waiting.process.send_signal(signal.SIGINT)
    assert waiting.end() == 0 and waiting.screen.text() == ["interrupted"]
    present.send(wire.IDLE)
    assert eventually(lambda: [job["name"] for job in status(daemon)["jobs"]] == ["neighbour"])


def test_nothing_is_said_without_a_terminal(daemon):
    present = neighbour(daemon, least_bytes=10_000)
    waiting = subprocess.Popen(
        [str(BINARY), "share", "run", "--socket", daemon.socket, "--name", "waiting", "--memory", "40000", "--", sys.executable, "-c", JOB],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert eventually(lambda: len(status(daemon)["newcomers"]) == 1)
    present.close()
    assert waiting.communicate(timeout=60) == ("its turn\n", "")
