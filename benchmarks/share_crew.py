"""Processes that share a device in different ways, for share_latency.py and the experiments.

    with crews_of(options, ["free", "regen"]) as crews:     # all processes start and import here, once
        for crew in crews:                                  # one crew at a time has memory on the device
            with crew:
                crew.prepare("first", work("train", "resnet50", 32)); ...
                first, second = crew.measure(5, first=work("train", "resnet50", 32), second=work("infer", "vgg16", 1))

A crew has two places, `first` and `second`. Ways: `free` (two processes that know nothing of each other), `regen` (the same as jobs of a
daemon), `mps` (under NVIDIA's service), `regen+mps` (jobs of a daemon under that service, so that the device need not switch between
processes), `threads` (plain PyTorch in two threads of one process, on streams of their own). What is `alone`
is measured in a free crew while the other process does nothing.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
REGEN = os.environ.get("REGEN_BIN", str(ROOT / "build" / "regen"))
ROLES = str(ROOT / "benchmarks" / "share_roles.py")
MPS = shutil.which("nvidia-cuda-mps-control")
WAYS = ("free", "regen", "threads", "mps", "regen+mps")
PLACES = ("first", "second")
STATUS = 6  # a message of docs/reference/protocol.md


def add_options(parser):
    """Those that every program with crews takes."""
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--tiny", action="store_true", help="small networks, to see that it runs")
    parser.add_argument("--memory", default="100GiB", help="of each job")
    parser.add_argument("--quantum", type=float, default=1e-3, metavar="SECONDS", help="of a step under the daemon (default 0.001)")
    parser.add_argument("--turn", type=float, default=0.1, metavar="SECONDS", help="of equal jobs under the daemon (default 0.1)")


def end_by_signal():
    """SIGTERM (`timeout`) ends this program as an error does: no daemon and no service is left behind."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def work(kind, model=None, batch=None, **more):
    return {"kind": kind, "model": model, "batch": batch, **more}


class Daemon:
    def __init__(self, size="1TiB", turn=0.1):
        self.folder = tempfile.mkdtemp(prefix="regen-share-")
        self.socket = f"{self.folder}/s"
        command = [REGEN, "share", "serve", "--socket", self.socket, "--device", f"device:{size}", "--settle", "0", "--quiet",
                   "--turn", str(turn)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if not self.process.stdout.readline():
            sys.exit(f"{REGEN} share serve ended with status {self.process.wait()}")

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def job(self, name, memory, priority=0, weight=1):
        return [REGEN, "share", "run", "--socket", self.socket, "--name", name, "--memory", memory, "--priority", str(priority),
                "--weight", str(weight), "--"]

    def set(self, name, priority=0, weight=1):
        subprocess.run([REGEN, "share", "set", name, "--socket", self.socket, "--priority", str(priority), "--weight", str(weight)],
                       check=True, stdout=subprocess.DEVNULL)

    def jobs(self):
        """The jobs of the device as `regen share status --json` shows them, by name."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.socket)
            return self.ask(connection, connection.makefile("rb"))

    @staticmethod
    def ask(connection, answers):
        connection.sendall(b"RGSH" + struct.pack("<HHI", 1, STATUS, 2) + b"{}")
        length, = struct.unpack("<8xI", answers.read(12))
        return {job["name"]: job for job in json.loads(answers.read(length))["devices"][0]["jobs"]}

    def used(self):
        """Seconds of the device for each job so far."""
        return {name: job["used_seconds"] for name, job in self.jobs().items()}

    @contextlib.contextmanager
    def watched(self, every=0.001):
        """A list that fills with (moment in seconds since 1970, who holds the device or None) while the block runs."""
        seen, over = [], threading.Event()

        def watch():
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(self.socket)
                answers = connection.makefile("rb")
                while not over.wait(every):
                    jobs = self.ask(connection, answers)
                    seen.append((time.time(), next((name for name, job in jobs.items() if job["state"] == "holding"), None)))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield seen
        finally:
            over.set()
            thread.join()


class Worker:
    """A process of share_roles.py. It ends when its input does, so also when this program is killed."""

    def __init__(self, options, prefix=(), environment=None):
        command = [*prefix, sys.executable, ROLES, "--device", options.device, "--quantum", str(options.quantum), "--budget", options.memory]
        command += ["--tiny"] if options.tiny else []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})})

    def send(self, do, works=(), **more):
        with contextlib.suppress(BrokenPipeError):  # hear() says what happened
            self.process.stdin.write(json.dumps({"do": do, "works": list(works), **more}) + "\n")
            self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"a process of the benchmark ended with status {self.process.wait()}; what it said is above")
        return json.loads(line)

    def do(self, do, *works, **more):
        self.send(do, works, **more)
        return self.hear()

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Crew:
    def __init__(self, way, options, turn=0.1):
        self.way, self.planned = way, way != "threads"
        self.daemon = Daemon(turn=turn) if way.startswith("regen") else None
        self.folder = tempfile.mkdtemp(prefix="regen-mps-") if way.endswith("mps") else None
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": self.folder, "CUDA_MPS_LOG_DIRECTORY": self.folder} if self.folder else {}
        if way == "threads":
            one = Worker(options)
            self.workers = dict.fromkeys(PLACES, one)
        else:
            self.workers = {place: Worker(options, self.daemon.job(place, options.memory) if self.daemon else (), self.environment)
                            for place in PLACES}
        self.serving = self.closed = False

    def __enter__(self):
        if self.folder:
            subprocess.run([MPS, "-d"], env={**os.environ, **self.environment}, check=True)
            self.serving = True
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        if self.closed:
            return
        self.closed = True
        for worker in self.distinct_workers():
            worker.close()
        if self.serving:
            subprocess.run([MPS], input="quit\n", text=True, env={**os.environ, **self.environment}, stdout=subprocess.DEVNULL)
        if self.daemon:
            self.daemon.close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def distinct_workers(self):
        return list({id(worker): worker for worker in self.workers.values()}.values())

    def completed(self, spec):
        return {"planned": self.planned, **spec}

    def prepare(self, place, *works):
        """One process at a time: operators are measured."""
        self.workers[place].do("prepare", *map(self.completed, works))

    def rank(self, first, second):
        """(priority, weight) of both places; only a daemon knows of such things."""
        if self.daemon:
            for place, (priority, weight) in zip(PLACES, (first, second)):
                self.daemon.set(place, priority, weight)

    def measure(self, seconds, **specs):
        """What is found at each place, in the order of the arguments; `trace=True`: with spans."""
        trace = specs.pop("trace", False)
        of_worker = {}
        for place, spec in specs.items():
            of_worker.setdefault(id(self.workers[place]), (self.workers[place], []))[1].append((place, self.completed(spec)))
        for worker, its in of_worker.values():
            worker.do("warm", *(spec for _, spec in its))
        for worker, its in of_worker.values():
            worker.send("measure", [spec for _, spec in its], seconds=seconds, trace=trace)
        found = {}
        for worker, its in of_worker.values():
            found.update(zip((place for place, _ in its), worker.hear()))
        return [found[place] for place in specs]


@contextlib.contextmanager
def crews_of(options, ways, say=print):
    """A crew for each way; one that the machine does not have is left out, and `say` gets its name."""
    with contextlib.ExitStack() as all_of_them:
        crews = []
        for way in ways:
            if way.endswith("mps") and (MPS is None or options.device == "cpu"):
                say(f"Left out: {way}, as NVIDIA's service is not here.")
            else:
                crews.append(Crew(way, options, options.turn))
                all_of_them.callback(crews[-1].close)
        started(crews)
        yield crews


def started(crews):
    """Returns when every process has imported what it needs, so that none disturbs the first that measures."""
    workers = [worker for crew in crews for worker in crew.distinct_workers()]
    for worker in workers:
        worker.send("forget")
    for worker in workers:
        worker.hear()


def emit(**row):
    rounded = {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in row.items()}
    print(json.dumps(rounded), flush=True)
