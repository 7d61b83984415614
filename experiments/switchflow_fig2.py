"""SwitchFlow, Figure 2: two trainings of ResNet-50, batch 16, in two processes: images per second, and who is on the device when.

Ways: alone, free processes, MPS, regen (turns of 100 ms under the daemon), both. The timeline shows kernels and copies of each process
as torch's profiler sees them, of a run of its own. On a CPU it shows steps, and under regen who holds the device as the daemon says every millisecond.
"""

import contextlib
import itertools

import common
import switchflow
from common import style
from device_times import covered, overlap
from share_crew import PLACES, crews_of, work
from switchflow import NAMES, number

PUBLISHED = {"alone": (226, None), "free": (116, 116)}  # a V100; read as images per second of each
TRACE_SECONDS = 1.0
SHOWN_SECONDS = 0.2
COLUMNS = ["way", "first", "second", "sum", "sum_over_alone", "device_busy", "both_at_once"]


def spans_of(crew, spec, options, places):
    """When each place was at work, in seconds since 1970."""
    seconds = TRACE_SECONDS if not options.tiny else options.seconds
    watch = crew.daemon.watched() if crew.daemon and options.device == "cpu" else contextlib.nullcontext()
    with watch as seen:
        if options.device != "cpu":
            crew.measure(0.05, trace=True, **dict.fromkeys(places, spec))  # the profiler starts slowly the first time
        found = crew.measure(seconds, trace=True, **dict.fromkeys(places, spec))
    if seen:
        return [held(seen, place) for place in places]
    return [[tuple(span) for span in one["spans"]] for one in found]


def held(seen, place):
    """The stretches in which every look found `place` to be the holder."""
    spans, begin = [], None
    for (moment, holder), (following, _) in itertools.pairwise(seen):
        if holder == place:
            begin = moment if begin is None else begin
            end = following
        elif begin is not None:
            spans.append((begin, end))
            begin = None
    return spans + ([(begin, end)] if begin is not None else [])


def common_part(spans):
    """From the last beginning to the first end of all places."""
    return max(one[0][0] for one in spans), min(one[-1][1] for one in spans)


def clipped(spans, begin, end):
    return [(max(a, begin), min(b, end)) for a, b in spans if a < end and b > begin]


def busy(spans):
    """(fraction of the common time in which some place is at work, in which all are)."""
    if not all(spans):
        return None, None
    begin, end = common_part(spans)
    if end <= begin:  # one was at work only before or after the other
        return None, None
    parts = [clipped(one, begin, end) for one in spans]
    whole = covered([span for part in parts for span in part]) / (end - begin)
    return whole, (overlap(*parts) / (end - begin) if len(parts) == 2 else 0.0)


def measure(options, rows, timeline):
    spec = work("train", options.models[0], switchflow.batch(options, 16))
    drawn = {}
    with crews_of(options, ["free", *(way for way in ("regen", "mps", "regen+mps") if way in options.ways)]) as crews:
        for crew in crews:
            with crew:
                for place in PLACES:
                    crew.prepare(place, spec)
                crew.rank((0, 1), (0, 1))
                cases = [("alone", PLACES[:1]), ("free", PLACES)] if crew.way == "free" else [(crew.way, PLACES)]
                for way, places in cases:
                    if way == "alone" or way in options.ways:
                        speeds = [one["images_per_second"] for one in crew.measure(options.seconds, **dict.fromkeys(places, spec))]
                        drawn[way] = spans_of(crew, spec, options, places)
                        add(rows, way, speeds, *busy(drawn[way]))
                        keep(timeline, way, drawn[way])
    return drawn


def add(rows, way, speeds, device_busy, both):
    alone = rows.find(way="alone").get("first", speeds[0])
    rows.add(way=way, first=speeds[0], second=speeds[1] if len(speeds) > 1 else None, sum=sum(speeds), sum_over_alone=sum(speeds) / alone,
             device_busy=device_busy, both_at_once=both)


def keep(timeline, way, spans):
    """Milliseconds from the first moment in which all are there."""
    if not all(spans):
        print(f"No kernels were seen for {way}: the profiler does not work there.")
        return
    begin, _ = common_part(spans)
    timeline.add(*(dict(way=way, place=place, begin_ms=(a - begin) * 1e3, end_ms=(b - begin) * 1e3)
                   for place, one in zip(PLACES, spans) for a, b in one))


def draw(drawn, folder):
    plt = style.prepare()
    figure, axes = plt.subplots(len(drawn), 1, figsize=(9, 0.6 + 1.0 * len(drawn)), squeeze=False, sharex=True)
    for axis, (way, spans) in zip(axes[:, 0], drawn.items()):
        if all(spans):
            begin, end = common_part(spans)
            begin += max(0.0, (end - begin - SHOWN_SECONDS) / 2)
            for index, one in enumerate(spans):
                bars = [((a - begin) * 1e3, (b - a) * 1e3) for a, b in clipped(one, begin, begin + SHOWN_SECONDS)]
                axis.broken_barh(bars, (1 - index, 0.8), color=style.SERIES[index])
        axis.set_yticks([1.4, 0.4][: len(spans)], PLACES[: len(spans)])
        axis.set_title(way, fontsize=9)
    axes[-1, 0].set_xlabel("milliseconds")
    figure.tight_layout()
    common.save(figure, folder, "switchflow_fig2.png")


def main():
    ways = ("free", "regen", "mps", "regen+mps")
    parser = switchflow.parser(__doc__, "about 95 s", 5, ["resnet50"], ways)
    options = switchflow.parse(parser)
    if len(options.models) > 1:
        parser.error(f"--models {' '.join(options.models)}, expected one: both train the same network")
    published = PUBLISHED if options.models == ["resnet50"] else {}
    rows = switchflow.Rows(options.out, "switchflow_fig2.csv", COLUMNS)
    timeline = switchflow.Rows(options.out, "switchflow_fig2_timeline.csv", ["way", "place", "begin_ms", "end_ms"])
    drawn = measure(options, rows, timeline)
    common.print_table(
        f"Two trainings of {NAMES[options.models[0]]}, batch {switchflow.batch(options, 16)}: images per second",
        ["way", "first", "second", "sum", "sum / alone", "device at work", "both at once", "published (V100)"],
        [[row["way"], number(row["first"]), number(row["second"]), number(row["sum"]), number(row["sum_over_alone"], 3),
          switchflow.percent(row["device_busy"]), switchflow.percent(row["both_at_once"]),
          switchflow.pair([x for x in published.get(row["way"], ()) if x])] for row in rows.rows])
    rows.done()
    timeline.done()
    draw(drawn, options.out)


if __name__ == "__main__":
    main()
