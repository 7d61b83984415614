"""A training job as a user would write it, for the tests of sharing: share_worker.py KIND STEPS OUT PAUSES RECONNECTIONS

Makes at least so many steps, and more until it has given way, and lost its daemon, so often. Says the number of each step when it
is done, and leaves what it ends with in OUT."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
for folder in (ROOT, ROOT / "python", ROOT / "tests" / "support"):
    sys.path.insert(0, str(folder))

import torch
from torch.nn import functional as F

import regen
from small_training import batch, make

# Every operator is a quantum of its own: a job can be stopped anywhere.
EVERYWHERE = 1e-9


def steps_of(kind, model, optimizer):
    options = dict(budget=0.7, planner="checkmate", work_limit=20_000, cache=False, quantum=EVERYWHERE)
    if kind == "step":
        return regen.step(model, F.cross_entropy, optimizer, batch(seed=0), **options)
    wrapped = regen.wrap(model, batch(seed=0)[:1], **options)

    def step(x, y):
        optimizer.zero_grad()
        F.cross_entropy(wrapped(x), y).backward()
        optimizer.step()

    return step


def main():
    kind, steps, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    pauses, reconnections = int(sys.argv[4]), int(sys.argv[5])  # it goes on until it has seen so many
    torch.set_num_threads(1)
    job = regen.share.job(required=True)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = steps_of(kind, model, optimizer)
    torch.manual_seed(3)
    number = 0
    while number < steps or job.pauses < pauses or job.reconnections < reconnections:
        step(*batch(seed=number))
        print(number, flush=True)
        number += 1
    left = {"state": model.state_dict(), "random": torch.get_rng_state(), "steps": number, "pauses": job.pauses,
            "reconnections": job.reconnections}
    torch.save(left, out + ".part")
    os.rename(out + ".part", out)


main()
