"""A training job for the tests of memory admission: admission_worker.py MODEL BATCH OUT

Reads commands from standard input: a number (so many steps, each said with what it took), `idle SECONDS` (sleeps, not in a step) and `end`
(leaves what it ends with in OUT)."""

import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "python")]

import torch

import regen
from examples.models import build


def say(**facts):
    print(json.dumps(facts), flush=True)


def main():
    name, batch, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    job = regen.share.job(required=True)
    model, args, loss_fn = build(name, batch=batch)
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.05, momentum=0.9)
    # A slow link, so that fewer bytes cost time; counted work, so that a busy machine finds the same plans; every operator is a quantum.
    step = regen.step(model, loss_fn, optimizer, args, link=(1e7, 1e7, 2e7), work_limit=5_000, quantum=1e-9)
    say(points=step.active.session.points(), fixed=step.active.session.fixed_bytes)
    torch.manual_seed(3)
    losses = []
    for line in sys.stdin:
        if line.startswith("end"):
            break
        if line.startswith("idle"):
            time.sleep(float(line.split()[1]))
            say(slept=True)
            continue
        for _ in range(int(line)):
            losses.append(step(*args).item())
            session = step.active.session
            say(step=len(losses), limit=session.limit, predicted=session.predicted_peak, measured=step.active.meter.peak_bytes,
                arena=session.memory().arena_bytes, rooms=job.rooms, pauses=job.pauses)
    torch.save({"state": model.state_dict(), "losses": losses, "rooms": job.rooms, "pauses": job.pauses}, out + ".part")
    os.rename(out + ".part", out)


main()
