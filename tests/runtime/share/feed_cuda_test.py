"""Shared input on a GPU: consumers as processes, against a plain reading of the dataset, bit for bit; with kills.

The same runs on a CPU, so that the test itself is tested where there is no GPU.
"""

import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from eventually import eventually
from regen.share._batches import Batches
from tests.runtime.share.feed_cuda_worker import BATCH, Noise, digest

WORKER = Path(__file__).with_name("feed_cuda_worker.py")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
DEVICES_AND_WORKERS = [("cpu", 2), pytest.param("cuda", 0, marks=needs_gpu), pytest.param("cuda", 2, marks=needs_gpu)]
SLACK = 64 << 20  # of the driver's own bookkeeping


@pytest.fixture
def readers(monkeypatch):
    """Starts consumers, all of which have ended after the test, and their producers with them."""
    with tempfile.TemporaryDirectory(prefix="regen-feed-") as folder:
        monkeypatch.setenv("REGEN_INPUT_FOLDER", folder)
        started = []

        def start(device, consumers=1, workers=0):
            started.append(Reader(device, consumers, workers))
            return started[-1]

        yield start
        for reader in started:
            reader.end()
        assert eventually(lambda: producer() is None), "a producer is left although nobody is attached"


class Reader:
    def __init__(self, device, consumers, workers):
        self.process = subprocess.Popen(
            [sys.executable, WORKER, "test", device, str(consumers), str(workers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, word):
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        assert line, f"the consumer ended with status {self.process.wait()}"
        found = json.loads(line)
        self.lost = found["lost"]
        return found["answer"]

    def do(self, word):
        self.ask(word)
        return self.answer()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def producer():
    """The process that listens, if any; a killed one leaves its socket behind."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        if probe.connect_ex(os.path.join(os.environ["REGEN_INPUT_FOLDER"], "input-test.sock")) != 0:
            return None
        return struct.unpack("iII", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def expected():
    """Hashes of all batches, epoch after epoch."""
    batches = Batches(Noise(), BATCH, True, 3, False, 0, None)
    for epoch in itertools.count():
        yield from (digest(batch) for batch in batches.at(epoch, 0))


@pytest.mark.parametrize("device, workers", DEVICES_AND_WORKERS)
def test_two_consumers_have_the_bits_of_a_plain_reading(readers, device, workers):
    both = [readers(device, consumers=2, workers=workers) for _ in range(2)]
    for right in itertools.islice(expected(), 30):  # more than two epochs
        for reader in both:
            reader.ask("next")
        assert [reader.answer() for reader in both] == [right, right]
    assert [reader.lost for reader in both] == [0, 0]


@pytest.mark.parametrize("device, workers", DEVICES_AND_WORKERS)
def test_a_killed_producer_takes_no_batch_with_it(readers, device, workers):
    reader, right = readers(device, workers=workers), expected()
    assert reader.do("next") == next(right)
    for kills in (1, 2, 3):
        kept = next(right)
        assert reader.do("hold") == kept
        os.kill(producer(), signal.SIGKILL)
        assert reader.do("held") == kept, "memory that is mapped outlives who made it"
        assert reader.do("next") == next(right)
        assert reader.do("held") == kept, "the new producer has memory of its own"
        reader.do("drop")
        assert reader.lost == kills


@pytest.mark.parametrize("device", DEVICES)
def test_a_killed_consumer_leaves_the_other_its_bits(readers, device):
    both = [readers(device, consumers=2) for _ in range(2)]
    right = expected()
    for reader in both:
        reader.ask("hold")
    kept = next(right)
    assert [reader.answer() for reader in both] == [kept, kept]
    both[1].kill()
    for _ in range(10):  # more than there are slots
        assert both[0].do("next") == next(right)
    assert both[0].do("held") == kept and both[0].lost == 0


@needs_gpu
def test_nothing_stays_on_the_device(readers):
    before = torch.cuda.mem_get_info()[0]
    reader, right = readers("cuda"), expected()
    free = []
    for _ in range(6):
        assert reader.do("next") == next(right)
        reader.do("drop")
        free.append(reader.do("free"))
        os.kill(producer(), signal.SIGKILL)
    assert reader.do("next") == next(right)
    assert min(free[1:]) > free[1] - SLACK, "rings of killed producers are closed"
    victim = readers("cuda")
    victim.do("hold")
    victim.kill()
    os.kill(producer(), signal.SIGKILL)
    reader.kill()
    assert eventually(lambda: torch.cuda.mem_get_info()[0] > before - SLACK), "all of them are gone"
