"""SwitchFlow, Figure 7: two trainings of different networks, batch 32: ResNet-50 with each other one, VGG16 with each other one.

Ours share one device: alone, free processes, MPS, threads (plain PyTorch), regen with equal weights, and regen with the second of higher
priority. Published: (a) 1080 Ti and (b) 2080 Ti, threads; (c) V100, MPS; SwitchFlow with the first moved away (d) to the CPU, (e) and
(f) to a second GPU. So the paper has no result of SwitchFlow for one device.
"""

import common
import switchflow
from common import style
from share_crew import WAYS, crews_of, work
from switchflow import NAMES, number, pair

OUT_OF_MEMORY = "OOM"
# first -> second -> figure -> images per second of both
PUBLISHED = {
    "resnet50": {
        "vgg16": {"a": (47, 95), "c": (89, 142), "d": (12, 156), "e": (160, 172)},
        "vgg19": {"a": (43, 86), "c": (86, 130), "d": (12, 136), "e": (160, 148)},
        "densenet121": {"a": OUT_OF_MEMORY, "c": (155, 122), "d": (12, 151), "e": (160, 172)},
        "densenet169": {"a": OUT_OF_MEMORY, "c": (144, 95), "d": (12, 122), "e": (160, 142)},
        "inception_resnet_v2": {"a": (91, 46), "c": (147, 71), "d": (12, 65), "e": (160, 121)},
        "inception_v3": {"a": (98, 97), "c": (145, 148), "d": (12, 144), "e": (160, 268)}},
    "vgg16": {
        "resnet50": {"b": (126, 63), "f": (134, 218)},
        "vgg19": {"b": (82, 82), "f": (134, 147)},
        "densenet121": {"b": (127, 46), "f": (134, 177)},
        "densenet169": {"b": OUT_OF_MEMORY, "f": (134, 148)},
        "inception_resnet_v2": {"b": (131, 32), "f": (134, 120)},
        "inception_v3": {"b": (138, 57), "f": (134, 265)}}}
# What is added to the way -> rank (priority, weight) of both, under a daemon
RANKS = {"": ((0, 1), (0, 1)), ", second first": ((0, 1), (1, 1))}
COLUMNS = ["way", "first", "second", "first_images_per_second", "second_images_per_second", "first_of_alone", "second_of_alone",
           "sum_of_alone"]


def pairs(options):
    return [(first, second) for first in options.firsts for second in options.models if second != first]


def measure(options, rows):
    batch = switchflow.batch(options, 32)
    alone = {}
    with crews_of(options, ["free", *(way for way in WAYS if way in options.ways and way != "free")]) as crews:
        for crew in crews:
            with crew:
                crew.prepare("first", *(work("train", model, batch) for model in options.firsts))
                crew.prepare("second", *(work("train", model, batch) for model in options.models))
                if crew.way == "free":
                    measure_alone(options, crew, batch, alone, rows)
                if crew.way in options.ways:
                    for more in RANKS if crew.daemon else [""]:
                        crew.rank(*RANKS[more])
                        for first, second in pairs(options):
                            measure_pair(options, crew, crew.way + more, (first, second), batch, alone, rows)


def measure_alone(options, crew, batch, alone, rows):
    for place, models in (("first", options.firsts), ("second", options.models)):
        for model in models:
            if model not in alone:
                found, = crew.measure(options.seconds, **{place: work("train", model, batch)})
                alone[model] = found["images_per_second"]
                rows.add(way="alone", first=model, first_images_per_second=alone[model])


def measure_pair(options, crew, way, models, batch, alone, rows):
    first, second = models
    found = crew.measure(options.seconds, first=work("train", first, batch), second=work("train", second, batch))
    speeds = [one["images_per_second"] for one in found]
    shares = [speed / alone[model] for speed, model in zip(speeds, models)]
    rows.add(way=way, first=first, second=second, first_images_per_second=speeds[0], second_images_per_second=speeds[1],
             first_of_alone=shares[0], second_of_alone=shares[1], sum_of_alone=sum(shares))


def ways_of(rows):
    return list(dict.fromkeys(row["way"] for row in rows.rows if row["way"] != "alone"))


def show(options, rows, first):
    ways = ways_of(rows)
    figures = sorted({figure for of_pair in PUBLISHED[first].values() for figure in of_pair})
    alone = {model: rows.find(way="alone", first=model)["first_images_per_second"] for model in (first, *options.models)}
    lines = []
    for _, second in (both for both in pairs(options) if both[0] == first):
        found = [rows.find(way=way, first=first, second=second) for way in ways]
        theirs = [PUBLISHED[first].get(second, {}).get(figure, ()) for figure in figures]
        lines.append([NAMES[second], number(alone[second], 0),
                      *(pair([row["first_images_per_second"], row["second_images_per_second"]]) for row in found),
                      *(number(row["sum_of_alone"], 2) for row in found),
                      *(cell if isinstance(cell, str) else pair(cell) for cell in theirs)])
    common.print_table(
        f"{NAMES[first]} (alone {alone[first]:.0f}) with another: images per second of both",
        ["second", "alone", *ways, *(f"{way}: sum of shares of alone" for way in ways), *(f"published ({figure})" for figure in figures)],
        lines)


def draw(options, rows):
    plt = style.prepare()
    ways = ways_of(rows)
    figure, axes = plt.subplots(1, len(options.firsts), figsize=(5.5 * len(options.firsts), 3.6), squeeze=False, sharey=True)
    width = 0.8 / len(ways) if ways else 1
    for axis, first in zip(axes[0], options.firsts):
        seconds = [second for one, second in pairs(options) if one == first]
        for index, way in enumerate(ways):
            found = [rows.find(way=way, first=first, second=second) for second in seconds]
            places = [place + index * width for place in range(len(seconds))]
            axis.bar(places, [row["first_of_alone"] for row in found], width, label=way, color=style.SERIES[index])
            axis.bar(places, [row["second_of_alone"] for row in found], width, [row["first_of_alone"] for row in found],
                     color=style.SERIES[index], alpha=0.5)
        axis.axhline(1, color=style.QUIET, linestyle="--", linewidth=1)
        axis.set_xticks([place + 0.4 for place in range(len(seconds))], [NAMES[second] for second in seconds])
        axis.set_title(f"{NAMES[first]} (dark) with another (light)", fontsize=9)
    axes[0, 0].set_ylabel("throughput / alone")
    axes[0, 0].legend(frameon=False, fontsize=8)
    common.save(figure, options.out, "switchflow_fig7.png")


def main():
    models = ["resnet50", "vgg16", "vgg19", "densenet121", "inception_v3"]
    parser = switchflow.parser(__doc__, "about 200 s; with seven networks about 6 minutes", 1, models, WAYS)
    parser.add_argument("--firsts", nargs="+", default=list(PUBLISHED), choices=list(PUBLISHED))
    options = switchflow.parse(parser)
    rows = switchflow.Rows(options.out, "switchflow_fig7.csv", COLUMNS)
    measure(options, rows)
    for first in options.firsts:
        show(options, rows, first)
    rows.done()
    draw(options, rows)


if __name__ == "__main__":
    main()
