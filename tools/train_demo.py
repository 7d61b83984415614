"""Trains a small GPT with dropout on the CPU under a third of its unplanned memory, beside plain PyTorch: same losses, same gradients."""

import copy
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

import torch

import regen
from examples.models import registry, transformers
from regen import _runtime
from regen._check import same_bits

STEPS = 4
FRACTION = 1 / 3


def measured(step, batches):
    """Losses, seconds of a step (the median: libraries start up in the first) and the peak of everything torch and regen took."""
    _runtime.reset_memory_peak("cpu")
    losses, seconds = [], []
    for batch in batches:
        torch.manual_seed(0)
        begin = time.perf_counter()
        losses.append(step(*batch))
        seconds.append(time.perf_counter() - begin)
    return losses, statistics.median(seconds), _runtime.memory_use("cpu")["allocated_peak"]


def plain_step(model, loss_fn, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def planned_run(model, loss_fn, batches, planner):
    """Trains under a plan; returns the losses, the seconds of a step and the peak."""
    begin = time.perf_counter()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = regen.step(model, loss_fn, optimizer, batches[0], budget=FRACTION, planner=planner, time_limit=5)
    print(f"   captured, measured and planned in {time.perf_counter() - begin:.1f} s")
    arena = step.plan.session.memory().arena_bytes
    outside = _runtime.memory_use("cpu")["allocated"] - arena - own_bytes(model, optimizer)
    losses, seconds, peak = measured(step, batches)
    print("   " + str(step.plan).replace("\n", "\n   "))
    step.plan.session.release()
    return losses, seconds, peak - outside


def own_bytes(model, optimizer):
    states = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
    return sum(t.numel() * t.element_size() for t in [*model.parameters(), *model.buffers(), *states])


def main():
    torch.set_num_threads(2)
    _runtime.install_memory_meter()
    torch.manual_seed(0)
    loss_fn = registry.token_loss
    batches = [registry.text(16, 64, 256) for _ in range(STEPS)]
    outside = _runtime.memory_use("cpu")["allocated"]
    model = transformers.Gpt(vocabulary=256, context=64, width=96, depth=8, heads=4, dropout=0.1)
    start = copy.deepcopy(model)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses, seconds, peak = measured(plain_step(model, loss_fn, optimizer), batches)
    optimizer.zero_grad()
    print("4. Training under a budget: a GPT of 8 layers with dropout on the CPU, in a third of the memory of plain PyTorch")
    rows = [("plain PyTorch", seconds, peak - outside - own_bytes(start, optimizer), "")]
    same = True
    for title, planner in (("planned by auto", "auto"), ("by recomputation only", "lower_sets_approx,chain,checkmate")):
        print(f"\n   {title}: regen.step(model, loss_fn, optimizer, batch, budget=1/3, planner='{planner}')")
        trained = copy.deepcopy(start)
        found, seconds, peak = planned_run(trained, loss_fn, batches, planner)
        equal = all(same_bits(a, b) for a, b in zip(losses, found)) and all(
            same_bits(a, b) for a, b in zip(model.state_dict().values(), trained.state_dict().values())
        )
        rows.append((title, seconds, peak, "bitwise equal" if equal else "DIFFERENT"))
        same = same and equal
    print(f"\n   {'':22}  {'step time':>10}  {'peak':>9}  losses and parameters after {STEPS} steps")
    for title, seconds, peak, equal in rows:
        print(f"   {title:22}  {seconds * 1e3:7.1f} ms  {_runtime.format_bytes(peak):>9}  {equal}")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
