"""Runs jobs under one daemon while jobs, producers and the daemon are killed at random: python tools/soak.py HOURS [--seed N]

Invariants, checked all along:
  turns    no two jobs are in a quantum at once: each holds a lock of the kernel during its own
  bytes    what the daemon counts never exceeds the device, and what light jobs have never either
  bits     a training that ends has the bits of plain PyTorch; every request has its own answer; batches come whole, in order, once
  leaks    the daemon has, at rest, the descriptors, memory and files of its beginning

Prints a JSON line at the end. Light jobs speak the protocol without torch (tests/share/wire.py), so that thousands can be killed.
"""

import argparse
import fcntl
import json
import mmap
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "share"))

import wire

DEVICE = 1 << 30
LIGHT_BYTES = DEVICE // 8
SLOTS = 4  # light jobs at once
PROGRAM = ROOT / "build" / "regen"


class Broken(Exception):
    """An invariant does not hold."""


class Device:
    """The pretended device: a lock that each quantum holds, and the bytes of each light job."""

    def __init__(self, folder):
        self.path = folder / "device"
        self.path.touch()
        self.bytes = mmap.mmap(-1, 8 * (SLOTS + 2))  # of each slot, then collisions and quanta

    def put(self, slot, value):
        self.bytes[8 * slot:8 * slot + 8] = struct.pack("<q", value)

    def get(self, slot):
        return struct.unpack("<q", self.bytes[8 * slot:8 * slot + 8])[0]

    def add(self, slot):
        self.put(slot, self.get(slot) + 1)

    def use(self):
        """One quantum. A killed process is in its own until the kernel has ended it, which takes a moment."""
        with open(self.path, "r+") as file:
            for _ in range(200):
                try:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    time.sleep(0.001)
            else:
                self.add(SLOTS)  # another process is alive in its quantum
            time.sleep(0.0005)
            self.add(SLOTS + 1)


def light_job(path, device, slot, seed):
    """Takes turns until it is killed, or after some quanta."""
    draw, name, again = random.Random(seed), f"light-{os.getpid()}", {}
    persistent = LIGHT_BYTES // 4
    quanta = draw.randrange(10, 2000)
    while quanta > 0:
        try:
            connection = wire.Wire(path)
            connection.register(
                name, memory=LIGHT_BYTES, persistent_bytes=persistent, deepest="spill", priority=draw.randrange(3) if not again else 0, **again)
            again = {"again": True, "full_bytes": LIGHT_BYTES, "held_bytes": persistent}
            device.put(slot, persistent)
            while quanta > 0:
                acquire(connection, device, slot, persistent)
                while quanta > 0 and connection.keep_going():
                    device.put(slot, LIGHT_BYTES)
                    fcntl.lockf(connection.use, fcntl.LOCK_EX, 1, 0)
                    if connection.keep_going():  # read after the lock
                        device.use()
                    fcntl.lockf(connection.use, fcntl.LOCK_UN, 1, 0)
                    quanta -= 1
                connection.send(wire.IDLE)
        except (AssertionError, OSError):  # the daemon has gone
            time.sleep(0.02)


def acquire(connection, device, slot, persistent):
    connection.send(wire.ACQUIRE)
    while True:
        kind, _ = connection.receive()
        if kind == wire.GRANTED:
            return
        if kind == wire.MAKE_ROOM:
            device.put(slot, persistent)
            connection.send(wire.MADE_ROOM, left_bytes=persistent)


class Soak:
    """The processes, and what is known of them."""

    def __init__(self, folder, seed):
        self.folder, self.draw = folder, random.Random(seed)
        self.socket = str(folder / "s")
        self.device = Device(folder)
        self.log = (folder / "log").open("w")
        self.counts = dict.fromkeys(["kills", "daemon_kills", "producer_kills", "trainings", "requests", "batches", "light_jobs"], 0)
        self.light, self.heavy = {}, {}
        self.environment = {**os.environ, "REGEN_CACHE": str(folder / "cache"), "REGEN_INPUT_FOLDER": str(folder / "input")}
        (folder / "input").mkdir(mode=0o700)
        self.expected = json.loads(self.run_alone("plain"))["digest"]
        self.start_daemon()
        self.at_first = self.footprint()

    def run_alone(self, kind):
        return subprocess.run(
            [sys.executable, ROOT / "tools" / "soak_job.py", kind, "0"], env=self.environment, check=True, capture_output=True, text=True).stdout

    def start_daemon(self):
        command = [PROGRAM, "share", "serve", "--socket", self.socket, "--settle", "0.1", "--device", f"cpu:{DEVICE}"]
        self.daemon = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        if not self.daemon.stdout.readline().startswith("serving"):
            raise Broken("the daemon does not start")

    def footprint(self):
        """Descriptors, resident pages, files beside the socket."""
        folder = pathlib.Path(f"/proc/{self.daemon.pid}")
        pages = int((folder / "statm").read_text().split()[1])
        return {"descriptors": len(list((folder / "fd").iterdir())), "pages": pages, "files": len(list((self.folder / "s.use.d").iterdir()))}

    def start_light(self):
        for slot in range(SLOTS):
            if slot in self.light:
                continue
            seed = self.draw.random()
            process = os.fork()
            if process == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                light_job(self.socket, self.device, slot, seed)
                os._exit(0)
            self.light[slot] = process
            self.counts["light_jobs"] += 1

    def start_heavy(self):
        for kind, seconds in (("train", 0), ("requests", 10), ("input", 20)):
            if kind in self.heavy:
                continue
            out = (self.folder / f"{kind}.out").open("w+")
            command = [PROGRAM, "share", "run", "--socket", self.socket, "--name", kind, "--priority", "2", "--memory", str(DEVICE // 4), "--",
                       sys.executable, ROOT / "tools" / "soak_job.py", kind, str(seconds)]
            self.heavy[kind] = subprocess.Popen(command, stdout=out, stderr=self.log, env=self.environment), out

    def reap(self):
        for slot, process in list(self.light.items()):
            if os.waitpid(process, os.WNOHANG)[0]:
                self.device.put(slot, 0)
                del self.light[slot]
        for kind, (process, out) in list(self.heavy.items()):
            if process.poll() is None:
                continue
            out.seek(0)
            text = out.read()
            out.close()
            if process.returncode == 0:
                self.judge(kind, json.loads(text))
            elif process.returncode not in (-signal.SIGKILL, 1, 2, 3):  # killed, or refused while the daemon was away
                raise Broken(f"{kind} ended with status {process.returncode}")
            del self.heavy[kind]

    def judge(self, kind, result):
        if kind == "train":
            self.counts["trainings"] += 1
            if result["digest"] != self.expected:
                raise Broken("a training ended with other bits than plain PyTorch")
            return
        if result["wrong"]:
            raise Broken(f"{kind}: {result}")
        self.counts["requests"] += result.get("right", 0)
        self.counts["batches"] += result.get("batches", 0)

    def kill_something(self):
        choice = self.draw.random()
        if choice < 0.9 and self.light:
            os.kill(self.draw.choice(list(self.light.values())), signal.SIGKILL)
            self.counts["kills"] += 1
        elif choice < 0.93:
            self.daemon.send_signal(self.draw.choice([signal.SIGKILL, signal.SIGTERM]))
            self.daemon.wait()
            self.counts["daemon_kills"] += 1
            self.start_daemon()
        elif choice < 0.94 and self.heavy:
            kind = self.draw.choice(list(self.heavy))
            self.heavy[kind][0].kill()
            self.counts["kills"] += 1
        elif choice < 0.96:
            self.kill_producer()

    def kill_producer(self):
        """The process that listens for readers of the shared input."""
        owner = subprocess.run(["fuser", self.folder / "input" / "input-soak.sock.lock"], capture_output=True, text=True).stdout.split() \
            if shutil.which("fuser") else []
        for process in owner[:1]:
            os.kill(int(process), signal.SIGKILL)
            self.counts["producer_kills"] += 1

    def check(self):
        if self.device.get(SLOTS):
            raise Broken("two jobs used the device at once")
        if sum(self.device.get(slot) for slot in range(SLOTS)) > DEVICE:
            raise Broken("light jobs have more bytes than the device")
        try:
            connection = wire.Wire(self.socket)
            connection.send(wire.STATUS)
            devices = connection.receive()[1]["devices"]
        except (AssertionError, OSError):
            return  # between two daemons
        for device in devices:
            if device["used_bytes"] > device["bytes"]:
                raise Broken(f"the daemon has given out more than the device has: {device}")

    def at_rest(self):
        """Ends all jobs; what is left of them in the daemon must be nothing."""
        for process in self.light.values():
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        for process, out in self.heavy.values():
            process.kill()
            process.wait()
            out.close()
        self.light, self.heavy = {}, {}
        until = time.monotonic() + 90
        while True:
            now = self.footprint()
            left = {key: (self.at_first[key], now[key]) for key in ("descriptors", "files") if now[key] > self.at_first[key]}
            if not left and now["pages"] < self.at_first["pages"] + 2048:
                return now
            if time.monotonic() > until:
                raise Broken(f"left at rest: {left or now}")
            time.sleep(0.2)

    def run(self, seconds):
        until, looked = time.monotonic() + seconds, 0.0
        while time.monotonic() < until:
            self.reap()
            self.start_light()
            self.start_heavy()
            time.sleep(self.draw.random() * 0.2)
            self.kill_something()
            if time.monotonic() - looked > 1:
                looked = time.monotonic()
                self.check()
        self.at_rest()
        self.check()
        return {**self.counts, "quanta": self.device.get(SLOTS + 1), "seconds": round(seconds)}

    def stop(self):
        for process in [*self.light.values(), *(process.pid for process, _ in self.heavy.values())]:
            os.kill(process, signal.SIGKILL)
        self.daemon.kill()
        self.daemon.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("hours", type=float)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="regen-soak-"))
    soak = Soak(folder, arguments.seed)
    try:
        print(json.dumps(soak.run(arguments.hours * 3600)))
    except Broken as broken:
        print(f"broken: {broken}; see {folder}", file=sys.stderr)
        sys.exit(1)
    finally:
        soak.stop()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
