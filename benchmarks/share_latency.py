"""Requests beside a training, and two trainings, on one device: one JSON line for each row.

    python benchmarks/share_latency.py --device cuda --train resnet50 vgg16 gpt2_medium --seconds 20      # on a GPU
    python benchmarks/share_latency.py --tiny --seconds 2                                                  # anywhere

Ways to share (`how`): `alone` (the other is not there), `regen` (under the daemon, requests more urgent), `free` (two processes
that know nothing of each other), `mps` (the same under NVIDIA's service, where it is installed), `threads` (one process, on a GPU
with a stream of high priority for the requests). Requests come one after the other (`closed`) or at random moments (`poisson`) at a
rate that would keep the device busy for `--load` of the time; their time counts from the moment they came. `kept` is the training's
throughput over what the requests leave of it by the time they take alone.

Then, under the daemon: the time from a wish to the grant and to the end of a first kernel, and two trainings with weights.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
REGEN = os.environ.get("REGEN_BIN", str(ROOT / "build" / "regen"))
ROLES = str(ROOT / "benchmarks" / "share_roles.py")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--train", nargs="+", default=["resnet50"])
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--infer", default="resnet50")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--load", type=float, default=0.3)
    parser.add_argument("--window", type=float, default=1e-3)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--memory", default="40GiB", help="of each job")
    parser.add_argument("--weights", nargs="+", default=["1:1", "1:3"])
    parser.add_argument("--only", nargs="+", choices=["requests", "preemption", "weights"])
    return parser.parse_args()


class Daemon:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="regen-share-")
        self.socket = f"{self.folder}/s"

    def __enter__(self):
        command = [REGEN, "share", "serve", "--socket", self.socket, "--device", "device:1TiB", "--settle", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        return self

    def __exit__(self, *error):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def job(self, name, memory, priority=0, weight=1):
        return [REGEN, "share", "run", "--socket", self.socket, "--name", name, "--memory", memory, "--priority", str(priority),
                "--weight", str(weight), "--"]

    def used(self):
        """Seconds of the device for each job so far."""
        status = json.loads(subprocess.run([REGEN, "share", "status", "--socket", self.socket, "--json"], capture_output=True, text=True,
                                           check=True).stdout)
        return {job["name"]: job["used_seconds"] for job in status["devices"][0]["jobs"]}


class Role:
    def __init__(self, options, role, *more, prefix=(), environment=None):
        command = [*prefix, sys.executable, ROLES, role, "--device", options.device, "--seconds", str(options.seconds),
                   "--infer-model", options.infer, "--window", str(options.window), *map(str, more)]
        if options.batch:
            command += ["--batch", str(options.batch)]
        if options.tiny:
            command.append("--tiny")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})})

    def say(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"a process of the benchmark ended with status {self.process.wait()}")
        return json.loads(line)

    def end(self):
        self.say()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def together(*roles, look=lambda: None):
    """Starts all at the same moment; what they found, and what `look` saw before and after."""
    for role in roles:
        assert role.hear() == {"ready": True}
    before = look()
    for role in roles:
        role.say()
    found = [role.hear() for role in roles]
    after = look()
    for role in roles:
        role.end()
    return found, before, after


def emit(**row):
    rounded = {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in row.items()}
    print(json.dumps(rounded), flush=True)


@contextlib.contextmanager
def mps():
    """NVIDIA's service for the processes inside; nothing where it is not installed."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        yield None
        return
    folder = tempfile.mkdtemp(prefix="regen-mps-")
    environment = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    subprocess.run([control, "-d"], env={**os.environ, **environment}, check=True)
    try:
        yield environment
    finally:
        subprocess.run([control], input="quit\n", text=True, env={**os.environ, **environment})
        shutil.rmtree(folder, ignore_errors=True)


def requests_beside(options, model, how, arrivals, rate):
    """(training, requests) of one way to share."""
    train, infer = ("train", "--model", model), ("infer", "--rate", rate)
    if how == "regen":
        with Daemon() as daemon:
            found, _, _ = together(Role(options, *train, prefix=daemon.job("train", options.memory)),
                                   Role(options, *infer, prefix=daemon.job("infer", options.memory, priority=1)))
    elif how == "threads":
        (both,), _, _ = together(Role(options, "threads", "--model", model, "--rate", rate))
        found = [both, both]
    elif how == "mps":
        with mps() as environment:
            if environment is None:
                return None
            found, _, _ = together(Role(options, *train, environment=environment), Role(options, *infer, environment=environment))
    else:
        found, _, _ = together(Role(options, *train), Role(options, *infer))
    return found


def measure_requests(options):
    (closed,), _, _ = together(Role(options, "infer"))
    alone_ms = closed["p50_ms"]
    rate = options.load / alone_ms * 1e3
    (poisson,), _, _ = together(Role(options, "infer", "--rate", rate))
    alone = {"closed": closed, "poisson": poisson}
    for arrivals, found in alone.items():
        emit(row="requests", how="alone", infer=options.infer, arrivals=arrivals, **found)
    for model in options.train:
        (training,), _, _ = together(Role(options, "train", "--model", model))
        speed = training["images_per_second"]
        emit(row="training", how="alone", train=model, images_per_second=speed)
        for arrivals in alone:
            for how in ("regen", "free", "mps", "threads"):
                both = requests_beside(options, model, how, arrivals, rate if arrivals == "poisson" else 0)
                if both is None:
                    continue
                trained, answered = both
                taken = answered["requests"] * alone_ms / 1e3 / options.seconds  # of the device, by the requests
                left = max(1e-9, 1 - taken)
                emit(row="requests", how=how, train=model, infer=options.infer, arrivals=arrivals, load=taken,
                     **{key: answered[key] for key in ("requests", "p50_ms", "p95_ms", "p99_ms")},
                     p95_over_alone=answered["p95_ms"] / alone[arrivals]["p95_ms"],
                     images_per_second=trained["images_per_second"], kept=trained["images_per_second"] / speed / left,
                     pauses=trained.get("pauses"))


def measure_preemption(options):
    for model in options.train:
        with Daemon() as daemon:
            (_, found), _, _ = together(Role(options, "train", "--model", model, prefix=daemon.job("train", options.memory)),
                                        Role(options, "probe", prefix=daemon.job("probe", "1GiB", priority=1)))
        emit(row="preemption", train=model, requests=found["requests"],
             **{f"grant_{key}": found["grant"][key] for key in ("p50_ms", "p99_ms")},
             **{f"first_kernel_{key}": found["first_kernel"][key] for key in ("p50_ms", "p99_ms")})


def measure_weights(options):
    model = options.train[0]
    (training,), _, _ = together(Role(options, "train", "--model", model))
    alone = training["images_per_second"]
    free, _, _ = together(*(Role(options, "train", "--model", model) for _ in range(2)))
    emit(row="two_trainings", how="free", train=model, images_per_second=[round(f["images_per_second"], 1) for f in free],
         sum_over_alone=sum(f["images_per_second"] for f in free) / alone)
    for text in options.weights:
        weights = [float(w) for w in text.split(":")]
        with Daemon() as daemon:
            roles = [Role(options, "train", "--model", model, prefix=daemon.job(f"train{i}", options.memory, weight=w))
                     for i, w in enumerate(weights)]
            found, before, after = together(*roles, look=daemon.used)
        used = [after[f"train{i}"] - before[f"train{i}"] for i in range(len(weights))]
        emit(row="two_trainings", how="regen", train=model, weights=text,
             images_per_second=[round(f["images_per_second"], 1) for f in found],
             sum_over_alone=sum(f["images_per_second"] for f in found) / alone,
             pauses=[f["pauses"] for f in found], returns=[f["returns"] for f in found],
             device_share=[round(u / max(sum(used), 1e-9), 4) for u in used],
             wanted_share=[round(w / sum(weights), 4) for w in weights])


def main():
    options = parse()
    measures = {"requests": measure_requests, "preemption": measure_preemption, "weights": measure_weights}
    for name in options.only or measures:
        measures[name](options)


if __name__ == "__main__":
    main()
