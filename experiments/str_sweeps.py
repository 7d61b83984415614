"""STR (IPDPS 2022, TPDS 2023): its named runs and its batch sweeps, ours beside the published logs.

Costs are the roofline of a V100 with 32 GiB (or of another `--device`), which stands for the card of the logs; theirs is not stated. Their budgets
count what TensorFlow takes; counted byte by byte the same step needs less, and several of the runs fit without any
re-generation. So every run is also planned at a tight budget, halfway between what every plan needs and what keeping
everything takes.
"""

import common
from common import regen, style

DEVICE = "v100-32"
PLANNERS = ["keep_all", "checkmate", "vdnn", "superneurons", "capuchin", "str_lp", "str", "auto"]
NAMED = {"VGG16": 300, "vgg_unet": 32, "MobileNet": 400}
NAMED_BUDGETS = [22_000_000_000, 23_000_000_000]
SWEEPS = {
    "VGG16": range(200, 301, 20),
    "vgg_unet": range(15, 61, 5),
    "MobileNet": [280, 320, 360, 400, 440, 480, 512],
    "ResNet101": range(70, 141, 10),
    "ResNet152": range(40, 91, 10),
}
BUDGET = {"ResNet152": 24_000_000_000}
# Images per second computed from the raw logs (str.md 6): batch: (Capuchin, STR, STR-app); None: out of memory.
LOGS = {
    "VGG16": {200: (67, 139, 104), 220: (61, None, 102), 240: (60, None, 103), 260: (55, 118, 99), 280: (99, 115, 97)},
    "vgg_unet": {15: (9.6, 13.7, 9.7), 20: (10.1, 14.9, 9.1), 25: (11.6, 13.8, 10.6), 30: (11.0, 14.8, 10.8), 35: (11.7, 12.3, 10.3),
                 40: (11.9, 12.8, 10.5), 45: (11.9, 15.8, 10.8), 50: (None, None, None)},
    "MobileNet": {320: (195, 214, 159), 360: (188, 208, 185), 400: (207, 198, None), 440: (206, 204, None), 480: (207, 209, None)},
    "ResNet152": {40: (None, None, 27.0), 50: (None, None, 34.2), 60: (None, None, 32.4), 70: (None, None, 36.6), 80: (None, None, 32.5)},
}
COLUMNS = ["network", "batch", "budget_bytes", "budget_is", "planner", "status", "cost", "images_per_second", "overhead", "gap",
           "peak_bytes", "recomputed", "offloaded_bytes", "stall", "seconds"]


def graph(network, batch):
    return f"zoo:{network}@{batch}"


def plan(network, batch, budget, planner, arguments, *options):
    return regen("plan", graph(network, batch), "--device", arguments.device, "--budget", budget, "--planner", planner,
                 "--time-limit", arguments.time_limit, *options)


def tight_budget(network, batch, arguments):
    whole = regen("plan", graph(network, batch), "--device", arguments.device, "--planner", "keep_all")
    return (whole["structural_bound_bytes"] + whole["peak_bytes"]) // 2


def row_of(network, batch, budget, kind, planner, answer):
    good = common.found(answer)
    return [network, batch, budget, kind, planner, answer["status"], answer["cost"] if good else None,
            batch / answer["cost"] if good else None, answer["overhead"] if good else None, answer["gap"] if good else None,
            answer["peak_bytes"] if good else None, answer["recomputed"] if good else None,
            answer["offloaded_bytes"] if good else None, answer["stall"] if good else None, answer["seconds"]]


def measure(network, batch, budget, kind, arguments):
    return [row_of(network, batch, budget, kind, planner, plan(network, batch, budget, planner, arguments))
            for planner in arguments.planners]


def percent(value):
    return "" if value is None else f"{100 * value:.2f} %"


def named_runs(arguments):
    rows = []
    for network, batch in NAMED.items():
        if network not in arguments.networks:
            continue
        budgets = [(budget, "named") for budget in NAMED_BUDGETS] + [(tight_budget(network, batch, arguments), "tight")]
        for budget, kind in budgets:
            rows += measure(network, batch, budget, kind, arguments)
            if arguments.published:
                answer = plan(network, batch, budget, "str", arguments, "--model", "published") if network != "MobileNet" else None
                if answer:
                    rows.append(row_of(network, batch, budget, kind, "str, published program", answer))
    table = [[row[0], row[1], f"{row[2] / 1e9:.2f} ({row[3]})", row[4], row[5], percent(row[8]), percent(row[9]), row[11],
              "" if row[12] is None else f"{row[12] / 1e9:.2f}", f"{row[14]:.2f}"] for row in rows]
    common.print_table("Named runs", ["network", "batch", "budget GB", "planner", "status", "overhead", "gap to our bound",
                                      "re-runs", "GB moved", "seconds"], table)
    return rows


def sweep(network, arguments):
    """Rows of the CSV; prints the table of one network at a tight budget and at the published one."""
    rows = []
    for kind in ("published", "tight"):
        table = []
        for batch in arguments.batches or SWEEPS[network]:
            budget = tight_budget(network, batch, arguments) if kind == "tight" else BUDGET.get(network, NAMED_BUDGETS[0])
            group = measure(network, batch, budget, kind, arguments)
            rows += group
            speed = {row[4]: row[7] for row in group}
            logs = LOGS.get(network, {}).get(batch, (None, None, None))
            table.append([batch, f"{budget / 1e9:.1f}", *("" if speed[p] is None else f"{speed[p]:.1f}" for p in arguments.planners),
                          common.ratio(speed.get("str"), speed.get("capuchin")), *("" if x is None else x for x in logs),
                          common.ratio(logs[1], logs[0])])
        common.print_table(f"{network}, {kind} budget: images per second",
                           ["batch", "budget GB", *arguments.planners, "str / capuchin", "their Capuchin", "their STR",
                            "their STR-app", "their STR / Capuchin"], table)
    return rows


def compare(rows):
    """`auto` beside `str`, than which it must not be slower, and `capuchin`, where that pays more than 28 %."""
    runs, loads = {}, {}
    for row in rows:
        runs.setdefault(tuple(row[:4]), {})[row[4]] = row[6]
        loads.setdefault(tuple(row[:4]), {})[row[4]] = row[8]
    both = [costs for costs in runs.values() if costs.get("auto") and costs.get("str")]
    slower = [costs for costs in both if costs["auto"] > costs["str"] * (1 + 1e-9)]
    only_str = sum(1 for costs in runs.values() if costs.get("str") and not costs.get("auto"))
    laden = [costs for run, costs in runs.items() if costs.get("auto") and (loads[run].get("capuchin") or 0) > 0.28]
    worst = max((costs["auto"] / costs["str"] for costs in both), default=None)
    print(f"auto and str: {len(both)} runs, auto slower in {len(slower)} (worst ratio {worst}), without a plan where str has one in {only_str}")
    print("capuchin / auto where capuchin's overhead is above 28 %:",
          ", ".join(f"{costs['capuchin'] / costs['auto']:.2f}" for costs in laden) or "no such run")


def draw(rows, arguments, plt):
    networks = [name for name in arguments.networks if any(row[0] == name for row in rows)]
    figure, grid = plt.subplots(1, len(networks), figsize=(4.4 * len(networks), 3.6), squeeze=False)
    for axes, network in zip(grid.flat, networks):
        for index, planner in enumerate(arguments.planners):
            points = [(row[1], 100 * row[8]) for row in rows
                      if row[0] == network and row[4] == planner and row[3] == "tight" and row[8] is not None]
            if points:
                axes.plot(*zip(*sorted(points)), marker="o", markersize=4, label=planner, **common.look(index))
        axes.set(title=network, xlabel="batch", ylabel="overhead [%], tight budget")
        axes.set_yscale("symlog", linthresh=0.1)
        axes.grid(color=style.GRID)
    grid[0][0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    common.save(figure, arguments.out, "str_sweeps.png")


def main():
    parser = common.parser(__doc__, 10)
    parser.add_argument("--networks", nargs="*", default=list(SWEEPS), choices=list(SWEEPS), metavar="NAME")
    parser.add_argument("--planners", nargs="*", default=PLANNERS, metavar="NAME")
    parser.add_argument("--batches", nargs="*", type=int, metavar="N", help="instead of the published ones")
    parser.add_argument("--device", default=DEVICE, help=f"whose costs and link (default {DEVICE})")
    parser.add_argument("--published", action="store_true", help="also solve STR's own program (VGG16, vgg_unet; takes the whole limit)")
    parser.add_argument("--no-named", action="store_true", help="leave the named runs out")
    parser.add_argument("--no-sweeps", action="store_true", help="leave the batch sweeps out")
    arguments = parser.parse_args()
    arguments.planners = common.available(arguments.planners)
    print("Left out: the transformer of the logs (its layers are not public as a graph).\n")
    rows = [] if arguments.no_named else named_runs(arguments)
    swept = [] if arguments.no_sweeps else [row for network in arguments.networks for row in sweep(network, arguments)]
    common.write_csv(arguments.out, "str_sweeps.csv", COLUMNS, rows + swept)
    compare(rows + swept)
    if swept:
        draw(swept, arguments, style.prepare())


if __name__ == "__main__":
    main()
