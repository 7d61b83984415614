"""What the experiments on shared input share: rows of jobs with loaders of their own and with one for all, tables, pictures.

The processes are those of benchmarks/input_jobs.py. "Separate" is jobs that run freely beside each other, each with its own loader and its
share of the cores that decode; SwitchFlow's baseline gives the device to one job for a whole step at a time.
"""

import argparse
import itertools
import os
import pathlib
import sys
import time

import common
from common import style

sys.path.insert(0, str(common.ROOT / "benchmarks"))
from input_jobs import Crew, Setting

COLUMNS = ["jobs", "models", "kind", "batch", "separate", "shared", "gain_percent", "published_low", "published_high"]
MODELS = ["resnet50", "vgg16", "googlenet", "mobilenet_v2", "densenet"]
TINY_BATCH, TINY_SECONDS, TINY_SIDE = 4, 0.1, 32


def parse(description, seconds, bound, batches=None):
    """`batches` are those to choose from."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=common.ROOT / "out", help="folder for CSV and plot (default out/)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--tiny", action="store_true", help="tiny models, pictures and times: whether it works, on any machine")
    parser.add_argument("--seconds", type=float, default=seconds, help=f"of each row, measured (default {seconds})")
    parser.add_argument("--bound", type=float, help=f"seconds after which rows are left out (default {bound}; tiny: none)")
    parser.add_argument("--cores", type=common.positive, default=max(3, (os.cpu_count() or 4) - 1), help="that decode, in all (default: all but one)")
    if batches:
        parser.add_argument("--batches", type=int, nargs="+", choices=batches, default=list(batches), metavar="BATCH",
                            help=f"some of {', '.join(map(str, batches))} (default all)")
    options = parser.parse_args()
    if options.bound is None:
        options.bound = float("inf") if options.tiny else bound
    if options.device == "cpu" and not options.tiny:
        parser.error("--device cpu without --tiny: full models take hours there; expected --device cuda, or --tiny")
    return options


def measure(options, jobs, cases):
    """Rows for cases (models, batch, kind, published range in percent). Cases of one kind of input follow each other: they use it in turn."""
    began, rows, left_out = time.monotonic(), [], []
    setting = Setting(options.device, TINY_SIDE if options.tiny else 224, options.cores)
    seconds = TINY_SECONDS if options.tiny else options.seconds

    def rate(crew, way, case):
        models, batch, kind, _ = case
        found = crew.measure(way, models, TINY_BATCH if options.tiny else batch, kind == "training", seconds)
        return sum(job["images_per_second"] for job in found)

    groups = [list(group) for _, group in itertools.groupby(cases, key=lambda case: (case[1], len(case[0])))]
    with Crew(jobs, setting) as crew:
        for index, group in enumerate(groups):
            # Every group has its part of the time, and most of it goes to the slower way, which comes first.
            now = time.monotonic()
            until = now + 0.6 * (began + options.bound * (index + 1) / len(groups) - now)
            separate = []
            for case in group:
                if separate and time.monotonic() > until:
                    left_out.append(case)
                else:
                    separate.append((case, rate(crew, "separate", case)))
            for case, alone in separate:
                models, batch, kind, (low, high) = case
                shared = rate(crew, "shared", case)
                rows.append(dict(zip(COLUMNS, [len(models), "+".join(models), kind, TINY_BATCH if options.tiny else batch, round(alone, 1),
                                               round(shared, 1), round(100 * (shared / alone - 1), 1), low, high])))
            crew.close_inputs()
    for models, batch, kind, _ in left_out:
        print(f"Left out, {options.bound:g} s are over: {'+'.join(models)}, {kind}, batch {batch}.")
    return rows


def show(options, name, title, rows):
    """Table, CSV and picture."""
    common.print_table(
        title, ["models", "kind", "batch", "separate, images/s", "shared, images/s", "gain", "published gain"],
        [[row["models"], row["kind"], row["batch"], row["separate"], row["shared"], f"{row['gain_percent']:+.0f} %",
          f"{row['published_low']} to {row['published_high']} %"] for row in rows])
    common.write_csv(options.out, f"{name}.csv", COLUMNS, [[row[column] for column in COLUMNS] for row in rows])
    plt = style.prepare()
    figure, axis = plt.subplots(figsize=(9, 0.9 + 0.4 * len(rows)))
    for place, row in enumerate(rows):
        axis.barh(place, row["gain_percent"], height=0.6, color=style.SERIES[0], label="regen" if place == 0 else None)
        axis.plot([row["published_low"], row["published_high"]], [place, place], color=style.SERIES[1], linewidth=4,
                  label="SwitchFlow, range of its networks" if place == 0 else None)
    axis.set_yticks(range(len(rows)), [f"{row['models']}, {row['kind']}, {row['batch']}" for row in rows])
    axis.invert_yaxis()
    axis.set_xlabel("images in a second: gain of one shared input over separate ones, %")
    if rows:
        axis.legend(frameon=False)
    common.save(figure, options.out, f"{name}.png")
