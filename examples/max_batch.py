"""The largest batch that trains within a number of bytes, without training: plain, and planned.

    python examples/max_batch.py resnet50 --memory 4MB
    python examples/max_batch.py resnet50 --full --memory 16GiB --max-overhead 0.3 --device cuda"""

import argparse

import torch

import common  # noqa: F401  makes regen importable
import regen
from examples.models import build, names
from regen import _runtime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", choices=names(), default="resnet50")
    parser.add_argument("--memory", default="1MB")
    parser.add_argument("--full", action="store_true", help="the published size, not a tiny one")
    parser.add_argument("--max-overhead", type=float, default=0.5, help="time that plans may add, as a share")
    parser.add_argument("--optimizer-bytes", type=int, default=2, help="copies of the parameters that the optimizer keeps")
    parser.add_argument("--steps", type=int, default=64, help="the largest batch that is tried")
    parser.add_argument("--planner", default="auto")
    parser.add_argument("--work-limit", type=int, default=500_000)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    memory = _runtime.parse_bytes(options.memory)
    found = {}

    def fit(batch):
        if batch not in found:
            model, args, _ = build(options.model, tiny=not options.full, batch=batch, device=options.device)
            reserve = options.optimizer_bytes * sum(p.nbytes for p in model.parameters())
            found[batch] = regen.will_it_fit(
                model, args[:-1], memory, reserve=reserve, planner=options.planner, work_limit=options.work_limit)
            print(f"batch {batch}: {found[batch]}")
        return found[batch]

    plain = largest(options.steps, lambda n: fit(n).unplanned <= memory)
    planned = largest(options.steps, lambda n: fit(n).fits and fit(n).overhead <= options.max_overhead)
    print(f"{options.model} in {options.memory}: batch {plain} keeping everything, {planned} planned")


def largest(limit, works):
    """The largest number up to `limit` that works, when all smaller ones do; 0 if none does."""
    low, high = 0, 1
    while high <= limit and works(high):
        low, high = high, high * 2
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle) else (low, middle)
    return low


if __name__ == "__main__":
    main()
