"""One process of share_crew.py: a training, an inference server or both. Reads commands as JSON lines and answers each with one:

    {"do": "prepare", "works": [...]}                makes them and runs each some times
    {"do": "warm", "works": [...]}                   once more, by the threads that measure
    {"do": "measure", "works": [...], "seconds": S}  all at the same time; a list of what each found. With "trace": true also when the
                                                     device (on a CPU: a step) was at work, in seconds since 1970
    {"do": "idle", "works": [one], "seconds": S}     the time of a step and how much of it the device is at work
    {"do": "forget"}                                 gives all memory back

A work is {"kind": "train", "infer" or "probe", "model", "batch", "planned": under a plan of regen or plain PyTorch, "cuda_graphs": as of
regen.step, "decode": threads that make a batch before each step, 0: the batch lies ready}; to measure it, also "rate": requests in a
second at random moments, 0: one after the other; and "sliced": the device is this job's while it decodes, too.
"""

import argparse
import concurrent.futures
import contextlib
import gc
import json
import os
import pathlib
import random
import sys
import time

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler would speak up
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

import torch

import regen
from benchmarks.device_times import covered, merged, recorded
from examples.models import build

WARM_UP = 5
PROFILED_STEPS = 5


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--budget", default="100GiB")
    parser.add_argument("--quantum", type=float, default=1e-3)
    return parser.parse_args()


def finish(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def planned(options, spec, **more):
    """The options of a plan; a job has its budget from the daemon."""
    return dict(budget=None if regen.share.job() is not None else options.budget, planner="keep_all", improve=False,
                quantum=options.quantum, cuda_graphs=spec.get("cuda_graphs", False), **more)


class Work:
    """`once()` is a training step, or a request that is answered when it returns."""

    def __init__(self, options, spec):
        self.device, self.trains, self.planned = options.device, spec["kind"] == "train", spec.get("planned", True)
        with regen.share.hold():
            model, args, self.loss = build(spec["model"], tiny=options.tiny, batch=spec.get("batch"), device=options.device)
        self.args = args if self.trains else args[:-1]
        self.batch = args[0].shape[0]
        self.model = model.train() if self.trains else model.eval()
        # Plain PyTorch beside other work of this process: a stream of its own, which goes first where requests are waited for.
        on_stream = options.device.startswith("cuda") and not self.planned
        self.stream = torch.cuda.Stream(priority=0 if self.trains else -1) if on_stream else None
        finish(self.device)
        self.once = self.planned_call(options, spec) if self.planned else self.plain_step() if self.trains else self.plain_answer
        self.decoder = Decoder(args[0], spec["decode"]) if spec.get("decode") else None
        for _ in range(WARM_UP):
            self.once()
        self.finish()

    def planned_call(self, options, spec):
        if self.trains:
            call = regen.step(self.model, self.loss, self.sgd(), self.args, **planned(options, spec))
        else:
            call = regen.share.infer(self.model, self.args, **planned(options, spec))
        return lambda: call(*self.args)

    def sgd(self):
        return torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)

    def plain_step(self):
        optimizer = self.sgd()

        def step():
            with torch.cuda.stream(self.stream):  # none: the current one
                optimizer.zero_grad()
                self.loss(self.model(*self.args[:-1]), self.args[-1]).backward()
                optimizer.step()

        return step

    @torch.no_grad()
    def plain_answer(self):
        with torch.cuda.stream(self.stream):
            self.model(*self.args)
        self.finish()

    def finish(self):
        if self.stream is not None:
            self.stream.synchronize()
        else:
            finish(self.device)

    def decoded(self, sliced):
        """A batch is decoded, then used."""
        with regen.share.hold(gives_back=True) if sliced else contextlib.nullcontext():
            pictures = self.decoder()
            with regen.share.hold(gives_back=True):
                self.args[0].copy_(pictures, non_blocking=True)
                self.once()
                self.finish()


class Decoder:
    """Makes batches like `example` of compressed pictures, by some threads."""

    def __init__(self, example, threads):
        from benchmarks.input_jobs import Compressed

        self.side = example.shape[-1]
        self.pictures = Compressed((self.side + 7) // 8 * 8, 1)
        self.batch = torch.empty(example.shape, pin_memory=example.is_cuda)
        self.pool = concurrent.futures.ThreadPoolExecutor(threads)

    def __call__(self):
        list(self.pool.map(self.decode, range(len(self.batch))))
        return self.batch

    def decode(self, index):
        self.batch[index] = self.pictures[0][0][:, : self.side, : self.side]


# --- what is measured

def throughput(work, seconds, once):
    """Images per second, of a loop that looks at its loss now and then."""
    begin, steps = time.perf_counter(), []
    while time.perf_counter() - begin < seconds:
        began = time.time()
        once()
        if len(steps) % 8 == 7:
            work.finish()
        steps.append((began, time.time()))
    work.finish()
    return {"images_per_second": len(steps) * work.batch / (time.perf_counter() - begin), "steps": len(steps), "spans": steps}


def latency(work, seconds, rate):
    """Of each request, from the moment it came. The device is given back when none waits, as a server does that knows its queue."""
    draw = random.Random(1)
    begin = time.perf_counter()
    due = begin + (draw.expovariate(rate) if rate > 0 else 0)
    taken, spans = [], []
    while time.perf_counter() - begin < seconds:
        time.sleep(max(0.0, due - time.perf_counter()))
        with regen.share.hold(gives_back=True):
            while due <= time.perf_counter() < begin + seconds:
                began = time.time()
                work.once()
                taken.append(time.perf_counter() - due)
                spans.append((began, time.time()))
                due = due + draw.expovariate(rate) if rate > 0 else float("inf")
        if rate == 0:
            due = time.perf_counter()  # the next one comes when this one is answered
    return {"requests": len(taken), **percentiles(taken), "spans": spans}


def percentiles(taken):
    taken = sorted(taken)

    def at(fraction):
        return taken[min(len(taken) - 1, int(fraction * len(taken)))] * 1e3

    return {"p50_ms": at(0.5), "p95_ms": at(0.95), "p99_ms": at(0.99), "mean_ms": sum(taken) / len(taken) * 1e3}


class Probe:
    """Asks for the device now and then: from the request to the grant, and to the end of the first kernel."""

    def __init__(self, options):
        self.device = options.device
        with regen.share.hold():
            self.value = torch.zeros(1, device=options.device)
            finish(self.device)

    def measure(self, seconds):
        granted, first = [], []
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            asked = time.perf_counter()
            with regen.share.hold(gives_back=True):
                granted.append(time.perf_counter() - asked)
                self.value.add_(1)
                finish(self.device)
                first.append(time.perf_counter() - asked)
            time.sleep(random.uniform(0.002, 0.006))
        return {"grant": percentiles(granted), "first_kernel": percentiles(first), "requests": len(granted)}


def warm_one(work):
    """Libraries have handles for each thread. Apart from measuring, so that all places begin at the same time: a job that gives way to
    another would begin when that one ends."""
    if not isinstance(work, Probe):
        work.once()
        work.finish()


def measure_one(work, spec, seconds):
    if isinstance(work, Probe):
        return work.measure(seconds)
    if work.decoder is not None:
        return throughput(work, seconds, lambda: work.decoded(spec.get("sliced", False)))
    return throughput(work, seconds, work.once) if work.trains else latency(work, seconds, spec.get("rate", 0))


def idle(work, seconds):
    """Steps are timed without the profiler, which slows the host down; what the device does in a step takes as long with it."""
    found = throughput(work, seconds, work.once)
    step = work.batch / found["images_per_second"]

    def profiled():
        for _ in range(PROFILED_STEPS):
            work.once()
        work.finish()

    _, spans = recorded(profiled, work.device)
    busy = covered(spans) / PROFILED_STEPS
    return {"step_ms": step * 1e3, "busy_ms": busy * 1e3, "idle_share": max(0.0, 1 - busy / step), "steps": found["steps"]}


# --- commands

class Process:
    def __init__(self, options):
        self.options = options
        self.works = {}
        self.threads = concurrent.futures.ThreadPoolExecutor()

    def at_once(self, calls):
        """The results of all, the first one's from this thread."""
        others = [self.threads.submit(call) for call in calls[1:]]
        return [calls[0](), *(other.result() for other in others)]

    @staticmethod
    def key(spec):
        return tuple(spec.get(name) for name in ("kind", "model", "batch", "planned", "cuda_graphs", "decode"))

    def prepare(self, command):
        for spec in command["works"]:
            if self.key(spec) not in self.works:
                self.works[self.key(spec)] = Probe(self.options) if spec["kind"] == "probe" else Work(self.options, spec)
        return []

    def warm(self, command):
        self.at_once([lambda spec=spec: warm_one(self.works[self.key(spec)]) for spec in command["works"]])
        return []

    def measure(self, command):
        seconds, specs = command["seconds"], command["works"]
        calls = [lambda spec=spec: measure_one(self.works[self.key(spec)], spec, seconds) for spec in specs]
        traced = command.get("trace") and self.options.device.startswith("cuda")
        job = regen.share.job()
        before = (job.pauses, job.returns) if job else None
        found, kernels = recorded(lambda: self.at_once(calls), self.options.device) if traced else (self.at_once(calls), None)
        for one in found:
            spans = one.pop("spans", [])
            if command.get("trace"):
                one["spans"] = merged(spans if kernels is None else kernels)
            if job is not None:
                one |= {"pauses": job.pauses - before[0], "returns": job.returns - before[1]}
        return found

    def idle(self, command):
        return [idle(self.works[self.key(command["works"][0])], command["seconds"])]

    def forget(self, command):
        self.works.clear()
        gc.collect()  # a work knows itself
        if self.options.device.startswith("cuda"):
            torch.cuda.empty_cache()
        return []


def main():
    options = parse()
    torch.set_num_threads(1)  # work that needs more cores, as a decoder, has threads of its own
    process = Process(options)
    answers = {"prepare": process.prepare, "warm": process.warm, "measure": process.measure, "idle": process.idle, "forget": process.forget}
    for line in sys.stdin:
        command = json.loads(line)
        print(json.dumps(answers[command["do"]](command)), flush=True)


if __name__ == "__main__":
    main()
