"""Measures whole training steps on a GPU: plain PyTorch beside regen.step, for docs/results.md.

    python benchmarks/h200.py resnet50 --shares plain checkpoint 1 0.5 e0.5 e0.33

For every model: time and memory of plain PyTorch (`plain`) and of torch.utils.checkpoint around each block (`checkpoint`), then
of a plan for each share of the unplanned peak, or, with an e, of the bytes that plain PyTorch reserved (or for the least budget
that works, if that is more): predicted and measured time and peak, bytes reserved from the driver, the executor's own time
on the host, and whether parameters and loss are bitwise those of plain PyTorch.
"""

import argparse
import contextlib
import copy
import cProfile
import json
import os
import pathlib
import pstats
import re
import statistics
import subprocess
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "python"), str(pathlib.Path(__file__).resolve().parents[1])]

import itertools

import torch
from torch.autograd import DeviceType  # pyright: ignore[reportPrivateImportUsage]

import regen
from benchmarks.checkpointed import checkpoint_blocks
from benchmarks.moved_plan import moved_plan
from examples.models import build
from regen._check import same_bits

GIB = float(1 << 30)
EVERYTHING = "130GiB"
# The loss of a segmentation network and adaptive pooling have no deterministic kernels.
WITHOUT_DETERMINISTIC_KERNELS = ("unet", "vgg16")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what PyTorch asks for before it calls cuBLAS deterministic


def timed(step, warmup, repeats):
    """The median of steps that follow each other as in training: the host does not wait for one before it issues the next."""
    for _ in range(warmup):
        step()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    for event in events[:-1]:
        event.record()
        step()
    events[-1].record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in itertools.pairwise(events))


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
    row = eager_row(name, "plain", step, start, options)
    write_kernels(step, name, options)
    # The same again: some kernels do not give the same bits twice, also in plain PyTorch.
    model.load_state_dict(start)
    again = first_losses(plain_step(model, args, loss, optimizer_of(model)))
    row["repeats_itself"] = all(same_bits(a, b) for a, b in zip(losses, again)) and not differing(model, state)
    torch.save((losses, state, row["reserved"] * GIB), options.reference)
    return row


def checkpointed_run(name, options):
    """What users do today: every block runs again before its backward pass."""
    model, args, loss = make(name, options.batch, options.channels_last)
    blocks = checkpoint_blocks(model)
    step = plain_step(model, args, loss, optimizer_of(model))
    first_losses(step)
    return {**eager_row(name, "checkpoint", step, {}, options), "blocks": blocks}


def eager_row(name, share, step, beside, options):
    torch.cuda.reset_peak_memory_stats()
    milliseconds = timed(step, 2, options.repeats)
    return {"model": name, "share": share, "channels_last": options.channels_last, "ms": milliseconds,
            "allocated": (torch.cuda.max_memory_allocated() - bytes_of(beside)) / GIB,
            "reserved": (torch.cuda.max_memory_reserved() - bytes_of(beside)) / GIB}


def bytes_of(state):
    return sum(v.numel() * v.element_size() for v in state.values())


def differing(model, state):
    return [k for k, v in model.state_dict().items() if not same_bits(v.detach().cpu(), state[k])]


def fill_card(step):
    """Takes all memory of the card beyond the budget, so that the driver itself holds the step to it."""
    session = step.active.session
    session.release()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    page = 2 << 20  # the driver hands out pages of this size
    left = session.budget - torch.cuda.memory_reserved()
    for slack in range(0, 512 << 20, 8 << 20):  # the driver itself does not hand out the last of what it calls free
        ballast = torch.empty((free - left - slack) // page * page, dtype=torch.uint8, device="cuda")
        try:
            step.active.make_ready()
            return ballast, slack
        except regen.BudgetError:
            del ballast
            torch.cuda.empty_cache()
    raise MemoryError(f"no room for an arena beside {left} bytes")


def make_step(model, loss, optimizer, args, budget, options):
    # Kernels are loaded into memory of the driver's own when they are first called: measuring does that before the card is full.
    cache = options.cache if options.cache and budget == EVERYTHING else False
    planner = "keep_all" if options.move else options.planner
    return regen.step(model, loss, optimizer, args, budget=budget, planner=planner, time_limit=options.seconds, cache=cache,
                      algorithms=options.algorithms, cuda_graphs=options.cuda_graphs, improve=False)  # a plan that stays is measured


def run_again_with_least(error):
    """In place of this process, so that nothing of the refused attempt counts."""
    least = re.search(r"least budget found to work is ([0-9,]+) bytes", str(error))
    if least is None or "--least" in sys.argv:
        raise error
    print(f"{error}", flush=True)
    os.execv(sys.executable, [sys.executable, *sys.argv, "--least", str(int(least[1].replace(",", "")) + 4096)])


def move_beside(session, total_bytes):
    """Replaces the plan by one that also moves this much to the host and back."""
    to_host, to_device, both = session.link
    # The last guess is what one direction alone could do: too optimistic, but the step waits where it has to.
    guesses = (both / 2, min(to_host, to_device), 1.05 * max(to_host, to_device))
    attempts = [(bandwidth, patience) for bandwidth in guesses for patience in (0, 1e-3, 2e-3)]
    for bandwidth, patience in attempts:
        plan, moved = moved_plan(session.graph_json(), session.plan_json(), total_bytes, bandwidth, patience)
        if moved >= total_bytes:
            break
    session.take_plan(plan)


def dispatch_microseconds(session, step):
    """Host time of the executor per operator, beside the operators themselves."""
    session.set_host_timing(True)
    step()
    torch.cuda.synchronize()
    session.take_host_time()
    step()
    seconds, inside, calls = session.take_host_time()
    session.set_host_timing(False)
    return 1e6 * (seconds - inside) / max(calls, 1)


def kernels_of(step):
    """Milliseconds and launches of each kernel in one step."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    rows = {}
    for event in profile.events():
        if event.device_type == DeviceType.CUDA:
            row = rows.setdefault(event.name, [0.0, 0])
            row[0] += event.time_range.elapsed_us() / 1e3
            row[1] += 1
    return dict(sorted(rows.items(), key=lambda row: -row[1][0]))


def write_kernels(step, name, options):
    if options.kernels:
        path = pathlib.Path(options.kernels, f"{name}-{options.share}.json")
        path.write_text(json.dumps(kernels_of(step), indent=1))


def budget_of(share, reserved):
    if share.endswith("B"):
        return share
    if share.startswith("e"):
        return int(float(share.removeprefix("e")) * reserved)
    return EVERYTHING if float(share) == 1 else float(share)


def planned_run(name, options):
    losses, state, reserved = torch.load(options.reference)
    budget = options.least or budget_of(options.share, reserved)
    model, args, loss = make(name, options.batch, options.channels_last)
    optimizer = optimizer_of(model)
    profile = cProfile.Profile() if options.profile_start else None
    begin = time.time()
    with profile or contextlib.nullcontext():
        step = make_step(model, loss, optimizer, args, budget, options)
    ready = time.time() - begin
    if profile:
        pstats.Stats(profile).sort_stats("cumtime").print_stats("regen|functional_export|guards|aot_autograd.py|\\{.*_runtime", 30)
    session = step.plan.session
    if options.graphs:
        pathlib.Path(options.graphs, f"{name}.json").write_text(session.graph_json())
    if options.move:
        move_beside(session, options.move)
    report = session.report
    ballast, slack = fill_card(step) if budget != EVERYTHING else (None, 0)
    beside = ballast.numel() if ballast is not None else 0
    found = first_losses(lambda: step(*args))
    different = differing(model, state)
    torch.cuda.reset_peak_memory_stats()
    milliseconds = timed(lambda: step(*args), 2, options.repeats)
    memory = session.memory()
    write_kernels(lambda: step(*args), name, options)
    return {
        "model": name, "share": options.share, "channels_last": options.channels_last, "planner": report.planner,
        "ready_s": ready, "budget": session.budget / GIB, "slack": slack / GIB,
        "predicted_ms": report.cost * 1e3, "ms": milliseconds, "base_ms": session.base_seconds * 1e3,
        "live": report.live_bytes / GIB, "predicted": report.peak_bytes / GIB,
        "measured": (torch.cuda.max_memory_allocated() + memory.arena_bytes - beside) / GIB,
        "reserved": (torch.cuda.max_memory_reserved() + memory.arena_bytes - beside) / GIB,
        "unplanned": session.unplanned_bytes / GIB, "recomputed": report.recomputed, "moved": report.offloaded_bytes / GIB,
        "other_algorithms": report.other_algorithms, "losses_equal": all(same_bits(a, b) for a, b in zip(losses, found)), "different": different[:3],
        "dispatch_us": dispatch_microseconds(session, lambda: step(*args)), "deviations": memory.unforeseen,
        "captured": memory.captured, "captured_mib": memory.captured_bytes / 2**20, "plan_s": report.seconds,
        "gap": report.gap, "overhead": report.overhead}


def child_command(name, share, options, reference):
    command = [sys.executable, __file__, name, "--share", str(share), "--reference", reference, "--repeats", str(options.repeats),
               "--planner", options.planner, "--seconds", str(options.seconds), "--algorithms", options.algorithms]
    for flag, value in (("--batch", options.batch), ("--cache", options.cache), ("--graphs", options.graphs),
                        ("--kernels", options.kernels), ("--move", options.move)):
        command += [flag, str(value)] if value else []
    command += ["--channels-last"] if options.channels_last else []
    command += ["--cuda-graphs"] if options.cuda_graphs else []
    command += ["--profile-start"] if options.profile_start else []
    return command


def run_children(options, folder):
    """Each run in a process of its own: nothing of another counts in its memory. The next one imports what it needs while a
    run goes on, and waits for a line before it touches the GPU."""
    commands = [child_command(name, share, options, f"{folder}/{name}.pt") for name in options.models for share in options.shares]
    waiting = [subprocess.Popen(command, stdin=subprocess.PIPE) for command in commands[:1]]
    for index, command in enumerate(commands):
        child = waiting.pop()
        waiting += [subprocess.Popen(following, stdin=subprocess.PIPE) for following in commands[index + 1:index + 2]]
        try:
            child.communicate(b"go\n", timeout=options.patience)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            print(f"{command[2]} {command[4]}: stopped after {options.patience} s", flush=True)


def use_deterministic_kernels(name):
    """All of them, or, for models with an op that has none, as many as there are."""
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True, warn_only=name in WITHOUT_DETERMINISTIC_KERNELS)
    torch.utils.deterministic.fill_uninitialized_memory = False


RUNS = {"plain": plain_run, "checkpoint": checkpointed_run}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--shares", nargs="*", default=["plain", "1"],
                        help="plain, checkpoint, shares of the unplanned peak, or, with an e, of what plain reserved, or bytes (6GiB)")
    parser.add_argument("--share", help=argparse.SUPPRESS)
    parser.add_argument("--reference", help=argparse.SUPPRESS)
    parser.add_argument("--least", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--cuda-graphs", action="store_true", help="launch what is the same in every step as a whole")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--planner", default="auto")
    parser.add_argument("--algorithms", default="default", choices=("default", "any"), help="of convolutions; with any the bits differ")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--cache")
    parser.add_argument("--graphs", help="folder for the measured graphs")
    parser.add_argument("--patience", type=float, default=300, help="seconds after which a run is stopped")
    parser.add_argument("--profile-start", action="store_true", help="print where the time until the first step goes")
    parser.add_argument("--kernels", help="folder for the time of each kernel")
    parser.add_argument("--move", type=int, help="a plan that keeps everything and moves this many bytes out and in beside it")
    options = parser.parse_args()
    if options.share is None:
        with tempfile.TemporaryDirectory() as folder:
            run_children(options, folder)
        return
    if not options.least:
        sys.stdin.readline()  # until the GPU is free
    name = options.models[0]
    use_deterministic_kernels(name)
    try:
        row = RUNS.get(options.share, planned_run)(name, options)
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}), flush=True)
    except regen.BudgetError as error:
        run_again_with_least(error)
    except (RuntimeError, MemoryError, ValueError) as error:
        print(name, options.share, type(error).__name__, str(error)[:600], flush=True)


if __name__ == "__main__":
    main()
