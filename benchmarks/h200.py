"""Measures whole training steps on a GPU: plain PyTorch beside regen.step, for docs/results.md.

    python benchmarks/h200.py resnet50 --shares 1 0.5 0.33

For every model: time and memory of plain PyTorch, then of a plan for each share of the unplanned peak: predicted and
measured time and peak, bytes reserved from the driver, and whether parameters and loss are bitwise those of plain PyTorch.
"""

import argparse
import copy
import gc
import json
import pathlib
import statistics
import sys
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "python"), str(pathlib.Path(__file__).resolve().parents[1])]

import torch

import regen
from examples.models import build
from regen import _runtime
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


def fresh():
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()  # of the thread that ran before
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def make(name, batch, channels_last):
    model, args, loss = build(name, tiny=False, batch=batch, device="cuda")
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        args = tuple(a.contiguous(memory_format=torch.channels_last) if a.dim() == 4 else a for a in args)
    return model.train(), args, loss


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)


def plain_run(name, options):
    fresh()
    context = _runtime.memory_use("cuda")["driver"] - torch.cuda.memory_reserved()
    model, args, loss = make(name, options.batch, options.channels_last)
    optimizer = optimizer_of(model)

    def step():
        optimizer.zero_grad(set_to_none=True)
        value = loss(model(*args[:-1]), args[-1])
        value.backward()
        optimizer.step()
        return value.detach()

    torch.manual_seed(0)
    losses = [step().clone() for _ in range(3)]
    state = {k: v.detach().clone().cpu() for k, v in model.state_dict().items()}
    torch.cuda.reset_peak_memory_stats()
    milliseconds = timed(step, 2, options.repeats)
    row = {"model": name, "ms": milliseconds, "allocated": torch.cuda.max_memory_allocated() / GIB,
           "reserved": torch.cuda.max_memory_reserved() / GIB}
    return row, [v.cpu() for v in losses], state, context


def fill_card(runner):
    """Takes all memory of the card beyond the budget, so that the driver itself holds the step to it."""
    runner.release()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    left = runner.budget - torch.cuda.memory_allocated()
    return torch.empty(free - left, dtype=torch.uint8, device="cuda")


def host_microseconds(step, args):
    """What the host needs to issue one op, kernel launches included, while the device is kept busy."""
    torch.cuda.synchronize()
    torch.cuda._sleep(int(2e9))
    begin = time.time()
    step(*args)
    elapsed = time.time() - begin
    torch.cuda.synchronize()
    return elapsed * 1e6 / step.plan.runner.report["steps"]


def planned_run(name, options, share, budget, losses, state):
    fresh()
    model, args, loss = make(name, options.batch, options.channels_last)
    optimizer = optimizer_of(model)
    begin = time.time()
    step = regen.step(model, loss, optimizer, args, budget=budget, planner=options.planner, time_limit=options.seconds,
                      cache=options.cache, debug=False)
    ready = time.time() - begin
    runner = step.plan.runner
    report = runner.report
    if options.graphs:
        pathlib.Path(options.graphs, f"{name}.json").write_text(runner.step.graph_json())
    ballast = fill_card(runner) if share < 1 else None
    torch.manual_seed(0)
    found = [step(*args).clone() for _ in range(3)]
    equal = all(same_bits(a, b.cpu()) for a, b in zip(losses, found))
    different = [k for k, v in model.state_dict().items() if not same_bits(v.detach().cpu(), state[k])]
    torch.cuda.reset_peak_memory_stats()
    milliseconds = timed(lambda: step(*args), 2, options.repeats)
    memory = step.plan.runner.step.memory()
    beside = ballast.numel() if ballast is not None else 0
    measured = torch.cuda.max_memory_allocated() + memory["arena"] - beside
    row = {"model": name, "share": share, "planner": report["planner"], "ready_s": ready, "budget": step.plan.runner.budget / GIB,
           "predicted_ms": report["cost"] * 1e3, "ms": milliseconds, "base_ms": step.plan.runner.step.base_seconds * 1e3,
           "predicted": report["peak_bytes"] / GIB, "measured": measured / GIB,
           "reserved": (torch.cuda.max_memory_reserved() + memory["arena"] - beside) / GIB,
           "unplanned": step.plan.runner.step.unplanned_bytes / GIB, "recomputed": report["recomputed"],
           "bitwise": equal and not different, "different": different[:3], "deviations": memory["deviations"],
           "deviating": memory["deviating"][:200], "plan_s": report["seconds"], "gap": report["gap"],
           "overhead": report["overhead"], "host_us_per_op": host_microseconds(step, args)}
    del ballast
    runner.release()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--shares", nargs="*", type=float, default=[1.0])
    parser.add_argument("--batch", type=int)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--planner", default="auto")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--cache", default=False)
    parser.add_argument("--graphs", help="folder for the measured graphs")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    rows = []
    for name in options.models:
        try:
            plain, losses, state, context = plain_run(name, options)
            print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in plain.items()}), flush=True)
            rows.append(plain)
            for share in options.shares:
                budget = "130GiB" if share == 1 else share
                row = planned_run(name, options, share, budget, losses, state)
                print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}), flush=True)
                rows.append(row)
        except Exception as error:
            print(name, type(error).__name__, str(error)[:600], flush=True)
    if options.output:
        pathlib.Path(options.output).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
