"""SwitchFlow, Table 1: how long the state of a training (parameters, momentum, buffers) takes from one device to another.

Ours goes to pinned host memory and back as one packed copy (regen.share.PackedState), beside a copy for each tensor; theirs from GPU to GPU
over PCIe 3 x16, a copy for each variable. The share is that of the rate of one large pinned copy in the same run. benchmarks/state_move.py
has the details.
"""

import argparse

import common
import switchflow
from common import style
from switchflow import NAMES, number, percent

DIRECTIONS = ("leave", "come_back")
COLUMNS = ["model", "mib", "tensors", "leave_ms", "come_back_ms", "leave_gib_per_s", "come_back_gib_per_s", "leave_share",
           "come_back_share", "leave_singly_ms", "come_back_singly_ms", "link_out_gib_per_s", "link_back_gib_per_s", "published_mib",
           "published_ms", "published_gb_per_s"]


def flat(found):
    """A row of state_move.py as one of the CSV."""
    row = {name: found[name] for name in ("model", "mib", "tensors")}
    for way in DIRECTIONS:
        row |= {f"{way}_ms": found[way]["ms"], f"{way}_gib_per_s": found[way]["gib_per_s"], f"{way}_share": found[way]["share_of_link"],
                f"{way}_singly_ms": found[way]["one_by_one_ms"]}
    out, back = found["link_gib_per_s"]
    theirs = found["switchflow"]
    return row | {"link_out_gib_per_s": out, "link_back_gib_per_s": back, "published_mib": theirs["mib"], "published_ms": theirs["ms"],
                  "published_gb_per_s": theirs["gb_per_s"]}


def draw(options, rows):
    plt = style.prepare()
    figure, axis = plt.subplots(figsize=(9, 3.6))
    bars = [("leave_ms", "regen, to the host"), ("come_back_ms", "regen, back"), ("leave_singly_ms", "one by one, to the host"),
            ("published_ms", "SwitchFlow, GPU to GPU")]
    for index, (column, label) in enumerate(bars):
        axis.bar([place + index * 0.2 for place in range(len(rows.rows))], [row[column] for row in rows.rows], 0.2, label=label,
                 color=style.SERIES[index])
    axis.set_xticks([place + 0.3 for place in range(len(rows.rows))], [NAMES[row["model"]] for row in rows.rows])
    axis.set(yscale="log", ylabel="ms")
    axis.legend(frameon=False, fontsize=8)
    common.save(figure, options.out, "switchflow_table1.png")


def main():
    from state_move import MODELS, link_rate, measure  # imports torch: not for --help

    parser = switchflow.parser(__doc__, "about 20 s", 1, list(MODELS))
    parser.add_argument("--rounds", type=common.positive, default=20, help="of each network (default 20), instead of --seconds")
    options = switchflow.parse(parser)
    unknown = [model for model in options.models if model not in MODELS]
    if unknown:
        parser.error(f"Table 1 has no {unknown[0]!r}; expected some of {', '.join(MODELS)}")
    settings = argparse.Namespace(device=options.device, tiny=options.tiny, rounds=options.rounds)
    rows = switchflow.Rows(options.out, "switchflow_table1.csv", COLUMNS)
    link = link_rate(options.device, 16 << 20 if options.tiny else 1 << 30)
    for model in options.models:
        rows.add(**flat(measure(model, settings, link)))
    common.print_table(
        "State of a training: to the host and back",
        ["network", "MiB", "ms out", "ms back", "share of link out", "back", "singly: ms out", "ms back", "published MiB", "ms", "GB/s"],
        [[NAMES[row["model"]], row["mib"], number(row["leave_ms"], 2), number(row["come_back_ms"], 2), percent(row["leave_share"]),
          percent(row["come_back_share"]), number(row["leave_singly_ms"], 2), number(row["come_back_singly_ms"], 2), row["published_mib"],
          row["published_ms"], number(row["published_gb_per_s"])] for row in rows.rows])
    rows.done()
    draw(options, rows)


if __name__ == "__main__":
    main()
