"""SwitchFlow, Figure 10: two independent jobs on one device, whose input is prepared on the CPU: steps in turns, or interleaved.

Both ways run under regen's daemon with equal weights, and every job decodes each of its batches before it uses it. In turns (step slicing)
a job has the device from the beginning of its decoding to the end of its step; interleaved it has it only while it computes. The gain is
that of the sum of both jobs' fractions of what they do alone. Batch 128, training 32. Published: V100, the range over networks.
"""

import contextlib

import common
import switchflow
from common import style
from share_crew import Crew, started, work
from switchflow import NAMES, number, pair

# partner -> (kind, network, batch, published gain in percent)
PARTNERS = {"VGG16 inference": ("infer", "vgg16", 128, "18-34"), "NASNetLarge inference": ("infer", "nasnet_large", 128, "32-40"),
            "VGG16 training": ("train", "vgg16", 32, "0-20")}
# A turn that no step outlasts, so that the device changes hands at the ends of steps; and the usual one.
TURNS = {"in turns": 10.0, "interleaved": 0.1}
COLUMNS = ["way", "first", "partner", "first_images_per_second", "second_images_per_second", "sum", "first_of_alone", "second_of_alone",
           "sum_of_alone"]


def specs(options):
    """The jobs by name: networks for the first place, partners for the second."""
    def spec(kind, model, batch):
        return work(kind, model, switchflow.batch(options, batch), decode=options.threads)

    return ({model: spec("infer", model, 128) for model in options.models},
            {name: spec(*PARTNERS[name][:3]) for name in options.partners})


def measure(options, rows):
    firsts, seconds = specs(options)
    with contextlib.ExitStack() as crews:
        of_way = {way: crews.enter_context(Crew("regen", options, turn)) for way, turn in TURNS.items()}
        started(of_way.values())
        alone = {}
        for way, crew in of_way.items():
            with crew:
                crew.prepare("first", *firsts.values())
                crew.prepare("second", *seconds.values())
                crew.rank((0, 1), (0, 1))
                if not alone:
                    alone = measure_alone(options, crew, firsts, seconds, rows)
                for partner, second in seconds.items():
                    for model, first in firsts.items():
                        sliced = way == "in turns"
                        found = crew.measure(options.seconds, first={**first, "sliced": sliced}, second={**second, "sliced": sliced})
                        add(rows, way, model, partner, found, alone)


def measure_alone(options, crew, firsts, seconds, rows):
    alone = {}
    for place, works in (("first", firsts), ("second", seconds)):
        for name, spec in works.items():
            found, = crew.measure(options.seconds, **{place: spec})
            alone[name] = found["images_per_second"]
            rows.add(way="alone", first=name, first_images_per_second=alone[name])
    return alone


def add(rows, way, model, partner, found, alone):
    speeds = [one["images_per_second"] for one in found]
    shares = [speeds[0] / alone[model], speeds[1] / alone[partner]]
    rows.add(way=way, first=model, partner=partner, first_images_per_second=speeds[0], second_images_per_second=speeds[1], sum=sum(speeds),
             first_of_alone=shares[0], second_of_alone=shares[1], sum_of_alone=sum(shares))


def gain(rows, column, **pair_of):
    """In percent."""
    turns, interleaved = (rows.find(way=way, **pair_of)[column] for way in TURNS)
    return 100 * (interleaved / turns - 1)


def show(options, rows, partner):
    lines = []
    for model in options.models:
        found = [rows.find(way=way, first=model, partner=partner) for way in TURNS]
        lines.append([NAMES[model], number(rows.find(way="alone", first=model)["first_images_per_second"], 0),
                      *(pair([row["first_images_per_second"], row["second_images_per_second"]]) for row in found),
                      *(f"{gain(rows, column, first=model, partner=partner):+.0f} %" for column in ("sum_of_alone", "sum")),
                      PARTNERS[partner][3] + " %"])
    common.print_table(f"With {partner} (alone {rows.find(way='alone', first=partner)['first_images_per_second']:.0f}): images per second",
                       ["inference of", "alone", *TURNS, "gain", "gain of the sum of images", "published gain"], lines)


def draw(options, rows):
    plt = style.prepare()
    figure, axis = plt.subplots(figsize=(9, 3.6))
    width = 0.8 / len(options.partners)
    for index, partner in enumerate(options.partners):
        axis.bar([place + index * width for place in range(len(options.models))],
                 [gain(rows, "sum_of_alone", first=model, partner=partner) for model in options.models], width, label=f"with {partner}",
                 color=style.SERIES[index])
    axis.set_xticks([place + 0.4 for place in range(len(options.models))], [NAMES[model] for model in options.models])
    axis.set_ylabel("gain over steps in turns, %")
    axis.legend(frameon=False, fontsize=8)
    common.save(figure, options.out, "switchflow_fig10.png")


def main():
    models = ["resnet50", "densenet121", "inception_v3", "mobilenet_v2"]
    parser = switchflow.parser(__doc__, "about 220 s", 3, models)
    parser.add_argument("--partners", nargs="+", default=list(PARTNERS), choices=list(PARTNERS), metavar="PARTNER",
                        help=f"some of {', '.join(map(repr, PARTNERS))} (default all)")
    parser.add_argument("--threads", type=common.positive, default=6, help="that decode, of each job (default 6)")
    options = switchflow.parse(parser)
    rows = switchflow.Rows(options.out, "switchflow_fig10.csv", COLUMNS)
    measure(options, rows)
    for partner in options.partners:
        show(options, rows, partner)
    rows.done()
    draw(options, rows)


if __name__ == "__main__":
    main()
