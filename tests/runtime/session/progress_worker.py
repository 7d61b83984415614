"""A training that plans, for tests on a terminal: progress_worker.py WHAT

talks  its forward pass prints, complains and logs while it is captured
fails  no plan keeps the budget, and its forward pass takes long
plans  an exact planner may take ten minutes
"""

import logging
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "python")]

import torch

import regen


class Talks(torch.nn.Sequential):
    """Says things during a forward pass of two seconds."""

    def forward(self, input):
        time.sleep(1.2)
        print("said aloud")
        time.sleep(0.3)
        print("half a line", end="")
        time.sleep(0.3)
        print(" and its end")
        sys.stderr.write("a complaint that is much longer than a terminal of forty columns\n")
        logging.getLogger("elsewhere").warning("logged")
        time.sleep(0.3)
        return super().forward(input)


class Mixed(torch.nn.Module):
    """Layers of many widths, with values that are used again later: exact planners take long."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64 * (1 + i % 4), 64 * (1 + (i + 1) % 4)) for i in range(40))

    def forward(self, x):
        seen = []
        for i, layer in enumerate(self.layers):
            x = torch.tanh(layer(x))
            seen.append(x)
            if i % 5 == 4:
                x = x * seen[i - 4].mean()
        return x


def planned(model, width, **options):
    x = torch.randn(512, width)
    loss = lambda output, target: (output - target).pow(2).mean()  # noqa: E731
    return regen.step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1), (x, torch.randn(512, width)), cache=False, link=(1e7, 1e7, 2e7), **options)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    logging.basicConfig(format="%(message)s")
    blocks = [torch.nn.Linear(64, 64), torch.nn.Tanh()] * 4
    try:
        if WHAT == "plans":
            planned(Mixed(), 64, budget=0.4, planner="checkmate", time_limit=600.0)
        else:
            planned(Talks(*blocks), 64, budget="100KB" if WHAT == "fails" else 0.9, work_limit=1000)
    except KeyboardInterrupt:
        print("interrupted")
        return 7
    except regen.BudgetError as error:
        print(error)
        return 8
    print("done")
    return 0


WHAT = sys.argv[1]
sys.exit(main())
