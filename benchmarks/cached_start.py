"""Measures how long regen.step and regen.wrap take to begin, the first time and from the cache, phase by phase.

    python benchmarks/cached_start.py resnet50 --batch 2 --against OTHER_CHECKOUT

Every start is a process of its own; imports and the making of the model do not count. With --against, starts from the cache of
another checkout take turns with ours, so that both have the same load of the machine, and their ratio is printed.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parents[1]
# What a phase is made of: (module of regen, name in it), in the order of a start; the names of version 0.1 too. A checkout has one or the other.
PHASES = {
    "capture": [("_step", "capture_step"), ("_wrap", "capture"), ("step", "capture_step"), ("wrap", "capture")],
    "measure": [("_session.session", "Session.__init__"), ("runner", "Runner.record")],
    "plan": [("_session.session", "Session.plan"), ("runner", "Runner.plan")],
    "compile": [("_session.session", "Session.compile"), ("runner", "Runner.compile")],
}


def timed(function, phase, seconds):
    def call(*args, **kwargs):
        begin = time.perf_counter()
        try:
            made = function(*args, **kwargs)
        finally:
            seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - begin
        return made

    return call


def watch_phases(seconds):
    import importlib

    for phase, places in PHASES.items():
        for module, name in places:
            try:
                holder = importlib.import_module(f"regen.{module}")
            except ImportError:
                continue
            *path, name = name.split(".")
            for part in path:
                holder = getattr(holder, part)
            if hasattr(holder, name):
                setattr(holder, name, timed(getattr(holder, name), phase, seconds))


def one_start(options):
    sys.path[:0] = [str(pathlib.Path(options.root) / "python"), options.root]
    import torch

    import regen
    from examples.models import build

    if pathlib.Path(regen.__file__).resolve().parents[2] != pathlib.Path(options.root).resolve():
        raise SystemExit(f"regen comes from {regen.__file__}, expected {options.root}")
    torch.manual_seed(0)
    model, args, loss = build(options.models[0], tiny=False, batch=options.batch, device=options.device)
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.001, momentum=0.9)
    seconds = {}
    watch_phases(seconds)
    begin, cpu = time.perf_counter(), time.process_time()
    if options.kind == "step":
        regen.step(model, loss, optimizer, args, budget=options.budget, improve=False)
    else:
        regen.wrap(model, args[:-1], budget=options.budget, improve=False)
    seconds["all"], seconds["CPU"] = time.perf_counter() - begin, time.process_time() - cpu
    print(json.dumps(seconds))


def started(name, kind, root, cache, options):
    command = [sys.executable, __file__, name, "--kind", kind, "--root", str(root), "--budget", str(options.budget), "--device", options.device]
    command += ["--batch", str(options.batch)] if options.batch else []
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "REGEN_CACHE": cache})
    return json.loads(finished.stdout.splitlines()[-1])


def row(label, seconds):
    columns = [*PHASES, "all", "CPU"]
    print(f"{label:<28}" + "".join(f"{seconds[c]:>12.2f}" if c in seconds else f"{'-':>12}" for c in columns), flush=True)


def medians(runs):
    return {phase: statistics.median(run.get(phase, 0.0) for run in runs) for phase in runs[0]}


def compare(name, kind, options):
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        row(f"{name} {kind}, first", started(name, kind, HERE, ours, options))
        if options.against:
            started(name, kind, options.against, theirs, options)
        cached, other = [], []
        for _ in range(options.repeats):
            cached.append(started(name, kind, HERE, ours, options))
            if options.against:
                other.append(started(name, kind, options.against, theirs, options))
    row(f"{name} {kind}, cached", medians(cached))
    if other:
        row(f"{name} {kind}, cached, other", medians(other))
        ratios = {clock: medians(cached)[clock] / medians(other)[clock] for clock in ("all", "CPU")}
        print(f"{name} {kind}: {ratios['all']:.2f} of the other's time, {ratios['CPU']:.2f} of its CPU time", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--budget", type=float, default=0.7, help="fraction of the unplanned peak")
    parser.add_argument("--repeats", type=int, default=3, help="starts from the cache, of which the median is printed")
    parser.add_argument("--against", help="folder of another checkout, with its runtime built")
    parser.add_argument("--kind", choices=("step", "wrap"), help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.root:
        one_start(options)
        return
    print(" " * 28 + "".join(f"{phase:>12}" for phase in [*PHASES, "all", "CPU"]))
    for name in options.models:
        for kind in ("step", "wrap"):
            compare(name, kind, options)


if __name__ == "__main__":
    main()
