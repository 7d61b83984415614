"""What the example scripts share."""

import pathlib
import sys

# The examples run from a checkout without installing anything.
ROOT = pathlib.Path(__file__).resolve().parents[1]
for folder in (ROOT, ROOT / "python"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import torch

import regen
from regen.capture import capture, save


def add_budget_options(parser):
    parser.add_argument("--budget", default=0.7, type=budget, help="bytes such as 6GiB, a fraction of the unplanned peak such as 0.7, or auto")
    parser.add_argument("--plan", metavar="FILE", help="use this plan; with --budget it must fit")
    parser.add_argument("--save-plan", metavar="FILE", help="write the plan in use at the end")
    parser.add_argument("--save-program", metavar="FOLDER", help="write the captured step, for `regen run` and `regen bench`")
    parser.add_argument("--planner", default="auto")
    parser.add_argument("--work-limit", type=int, default=0, help="counted work of the planner, for the same plan every time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")


def size(options):
    """For `build`: the published size, or a small one with enough layers that a plan can save memory."""
    return False if options.full else "deep"


def budget(text):
    """A number between 0 and 1 is a share; everything else is left to regen."""
    try:
        return float(text) if 0 < float(text) <= 1 else text
    except ValueError:
        return text


def wrap(model, args, options, **more):
    if options.save_program:
        save(capture(model, args), options.save_program)
        print(f"program written to {options.save_program}")
    return regen.wrap(model, args, options.budget if options.plan is None or options.budget != 0.7 else "auto",
                      planner=options.planner, work_limit=options.work_limit, plan_file=options.plan, **more)


def finish(model, options):
    print(model.regen.plan)
    if options.save_plan:
        model.regen.save_plan(options.save_plan)
        print(f"plan written to {options.save_plan}")
