"""SwitchFlow, Figure 6: how long a request for one image, or one sentence, takes beside a training (batch 32) on the same device.

Ways: alone, threads (plain PyTorch in one process: the paper's baseline), free processes, MPS, regen (the requests are more urgent).
Requests come one after the other, as published, and at random moments for 30 % of the device. The paper's gain is the 95th percentile under
threads over that under SwitchFlow, which moves the training to another device; regen pauses it on the same one, and the last columns say
what it keeps: its images per second over those alone, and over what the requests leave.
"""

import argparse

import common

import switchflow  # isort: skip (it knows where the next ones are)
import share_latency
from common import style
from share_crew import WAYS, crews_of
from switchflow import NAMES, number, percent

TRAININGS = ["mobilenet_v2", "resnet50", "vgg16"]
# training -> network of the requests -> published gain
PUBLISHED = {
    "mobilenet_v2": {"resnet50": 1.70, "vgg16": 1.16, "vgg19": 1.12, "densenet121": 2.10, "densenet169": 1.97, "inception_resnet_v2": 2.02,
                     "inception_v3": 1.82},
    "resnet50": {"vgg16": 6.20, "vgg19": 6.84, "densenet121": 5.66, "densenet169": 4.20, "inception_resnet_v2": 3.20, "inception_v3": 5.82,
                 "mobilenet_v2": 6.62, "nmt": 5.32},
    "vgg16": {"resnet50": 11.08, "vgg19": 13.48, "densenet121": 11.65, "densenet169": 11.05, "inception_resnet_v2": 8.15,
              "inception_v3": 15.08, "mobilenet_v2": 14.33, "nmt": 16.67}}
COLUMNS = ["row", "how", "train", "infer", "arrivals", "load", "requests", "p50_ms", "p95_ms", "p99_ms", "mean_ms", "p95_over_alone",
           "images_per_second", "share_of_alone", "kept", "pauses"]


def measure(options, rows):
    batch = switchflow.batch(options, 32)
    table = share_latency.Requests(argparse.Namespace(
        train=[f"{model}:{batch}" for model in options.trainings], infer=options.models, seconds=options.seconds, load=options.load,
        arrivals=options.arrivals, cuda_graphs=False), lambda **row: rows.add(**{**row, "train": row.get("train", "").partition(":")[0]}))
    with crews_of(options, share_latency.crew_ways(options.ways)) as crews:
        for crew in crews:
            with crew:
                table.prepare(crew)
                if crew.way == "free":
                    table.measure_alone(crew)
                if crew.way in options.ways:
                    table.measure(crew)


def measured_ways(rows):
    found = {row["how"] for row in rows.rows}
    return [way for way in ("threads", "free", "mps", "regen", "regen+mps") if way in found]


def show(options, rows, train, arrivals):
    def row_of(way, model):
        return rows.find(row="requests", how=way, infer=model, arrivals=arrivals, train="" if way == "alone" else train)

    models = [model for model in options.models if model != train or len(options.models) == 1]
    ways = ["alone", *measured_ways(rows)]
    lines = []
    for model in models:
        regen, base = row_of("regen", model), row_of("threads", model)
        lines.append([NAMES[model], *(percentiles(row_of(way, model)) for way in ways),
                      common.ratio(base.get("p95_ms"), regen.get("p95_ms"), 2), PUBLISHED[train].get(model) if arrivals == "closed" else "",
                      percent(regen.get("share_of_alone")), percent(regen.get("kept"))])
    common.print_table(f"p50 / p95 / p99 in ms beside training of {NAMES[train]}, {arrivals}",
                       ["requests of", *ways, "gain (p95: threads / regen)", "published gain", "training: of alone", "of what is left"],
                       lines)


def percentiles(row):
    return " / ".join(number(row[f"{name}_ms"], 2) for name in ("p50", "p95", "p99")) if row else ""


def draw(options, rows):
    plt = style.prepare()
    figure, axes = plt.subplots(len(options.arrivals), len(options.trainings), squeeze=False,
                                figsize=(4.2 * len(options.trainings), 3 * len(options.arrivals)))
    ways = measured_ways(rows)
    width = 0.8 / max(1, len(ways))
    for line, arrivals in zip(axes, options.arrivals):
        for axis, train in zip(line, options.trainings):
            for index, way in enumerate(ways):
                values = [rows.find(row="requests", how=way, train=train, infer=model, arrivals=arrivals).get("p95_over_alone", 0)
                          for model in options.models]
                axis.bar([place + index * width for place in range(len(values))], values, width, label=way, color=style.SERIES[index])
            axis.axhline(1, color=style.QUIET, linestyle="--", linewidth=1)
            axis.set_xticks([place + 0.4 for place in range(len(options.models))], [NAMES[model] for model in options.models], rotation=45)
            axis.set_title(f"beside {NAMES[train]}, {arrivals}", fontsize=9)
        line[0].set_ylabel("p95 / alone")
    axes[0, 0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    common.save(figure, options.out, "switchflow_fig6.png")


def main():
    models = ["resnet50", "vgg16", "densenet121", "mobilenet_v2", "nmt"]
    takes = "about 4 minutes; with all ten networks and --seconds 2 about 10 minutes"
    parser = switchflow.parser(__doc__, takes, 0.8, models, WAYS)
    parser.add_argument("--trainings", nargs="+", default=TRAININGS, choices=TRAININGS)
    parser.add_argument("--arrivals", nargs="+", default=list(share_latency.ARRIVALS), choices=share_latency.ARRIVALS)
    parser.add_argument("--load", type=float, default=0.3)
    options = switchflow.parse(parser)
    rows = switchflow.Rows(options.out, "switchflow_fig6.csv", COLUMNS)
    measure(options, rows)
    for arrivals in options.arrivals:
        for train in options.trainings:
            show(options, rows, train, arrivals)
    rows.done()
    draw(options, rows)


if __name__ == "__main__":
    main()
