"""Measures the sharing daemon under a crowd: the time from a request for the device to its grant, of two honest jobs that take it in turn, among
idle jobs alone, and beside connections that misbehave.

    python benchmarks/daemon_load.py                       # 100 honest connections, 900 others

The others send questions and do not read the answers, half messages, garbage, registrations that are refused, and questions without end; a
connection that is closed comes again. Calm and crowded rounds alternate. Prints a JSON line: the median and the 99th percentile of each in
microseconds, the ratio of the medians, the daemon's memory and what it refused.
"""

import argparse
import json
import os
import pathlib
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "share"))

import wire

ROUNDS, GRANTS = 8, 500


def frame(kind, body=b"{}"):
    return b"RGSH" + struct.pack("<HHI", 1, kind, len(body)) + body


ATTACKS = [
    frame(wire.STATUS) * 500,  # which it does not read
    b"RG",
    os.urandom(64),
    frame(wire.REGISTER, b'{"name":"x","identity":"x","memory":1000000000000000}'),
    frame(wire.REGISTER, b'{"name":"big","identity":"big","memory":5,"points":[' + b",".join([b"[1,1]"] * 6000) + b"]}")[:60000],
    frame(wire.STATUS),
]


def misbehave(path, count):
    """Until it is killed."""
    crowd = [None] * count
    number = 0
    while True:
        for place, connection in enumerate(crowd):
            number += 1
            try:
                if connection is None:
                    connection = crowd[place] = socket.socket(socket.AF_UNIX)
                    connection.connect(path)
                    connection.setblocking(False)
                connection.send(ATTACKS[(place + number) % len(ATTACKS)])
                if place % 2:
                    connection.recv(65536)
            except BlockingIOError:
                pass
            except OSError:
                connection.close()
                crowd[place] = None


def latencies(first, second):
    """Microseconds from each request to its grant. Each is idle again before the other asks."""
    taken = []
    for _ in range(GRANTS):
        for job in (first, second):
            began = time.perf_counter_ns()
            job.send(wire.ACQUIRE)
            answer = job.receive()
            assert answer[0] == wire.GRANTED, answer
            taken.append((time.perf_counter_ns() - began) / 1e3)
            job.send(wire.IDLE)
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--honest", type=int, default=100)
    parser.add_argument("--others", type=int, default=900)
    arguments = parser.parse_args()
    path = str(pathlib.Path(tempfile.mkdtemp(prefix="regen-load-")) / "s")
    daemon = subprocess.Popen(
        [ROOT / "build" / "regen", "share", "serve", "--socket", path, "--settle", "0", "--quiet"], stdout=subprocess.PIPE, text=True)
    daemon.stdout.readline()
    try:
        report(path, daemon, arguments)
    finally:
        daemon.kill()
        daemon.wait()


def report(path, daemon, arguments):
    """Prints the line."""
    honest = []
    for number in range(arguments.honest):
        honest.append(wire.Wire(path))
        honest[-1].register(f"honest {number}")
    calm, crowded, pages = [], [], 0
    for _ in range(ROUNDS):
        calm += latencies(*honest[:2])
        crowd = os.fork()
        if crowd == 0:
            misbehave(path, arguments.others)
        try:
            time.sleep(0.5)
            crowded += latencies(*honest[:2])
            pages = max(pages, int(pathlib.Path(f"/proc/{daemon.pid}/statm").read_text().split()[1]))
        finally:
            os.kill(crowd, signal.SIGKILL)
            os.waitpid(crowd, 0)
        time.sleep(0.3)
    print(json.dumps({
        "what": "load", "honest": arguments.honest, "others": arguments.others,
        "calm_us": round(statistics.median(calm), 1), "crowded_us": round(statistics.median(crowded), 1),
        "calm_p99_us": round(statistics.quantiles(calm, n=100)[98], 1), "crowded_p99_us": round(statistics.quantiles(crowded, n=100)[98], 1),
        "ratio": round(statistics.median(crowded) / statistics.median(calm), 2), "memory_mb": round(pages * 4096 / 1e6, 1)}))


main()
