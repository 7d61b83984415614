"""Measures whole training steps on a GPU: plain PyTorch beside regen.step, for docs/results.md.

    python benchmarks/h200.py resnet50 --shares 1 0.5 0.33

For every model: time and memory of plain PyTorch, then of a plan for each share of the unplanned peak: predicted and
measured time and peak, bytes reserved from the driver, and whether parameters and loss are bitwise those of plain PyTorch.
"""

import argparse
import copy
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "python"), str(pathlib.Path(__file__).resolve().parents[1])]

import torch

import regen
from examples.models import build
from regen.check import same_bits

GIB = float(1 << 30)


def timed(step, warmup, repeats):
    for _ in range(warmup):
        step()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        step()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def make(name, batch, channels_last):
    model, args, loss = build(name, tiny=False, batch=batch, device="cuda")
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        args = tuple(a.contiguous(memory_format=torch.channels_last) if a.dim() == 4 else a for a in args)
    return model.train(), args, loss


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)


def plain_step(model, args, loss, optimizer):
    def step():
        optimizer.zero_grad(set_to_none=True)
        value = loss(model(*args[:-1]), args[-1])
        value.backward()
        optimizer.step()
        return value.detach()

    return step


def first_losses(step):
    torch.manual_seed(0)
    return [step().clone().cpu() for _ in range(3)]


def state_of(model):
    return {k: v.detach().clone().cpu() for k, v in model.state_dict().items()}


def plain_run(name, options):
    model, args, loss = make(name, options.batch, options.channels_last)
    start = copy.deepcopy(model.state_dict())
    step = plain_step(model, args, loss, optimizer_of(model))
    losses, state = first_losses(step), state_of(model)
    torch.cuda.reset_peak_memory_stats()
    milliseconds = timed(step, 2, options.repeats)
    row = {"model": name, "share": "plain", "ms": milliseconds, "allocated": torch.cuda.max_memory_allocated() / GIB - bytes_of(start) / GIB,
           "reserved": torch.cuda.max_memory_reserved() / GIB - bytes_of(start) / GIB}
    # The same again: some kernels do not give the same bits twice, whoever calls them.
    model.load_state_dict(start)
    again = first_losses(plain_step(model, args, loss, optimizer_of(model)))
    row["repeats_itself"] = all(same_bits(a, b) for a, b in zip(losses, again)) and not differing(model, state)
    torch.save((losses, state), options.reference)
    return row


def bytes_of(state):
    return sum(v.numel() * v.element_size() for v in state.values())


def differing(model, state):
    return [k for k, v in model.state_dict().items() if not same_bits(v.detach().cpu(), state[k])]


def fill_card(runner):
    """Takes all memory of the card beyond the budget, so that the driver itself holds the step to it."""
    runner.release()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    slack = 2 << 20  # the driver hands out pages of this size
    left = runner.budget - torch.cuda.memory_allocated() + slack
    return torch.empty(free - left, dtype=torch.uint8, device="cuda")


def planned_run(name, options):
    share = float(options.share)
    model, args, loss = make(name, options.batch, options.channels_last)
    optimizer = optimizer_of(model)
    begin = time.time()
    step = regen.step(model, loss, optimizer, args, budget="130GiB" if share == 1 else share, planner=options.planner,
                      time_limit=options.seconds, cache=options.cache or False)
    ready = time.time() - begin
    runner = step.plan.runner
    report = runner.report
    if options.graphs:
        pathlib.Path(options.graphs, f"{name}.json").write_text(runner.step.graph_json())
    ballast = fill_card(runner) if share < 1 else None
    beside = ballast.numel() if ballast is not None else 0
    found = first_losses(lambda: step(*args))
    losses, state = torch.load(options.reference)
    different = differing(model, state)
    torch.cuda.reset_peak_memory_stats()
    milliseconds = timed(lambda: step(*args), 2, options.repeats)
    memory = runner.step.memory()
    return {
        "model": name, "share": share, "planner": report["planner"], "ready_s": ready, "budget": runner.budget / GIB,
        "predicted_ms": report["cost"] * 1e3, "ms": milliseconds, "base_ms": runner.step.base_seconds * 1e3,
        "predicted": report["peak_bytes"] / GIB, "measured": (torch.cuda.max_memory_allocated() + memory["arena"] - beside) / GIB,
        "reserved": (torch.cuda.max_memory_reserved() + memory["arena"] - beside) / GIB,
        "unplanned": runner.step.unplanned_bytes / GIB, "recomputed": report["recomputed"], "moved": report["offloaded_bytes"] / GIB,
        "losses_equal": all(same_bits(a, b) for a, b in zip(losses, found)), "different": different[:3],
        "deviations": memory["deviations"], "plan_s": report["seconds"], "gap": report["gap"], "overhead": report["overhead"]}


def run_child(name, share, options, reference):
    """Each run in a process of its own: nothing of another counts in its memory."""
    command = [sys.executable, __file__, name, "--share", str(share), "--reference", reference, "--repeats", str(options.repeats),
               "--planner", options.planner, "--seconds", str(options.seconds)]
    for flag, value in (("--batch", options.batch), ("--cache", options.cache), ("--graphs", options.graphs)):
        command += [flag, str(value)] if value else []
    command += ["--channels-last"] if options.channels_last else []
    subprocess.run(command, check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--shares", nargs="*", default=["plain", "1"], help="plain, or shares of the unplanned peak")
    parser.add_argument("--share", help=argparse.SUPPRESS)
    parser.add_argument("--reference", help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--planner", default="auto")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--cache")
    parser.add_argument("--graphs", help="folder for the measured graphs")
    options = parser.parse_args()
    if options.share is None:
        with tempfile.TemporaryDirectory() as folder:
            for name in options.models:
                for share in options.shares:
                    run_child(name, share, options, f"{folder}/{name}.pt")
        return
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    name = options.models[0]
    try:
        row = plain_run(name, options) if options.share == "plain" else planned_run(name, options)
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}), flush=True)
    except (RuntimeError, MemoryError, ValueError) as error:
        print(name, options.share, type(error).__name__, str(error)[:600], flush=True)


if __name__ == "__main__":
    main()
