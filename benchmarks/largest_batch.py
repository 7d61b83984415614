"""The largest batch that really trains on a GPU within a number of bytes: plain PyTorch beside regen, for docs/results.md.

    python benchmarks/largest_batch.py resnet50 unet mobilenet_v2 vgg19 --bytes 16e9

Plain PyTorch is held to the bytes by its own allocator, regen by its budget with the rest of the card taken. The batches are
looked for in one process for each model, all at once; then each largest batch is trained, one process after the other. What is
predicted comes from the first refusal alone: the least budget grows almost linearly with the batch."""

import argparse
import gc
import json
import pathlib
import re
import subprocess
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "python"), str(pathlib.Path(__file__).resolve().parents[1])]

import torch
from torch.nn import functional as F

import regen
from benchmarks.h200 import fill_card, optimizer_of, plain_step, timed
from examples.models import build, plain

WARMUP, REPEATS = 2, 5
CLOSE = 50  # a search ends when what is left to decide is below this part of the batch


def make(name, batch):
    if name != "vgg19":
        return build(name, tiny=False, batch=batch, device="cuda")
    model = plain.Vgg16(layers=plain.VGG19).cuda()
    return model, (torch.randn(batch, 3, 224, 224, device="cuda"), torch.randint(1000, (batch,), device="cuda")), F.cross_entropy


def let_go():
    gc.collect()
    torch.cuda.empty_cache()


def cap_allocator(limit):
    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)


# One batch.

def eager_run(name, batch, limit):
    cap_allocator(limit)
    model, args, loss = make(name, batch)
    milliseconds = timed(plain_step(model.train(), args, loss, optimizer_of(model)), WARMUP, REPEATS)
    return {"ms": milliseconds, "reserved": torch.cuda.max_memory_reserved()}


def planned_run(name, batch, limit, seconds):
    model, args, loss = make(name, batch)
    step = make_step(model, loss, args, limit, seconds)
    ballast, slack = fill_card(step)
    session = step.plan.session
    milliseconds = timed(lambda: step(*args), WARMUP, REPEATS)
    reserved = torch.cuda.max_memory_reserved() + session.memory().arena_bytes - ballast.numel()
    report = session.report
    return {"ms": milliseconds, "predicted_ms": report.cost * 1e3, "overhead": report.overhead, "recomputed": report.recomputed,
            "moved": report.offloaded_bytes, "peak": report.peak_bytes, "reserved": reserved, "slack": slack}


def make_step(model, loss, args, limit, seconds):
    return regen.step(model.train(), loss, optimizer_of(model), args, budget=int(limit), time_limit=seconds, cache=False, improve=False)


# The largest.

def eager_fits(name, batch):
    try:
        model, args, loss = make(name, batch)
        step = plain_step(model.train(), args, loss, optimizer_of(model))
        step()
        step()
        return True
    except torch.OutOfMemoryError:
        return False


def largest_eager(name, start, limit):
    cap_allocator(limit)
    low, high = 0, start
    while eager_fits(name, high):
        low, high = high, high * 2
        let_go()
    while high - low > max(1, high // CLOSE):
        let_go()
        middle = (low + high) // 2
        low, high = (middle, high) if eager_fits(name, middle) else (low, middle)
    let_go()
    cap_allocator(torch.cuda.get_device_properties(0).total_memory)
    return low


def least_for(name, batch, limit, seconds):
    """None if the batch can be planned; else the least budget that works for it and the bytes that do not depend on the batch."""
    model, args, loss = make(name, batch)
    fixed = 2 * sum(t.nbytes for t in model.state_dict().values())
    try:
        make_step(model, loss, args, limit, seconds)
        return None
    except regen.BudgetError as error:
        least = re.search(r"least budget found to work is ([0-9,]+) bytes", str(error))
        return (int(least[1].replace(",", "")) if least else 2 * limit), fixed


def largest_planned(name, start, options):
    low, high, guess, predicted = 0, None, start, None
    for _ in range(options.tries):
        refusal = least_for(name, guess, options.bytes, options.seconds)
        let_go()
        if refusal is None:
            low, guess = guess, guess * 2 if high is None else (guess + high) // 2
        else:
            least, fixed = refusal
            high, scaled = guess, int(guess * (options.bytes - fixed) / (least - fixed))
            predicted = predicted or scaled
            guess = max(low + 1, min(scaled, high - 1))
        if high is not None and high - low <= max(1, high // CLOSE):
            break
    return low, high, predicted


def search(name, options):
    eager = largest_eager(name, options.start, options.bytes)
    planned, refused, predicted = largest_planned(name, 4 * eager, options)
    return {"eager": eager, "planned": planned, "refused": refused, "predicted": predicted}


def child(options, name, what, batch=0):
    command = [sys.executable, __file__, name, "--bytes", str(options.bytes), "--seconds", str(options.seconds), "--start", str(options.start),
               "--tries", str(options.tries), "--child", what, str(batch)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answer(process, name, what):
    out, err = process.communicate()
    lines = [line for line in out.splitlines() if line.startswith("{")]
    row = json.loads(lines[-1]) if lines else {"error": err.strip().splitlines()[-1:]}
    print(json.dumps({"model": name, "what": what, **row}), flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--bytes", type=float, default=16e9)
    parser.add_argument("--start", type=int, default=64, help="the first batch that plain PyTorch tries")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--tries", type=int, default=6)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, what, batch = options.models[0], options.child[0], int(options.child[1])
        runs = {"search": lambda: search(name, options), "eager": lambda: eager_run(name, batch, options.bytes),
                "planned": lambda: planned_run(name, batch, options.bytes, options.seconds)}
        print(json.dumps(runs[what]()), flush=True)
        return
    searches = {name: child(options, name, "search") for name in options.models}
    found = {name: answer(process, name, "search") for name, process in searches.items()}
    for name, batches in found.items():
        for what in ("eager", "planned"):
            if batches.get(what):
                answer(child(options, name, what, batches[what]), name, f"{what}, batch {batches[what]}")


if __name__ == "__main__":
    main()
