"""Measures what watching costs the watched: the time from a request for the device to its grant, without and with the live page and `top` open.

    python benchmarks/share_page.py --seconds 600

Two daemons have the same jobs, which take turns and report bytes and requests all the time. One has no page. The other one has, and while it is
measured a browser (Chromium, or what a browser asks where there is none) shows the page, `regen share top` runs at a terminal, and Prometheus asks for
the metrics; they are stopped while the first one is measured. Short rounds on the two alternate, so that what else the machine does is shared evenly.
In each round one job of high priority asks for the device, gives it back and asks again; jobs beside it update. Prints a JSON line with the median and
the 99th percentile of each in microseconds, and the ratio of the medians, which is expected to be 1 within 5 %.
"""

import argparse
import contextlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "share"), str(ROOT / "tests" / "support")]

import wire
from devtools import Browser, chromium

BINARY = pathlib.Path(os.environ.get("REGEN_BIN", ROOT / "build" / "regen"))
ROUND = 0.5  # seconds
UPDATES = 20  # of all jobs together, between two rounds of grants


class Daemon:
    """A daemon, its jobs, and what was measured there."""

    def __init__(self, folder, jobs, *options):
        self.socket = str(folder / "s")
        self.process = subprocess.Popen(
            [BINARY, "share", "serve", "--socket", self.socket, "--settle", "0", "--quiet", "--device", "gpu0:80GiB", *options],
            stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        self.url = self.process.stdout.readline().split()[-1] if options else None
        self.jobs = []
        for number in range(jobs):
            self.jobs.append(wire.Wire(self.socket))
            self.jobs[-1].register(f"job {number}", identity=str(number), memory=2**30)
        self.probe = wire.Wire(self.socket)
        self.probe.register("probe", priority=9)
        self.taken = []

    def update(self, number):
        """What a job that works says now and then."""
        job = self.jobs[number % len(self.jobs)]
        _, _, generation = job.limit()
        job.send(wire.CONFIRM, generation=generation, used_bytes=number % 2**30)
        job.send(wire.REQUESTS, count=number, p50_seconds=0.01, p95_seconds=0.02)
        job.send(wire.ACQUIRE)
        assert job.receive() == (wire.GRANTED, {})
        job.send(wire.IDLE)

    def round(self, count):
        """Grants for as long as a round takes. Returns how many updates there were."""
        end = time.perf_counter() + ROUND
        while time.perf_counter() < end:
            count += 1
            self.update(count)
            for _ in range(UPDATES):
                began = time.perf_counter_ns()
                self.probe.send(wire.ACQUIRE)
                answer = self.probe.receive()
                self.taken.append((time.perf_counter_ns() - began) / 1e3)
                assert answer == (wire.GRANTED, {}), answer
                self.probe.send(wire.IDLE)
        return count

    def stop(self):
        self.process.kill()
        self.process.wait()


class Watchers:
    """The page in a browser, `top` at a terminal, and Prometheus; stopped and continued together."""

    def __init__(self, daemon):
        self.watching = threading.Event()
        self.over = False
        self.frames = self.questions = 0
        self.browser = Browser() if chromium() else None
        if self.browser:
            self.page = self.browser.open(daemon.url)
            self.page.wait_for("document.documentElement.dataset.ready === 'yes'")
        self.leader, follower = pty.openpty()
        self.top = subprocess.Popen([BINARY, "share", "top", "--socket", daemon.socket], stdin=follower, stdout=follower, stderr=follower,
                                    env={**os.environ, "TERM": "xterm"}, start_new_session=True)
        os.close(follower)
        base, token = re.fullmatch(r"(http://.*)/\?token=(\w+)", daemon.url).groups()
        self.paths = ["/metrics"] if self.browser else ["/metrics", "/status.json", "/history.json"]
        self.threads = [threading.Thread(target=self.read), threading.Thread(target=self.ask, args=(base, token))]
        for thread in self.threads:
            thread.start()

    def read(self):
        """What `top` draws."""
        while not self.over:
            if select.select([self.leader], [], [], 0.2)[0]:
                self.frames += os.read(self.leader, 1 << 16).count(b"\x1b[H")

    def ask(self, base, token):
        while not self.over:
            time.sleep(1)
            if not self.watching.is_set():
                continue
            for path in self.paths:
                request = urllib.request.Request(base + path, headers={"Authorization": f"Bearer {token}"})
                with urllib.request.urlopen(request, timeout=30) as answer:
                    self.questions += len(answer.read()) > 0

    def processes(self):
        """Of the browser and of top."""
        roots = [self.top.pid] + ([self.browser.process.pid] if self.browser else [])
        children = {}
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                except OSError:
                    continue
                children.setdefault(parent, []).append(int(entry.name))
        found = []
        while roots:
            found.append(roots.pop())
            roots += children.get(found[-1], [])
        return found

    def signal(self, number):
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def stop(self):
        self.watching.clear()
        self.signal(signal.SIGSTOP)

    def go_on(self):
        self.signal(signal.SIGCONT)
        self.watching.set()

    def reports(self):
        """How old the daemon was when the page heard of it last; nothing without a browser."""
        return float(self.page.evaluate("document.documentElement.dataset.age")) if self.browser else None

    def close(self):
        self.go_on()
        self.over = True
        for thread in self.threads:
            thread.join()
        self.top.terminate()
        self.top.wait()
        os.close(self.leader)
        if self.browser:
            self.browser.close()


def summary(taken):
    return {"median_us": round(statistics.median(taken), 2), "p99_us": round(statistics.quantiles(taken, n=100)[98], 1), "grants": len(taken)}


def measure(arguments, alone, watched, watchers):
    """Rounds on the two, in turns."""
    counts = [0, 0]
    ratios = []
    end = time.monotonic() + arguments.seconds
    while time.monotonic() < end:
        first = [len(alone.taken), len(watched.taken)]
        watchers.stop()
        counts[0] = alone.round(counts[0])
        watchers.go_on()
        counts[1] = watched.round(counts[1])
        ratios.append(statistics.median(watched.taken[first[1]:]) / statistics.median(alone.taken[first[0]:]))
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600, help="in all (default 600)")
    parser.add_argument("--jobs", type=int, default=50)
    arguments = parser.parse_args()
    daemons = []
    watchers = None
    try:
        for name, options in (("alone", ()), ("watched", ("--page", "127.0.0.1:0"))):
            folder = pathlib.Path(tempfile.mkdtemp(prefix=f"regen-{name}-"))
            daemons.append(Daemon(folder, arguments.jobs, *options))
        alone, watched = daemons
        watchers = Watchers(watched)
        ratios = measure(arguments, alone, watched, watchers)
        print(json.dumps({
            "what": "page", "jobs": arguments.jobs, "seconds": arguments.seconds, "rounds": len(ratios), "browser": bool(watchers.browser),
            "frames_of_top": watchers.frames, "questions": watchers.questions, "page_age_seconds": watchers.reports(),
            "alone": summary(alone.taken), "watched": summary(watched.taken),
            "ratio": round(statistics.median(watched.taken) / statistics.median(alone.taken), 4),
            "ratio_of_rounds": round(statistics.median(ratios), 4)}))
    finally:
        if watchers:
            watchers.close()
        for daemon in daemons:
            daemon.stop()


main()
