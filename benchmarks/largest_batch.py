"""The largest batch that really trains on a GPU within a number of bytes: plain PyTorch beside regen, for docs/results.md.

    python benchmarks/largest_batch.py resnet50 unet mobilenet_v2 vgg19 --bytes 16e9

Plain PyTorch is held to the bytes by its own allocator, regen by its budget with the rest of the card taken. Every try is a
process of its own. The largest planned batch is approached from what the refusals say: the least budget grows almost linearly
with the batch."""

import argparse
import json
import pathlib
import re
import subprocess
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "python"), str(pathlib.Path(__file__).resolve().parents[1])]

import torch

import regen
from benchmarks.h200 import fill_card, optimizer_of, plain_step, timed
from examples.models import build, plain
from torch.nn import functional as F

WARMUP, REPEATS = 2, 5


def make(name, batch):
    if name != "vgg19":
        return build(name, tiny=False, batch=batch, device="cuda")
    model = plain.Vgg16(layers=plain.VGG19).cuda()
    return model, (torch.randn(batch, 3, 224, 224, device="cuda"), torch.randint(1000, (batch,), device="cuda")), F.cross_entropy


def eager_try(name, batch, limit):
    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    model, args, loss = make(name, batch)
    try:
        milliseconds = timed(plain_step(model.train(), args, loss, optimizer_of(model)), WARMUP, REPEATS)
    except torch.OutOfMemoryError:
        return {"fits": False}
    return {"fits": True, "ms": milliseconds, "reserved": torch.cuda.max_memory_reserved()}


def planned_try(name, batch, limit, seconds):
    model, args, loss = make(name, batch)
    try:
        step = regen.step(model.train(), loss, optimizer_of(model), args, budget=int(limit), time_limit=seconds, cache=False, improve=False)
    except regen.BudgetError as error:
        least = re.search(r"least budget found to work is ([0-9,]+) bytes", str(error))
        fixed = sum(t.nbytes for t in model.state_dict().values()) * 2
        return {"fits": False, "least": int(least[1].replace(",", "")) if least else None, "fixed": fixed}
    ballast, slack = fill_card(step)
    runner = step.plan.runner
    milliseconds = timed(lambda: step(*args), WARMUP, REPEATS)
    reserved = torch.cuda.max_memory_reserved() + runner.step.memory()["arena"] - ballast.numel()
    return {"fits": True, "ms": milliseconds, "predicted_ms": runner.report["cost"] * 1e3, "overhead": runner.report["overhead"],
            "peak": runner.report["peak_bytes"], "reserved": reserved, "slack": slack}


def run_try(kind, name, batch, options):
    command = [sys.executable, __file__, name, "--bytes", str(options.bytes), "--seconds", str(options.seconds), "--try", kind, str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    result = json.loads(lines[-1]) if lines else {"fits": False, "error": done.stderr.strip().splitlines()[-1:]}
    print(json.dumps({"model": name, "kind": kind, "batch": batch, **result}), flush=True)
    return result


def largest_eager(name, start, options):
    """Bisection to within two per cent."""
    low, high = 0, start
    while run_try("eager", name, high, options)["fits"]:
        low, high = high, high * 2
    while high - low > max(1, high // 50):
        middle = (low + high) // 2
        low, high = (middle, high) if run_try("eager", name, middle, options)["fits"] else (low, middle)
    return low


def largest_planned(name, start, options):
    """Guesses from what refusals say, until the next larger guess is refused."""
    low, high, guess = 0, None, start
    for _ in range(options.tries):
        result = run_try("planned", name, guess, options)
        if result["fits"]:
            low, guess = guess, guess * 2 if high is None else (guess + high) // 2
        else:
            high = guess
            least, fixed = result.get("least"), result.get("fixed", 0)
            share = (options.bytes - fixed) / (least - fixed) if least else 0.5
            guess = max(low + 1, min(int(guess * share), high - 1))
        if high is not None and high - low <= max(1, high // 50):
            break
    return low, high


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--bytes", type=float, default=16e9)
    parser.add_argument("--start", type=int, default=64, help="the first batch that plain PyTorch tries")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--try", dest="once", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        kind, batch = options.once[0], int(options.once[1])
        name = options.models[0]
        result = eager_try(name, batch, options.bytes) if kind == "eager" else planned_try(name, batch, options.bytes, options.seconds)
        print(json.dumps(result), flush=True)
        return
    for name in options.models:
        eager = largest_eager(name, options.start, options)
        planned, refused = largest_planned(name, 2 * eager, options)
        print(f"{name}: {eager} by eager, {planned} planned" + ("" if refused is None else f", {refused} refused"), flush=True)


if __name__ == "__main__":
    main()
