"""The processes of benchmarks/share_latency.py: a training, an inference server, one that asks for the device, and both in threads of one
process. Each says {"ready": true}, waits for a line, works for some seconds and says what it measured, as JSON."""

import argparse
import json
import pathlib
import random
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

import torch  # noqa: E402

import regen  # noqa: E402
from examples.models import build  # noqa: E402


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["train", "infer", "probe", "threads"])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--infer-model", default="resnet50")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float, default=0, help="requests per second, at random; 0: one after the other")
    parser.add_argument("--budget", default="60GiB")
    parser.add_argument("--window", type=float, default=1e-3)
    return parser.parse_args()


def wait_for_start():
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()


def finish(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def planned_step(options):
    model, args, loss = build(options.model, tiny=options.tiny, batch=options.batch, device=options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    budget = None if regen.share.job() is not None else options.budget
    step = regen.step(model.train(), loss, optimizer, args, budget, planner="keep_all", window=options.window, improve=False)
    return (lambda: step(*args)), args[0].shape[0], args[0]


def plain_step(options):
    model, args, loss = build(options.model, tiny=options.tiny, batch=options.batch, device=options.device)
    optimizer = torch.optim.SGD(model.train().parameters(), lr=1e-3, momentum=0.9)

    def step():
        optimizer.zero_grad()
        loss(model(*args[:-1]), args[-1]).backward()
        optimizer.step()

    return step, args[0].shape[0]


def train(step, batch, device, seconds):
    """Images per second, of a loop that looks at its loss now and then."""
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        step()
        done += 1
        if done % 8 == 0:
            finish(device)
    finish(device)
    return {"images_per_second": done * batch / (time.perf_counter() - begin), "steps": done}


def requests(answer, seconds, rate):
    """Seconds of each request, from the moment it arrived."""
    draw = random.Random(1)
    begin = due = time.perf_counter()
    taken = []
    while time.perf_counter() - begin < seconds:
        if rate > 0:
            due += draw.expovariate(rate)
            time.sleep(max(0.0, due - time.perf_counter()))
        else:
            due = time.perf_counter()
        answer()
        taken.append(time.perf_counter() - due)
    return {"requests": len(taken), **percentiles(taken)}


def percentiles(taken):
    taken = sorted(taken)
    at = lambda share: taken[min(len(taken) - 1, int(share * len(taken)))] * 1e3
    return {"p50_ms": at(0.5), "p95_ms": at(0.95), "p99_ms": at(0.99), "mean_ms": sum(taken) / len(taken) * 1e3}


def request_model(options):
    model, args, _ = build(options.infer_model, tiny=options.tiny, batch=1, device=options.device)
    return model.eval(), args[:-1]


def planned_answer(options):
    model, args = request_model(options)
    predict = regen.share.infer(model, args, None if regen.share.job() is not None else options.budget, planner="keep_all")
    return lambda: predict(*args)


def plain_answer(options, stream=None):
    model, args = request_model(options)

    @torch.no_grad()
    def answer():
        with torch.cuda.stream(stream):  # none: the current one
            model(*args)
        if stream is not None:
            stream.synchronize()

    return answer


def warm(call, times=5):
    for _ in range(times):
        call()


def probe(options):
    """From the wish to the grant, and to the end of the first kernel."""
    granted, first = [], []
    value = torch.zeros(1, device=options.device)
    finish(options.device)
    begin = time.perf_counter()
    while time.perf_counter() - begin < options.seconds:
        asked = time.perf_counter()
        with regen.share.hold(gives_back=True):
            granted.append(time.perf_counter() - asked)
            value.add_(1)
            finish(options.device)
            first.append(time.perf_counter() - asked)
        time.sleep(random.uniform(0.002, 0.006))
    return {"grant": percentiles(granted), "first_kernel": percentiles(first), "requests": len(granted)}


def threads(options):
    """Training and requests in one process, free; on a GPU on streams of two priorities."""
    on_gpu = options.device.startswith("cuda")
    step, batch = plain_step(options)
    answer = plain_answer(options, torch.cuda.Stream(priority=-1) if on_gpu else None)
    warm(step), warm(answer)
    wait_for_start()
    trained = {}
    thread = threading.Thread(target=lambda: trained.update(train(step, batch, options.device, options.seconds)))
    thread.start()
    found = requests(answer, options.seconds, options.rate)
    thread.join()
    return {**found, **trained}


def main():
    options = parse()
    if options.device == "cpu":
        torch.set_num_threads(1)
    if options.role == "train":
        step, batch, _ = planned_step(options)
        warm(step)
        finish(options.device)
        wait_for_start()
        found = train(step, batch, options.device, options.seconds)
    elif options.role == "infer":
        answer = planned_answer(options)
        warm(answer)
        wait_for_start()
        found = requests(answer, options.seconds, options.rate)
    elif options.role == "probe":
        wait_for_start()
        found = probe(options)
    else:
        found = threads(options)
    job = regen.share.job()
    if job is not None:
        found |= {"pauses": job.pauses, "returns": job.returns}
    print(json.dumps(found), flush=True)
    sys.stdin.readline()  # the job stays registered until its share was read


main()
