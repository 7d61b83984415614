"""A training of benchmarks/share_admission.py. Says {"ready": true}; registers and plans when it reads a line, and says its curve; then
trains, rests or ends by command, and answers each command with what it did since the one before."""

import argparse
import json
import pathlib
import select
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

import torch

import regen
from examples.models import build


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--quantum", type=float, default=1e-3)
    parser.add_argument("--link", type=float, help="bytes per second that the planner counts with; default: measured")
    parser.add_argument("--improve", type=float, default=0, help="seconds of search beside the training")
    return parser.parse_args()


def finish(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


class Stretch:
    """What a training did since it was last asked."""

    def __init__(self, device):
        self.device = device
        self.begin, self.steps, self.promised, self.limits, self.peaks = time.perf_counter(), 0, 0.0, [], {}

    def note(self, step):
        session = step.active.session
        self.steps += 1
        self.promised += session.report.cost
        if not self.limits or self.limits[-1][1] != session.limit:
            self.limits.append([round(time.perf_counter() - self.begin, 3), session.limit])
        self.peaks[session.limit] = max(self.peaks.get(session.limit, 0), self.peak(step))

    def peak(self, step):
        """Bytes of the device that the process really has: all that torch has reserved, and what does not come from torch."""
        if not self.device.startswith("cuda"):
            return step.active.meter.peak_bytes
        now = torch.cuda.memory_reserved() + step.active.session.memory().arena_bytes
        return now + regen._runtime.state_arena_bytes(self.device)

    def report(self):
        finish(self.device)
        seconds = time.perf_counter() - self.begin
        over = max((peak - limit for limit, peak in self.peaks.items()), default=0)
        return {"steps": self.steps, "seconds": seconds, "promised_seconds": self.promised, "limits": self.limits,
                "peak_bytes": max(self.peaks.values(), default=0), "most_over_limit": over}


def train(options):
    """Registers at the first command, then trains; each line it reads is answered by what it did since the one before. Ends at `end`."""
    model, args, loss = build(options.model, tiny=options.tiny, batch=options.batch, device=options.device)
    optimizer = torch.optim.SGD(model.train().parameters(), lr=1e-3, momentum=0.9)
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    link = None if options.link is None else (options.link, options.link, 2 * options.link)
    step = regen.step(model, loss, optimizer, args, quantum=options.quantum, improve=options.improve, link=link)
    session = step.active.session
    print(json.dumps({"points": session.points(), "keep_all_bytes": session.unplanned_bytes, "seconds": time.perf_counter() - begin}),
          flush=True)
    lines, line = open(0, "rb", buffering=0), b""  # noqa: SIM115  until the process ends; what was not read is still to be seen by select
    while line != b"end":
        line = lines.readline().strip()  # rests until the command to train
        stretch = Stretch(options.device)
        while line == b"train" and not select.select([lines], [], [], 0)[0]:
            step(*args)
            stretch.note(step)
        print(json.dumps(stretch.report()), flush=True)


if __name__ == "__main__":
    options = parse()
    if options.device == "cpu":
        torch.set_num_threads(1)
    train(options)
