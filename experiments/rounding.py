"""Checkmate's four roundings of the relaxation: cost over the optimum, and whether plans keep the budget."""

import math
import os
import pathlib
import random

import common
from common import regen, style

NETWORKS = ["VGG16", "VGG19", "vgg_unet", "segnet", "fcn_8", "MobileNet"]
ROUNDINGS = ["sweep", "half", "random_threshold", "randomised"]
# For the random tries: small enough that a try takes milliseconds, of different shapes.
SMALL = ["test", "chain:6", "chain:8", "linear4", "linear8", "unet_mini", "VGG16"]
BUDGETS_AT_A_TIME = 50
COLUMNS = ["network", "rounding", "budget_bytes", "status", "cost", "peak_bytes", "seconds", "reference", "reference_is", "ratio"]


def sweep(network, planner, budgets, arguments, *options):
    return regen("sweep", f"zoo:{network}", "--planners", planner, "--budgets", budgets, "--time-limit",
                 arguments.time_limit, "--threads", arguments.jobs, *options)


def over_budget(point):
    """regen refuses a plan that needs more than its budget, and says so."""
    return "its plan needs" in point["note"] or point.get("peak_bytes", 0) > point["budget_bytes"]


def references(network, arguments):
    """budget: (cost, what it is), where there is any schedule."""
    result = {}
    for point in sweep(network, "checkmate", f"auto:{arguments.budgets}", arguments):
        if point["status"] == "optimal":
            result[point["budget_bytes"]] = (point["cost"], "optimum")
        elif point["status"] != "infeasible":
            result[point["budget_bytes"]] = (point["lower_bound"], "lower bound")
    return result


def measure(network, arguments):
    """(rows of the CSV, rows of the table) of one network."""
    reference = references(network, arguments)
    listed = ",".join(map(str, reference))
    rows, table = [], []
    for rounding in ROUNDINGS:
        points = sweep(network, "checkmate_lp", listed, arguments, "--rounding", rounding)
        # Where not even a fractional schedule fits there is nothing to round.
        points = [point for point in points if point["status"] != "infeasible"]
        rows += [row_of(network, rounding, point, *reference[point["budget_bytes"]]) for point in points]
        table.append(summary(network, rounding, points, reference))
    return rows, table


def row_of(network, rounding, point, cost, kind):
    ratio = point["cost"] / cost if common.found(point) else None
    return [network, rounding, point["budget_bytes"], point["status"], point.get("cost"), point.get("peak_bytes"),
            point["seconds"], cost, kind, ratio]


def summary(network, rounding, points, reference):
    good = [point for point in points if common.found(point)]
    ratios = [point["cost"] / reference[point["budget_bytes"]][0] for point in good]
    kinds = [reference[point["budget_bytes"]][1] for point in good]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
    return [network, rounding, len(points), len(good), sum(map(over_budget, points)),
            f"{mean:.4f}" if mean else "", f"{max(ratios):.4f}" if ratios else "",
            f"{kinds.count('optimum')} / {kinds.count('lower bound')}", f"{max((p['seconds'] for p in points), default=0):.2f}"]


def random_tries(arguments):
    """Random seeds at random budgets, one draw each; a row for each network."""
    draw = random.Random(arguments.seed)
    table = []
    each = -(-arguments.tries // len(SMALL))
    left = arguments.tries
    for network in SMALL:
        whole = regen("plan", f"zoo:{network}", "--planner", "keep_all")
        low, high = whole["structural_bound_bytes"], max(whole["structural_bound_bytes"], whole["peak_bytes"])
        points = []
        while len(points) < min(each, left):
            count = min(BUDGETS_AT_A_TIME, min(each, left) - len(points))
            budgets = ",".join(str(draw.randint(low, high)) for _ in range(count))
            points += sweep(network, "checkmate_lp", budgets, arguments, "--samples", 1, "--seed", draw.randrange(2**40),
                            "--rounding", draw.choice(["random_threshold", "randomised"]))
        left -= len(points)
        table.append([network, len(points), sum(map(common.found, points)), sum(map(over_budget, points))])
    table.append(["all", *(sum(row[column] for row in table) for column in (1, 2, 3))])
    return table


def draw_ratios(rows, networks, arguments, plt):
    columns = min(3, len(networks))
    lines = -(-len(networks) // columns)
    figure, grid = plt.subplots(lines, columns, figsize=(4.4 * columns, 3.4 * lines), squeeze=False)
    for axes, network in zip(grid.flat, networks):
        for index, rounding in enumerate(ROUNDINGS):
            known = [(r[2] / 1e6, r[9]) for r in rows if r[0] == network and r[1] == rounding and r[9]]
            axes.plot([x for x, _ in known], [y for _, y in known], marker="o", markersize=4, label=rounding, **common.look(index))
        axes.axhline(1, color=style.QUIET, linestyle="--", linewidth=1)
        axes.set(title=network, xlabel="budget [MB]", ylabel="cost / optimum")
        axes.grid(color=style.GRID)
    for axes in list(grid.flat)[len(networks):]:
        axes.set_axis_off()
    grid[0][0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    common.save(figure, arguments.out, "rounding.png")


def main():
    parser = common.parser(__doc__, 60)
    parser.add_argument("--networks", nargs="*", default=NETWORKS, metavar="NAME")
    parser.add_argument("--budgets", type=int, default=12, metavar="N", help="for each network (default 12)")
    parser.add_argument("--tries", type=int, default=10_000, metavar="N", help="random roundings (default 10,000; 0: none)")
    parser.add_argument("--seed", type=int, default=0, help="of the random tries (default 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="threads (default: the cores)")
    parser.add_argument("--binary", type=pathlib.Path, help="the program (default: REGEN_BIN, or build/regen)")
    arguments = parser.parse_args()
    if arguments.binary:
        common.REGEN = arguments.binary.resolve()
    rows, table = [], []
    for network in arguments.networks:
        more_rows, more = measure(network, arguments)
        rows += more_rows
        table += more
    if table:
        common.print_table("Roundings of the relaxation",
                           ["network", "rounding", "budgets", "plans", "over budget", "cost / optimum, geometric mean", "maximum",
                            "against optimum / lower bound", "longest seconds"], table)
        common.write_csv(arguments.out, "rounding.csv", COLUMNS, rows)
        draw_ratios(rows, arguments.networks, arguments, style.prepare())
    if arguments.tries:
        tries = random_tries(arguments)
        head = ["network", "tries", "plans", "over budget"]
        common.print_table("Random roundings at random budgets, one draw each", head, tries)
        common.write_csv(arguments.out, "rounding_tries.csv", head, tries)


if __name__ == "__main__":
    main()
