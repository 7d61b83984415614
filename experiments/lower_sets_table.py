"""Lower sets (Kusumoto et al. 2019): ours beside the published code's runs, and the poster's table.

The published budget leaves parameter gradients out, so a published run may need more than its
budget. What it really took, its peak, is the budget that ours gets.
"""

import csv
import json
import math

import common
from common import DATA, run, style

PLANNERS = {"vanilla_liveness": "keep_all", "chen": "chen_cuts", "approx": "lower_sets_approx", "exact": "lower_sets"}
POSTER_PLANNERS = ["lower_sets_approx", "lower_sets", "chen_cuts"]
# Poster, in GB with parameters and workspaces: (file, batch of the file, batch, vanilla, each planner).
POSTER = {
    "PSPNet": ("pspnet", 1, 2, 9.4, ("2.7 (-71%)", "2.8 (-70%)", "4.0 (-58%)")),
    "U-Net": ("unet", 8, 8, 9.1, ("5.0 (-45%)", "4.7 (-48%)", "7.4 (-18%)")),
    "ResNet50": ("resnet50", 32, 96, 8.9, ("3.4 (-62%)", "3.4 (-62%)", "3.7 (-59%)")),
    "ResNet152": ("resnet152", 32, 48, 9.2, ("2.3 (-75%)", "2.3 (-75%)", "2.4 (-74%)")),
    "VGG19": ("vgg19", 32, 64, 7.0, ("4.5 (-36%)", "4.5 (-36%)", "4.7 (-34%)")),
    "DenseNet161": ("densenet", 32, 32, 8.5, ("1.6 (-81%)", "1.7 (-80%)", "1.8 (-79%)")),
    "GoogLeNet": ("googlenet", 32, 256, 8.5, ("5.2 (-39%)", "5.2 (-39%)", "6.5 (-24%)")),
}
COLUMNS = ["graph", "algorithm", "mode", "published_peak_bytes", "published_overhead", "our_status", "our_peak_bytes",
           "our_overhead", "total_forward_cost", "our_seconds", "published_seconds", "published_budget_bytes",
           "model_peak_bytes", "model_overhead"]


def graph_file(name):
    return DATA / "computational_graphs" / f"cg_{name}.txt"


def published_runs():
    """(graph, algorithm, mode): its feasible rows."""
    groups = {}
    with open(DATA / "lower_sets_reference.csv") as file:
        for row in csv.DictReader(file):
            if row["feasible"] == "1":
                groups.setdefault((row["graph"], row["algorithm"], row["mode"]), []).append(row)
    return groups


def ours_within(path, planner, mode, peaks, arguments):
    """peak: our plan within it, found with the same preference."""
    prefer = ["--prefer", mode] if planner.startswith("lower_sets") and mode != "-" else []
    listed = sorted(set(peaks))
    points, refusal = run("sweep", path, "--planners", planner, "--activation-budgets", ",".join(map(str, listed)),
                          "--time-limit", arguments.time_limit, *prefer)
    if refusal is not None:
        print(f"{planner} is left out for {path.name}: {refusal}\n")
    return dict(zip(listed, points or []))


def in_their_model(path, planner, row, arguments):
    """(peak, overhead) of a chain chosen in the published model for its own budget, and run by us.

    Equal to the published figures where the published code's order of sets allows it (docs/explanation/published.md).
    """
    if not row["budget_bytes"] or not planner.startswith("lower_sets"):
        return None, None
    answer, _ = run("plan", path, "--planner", planner, "--model", "published", "--prefer", row["mode"],
                    "--activation-budget", row["budget_bytes"], "--time-limit", arguments.time_limit)
    # A plan that needs more than the budget is unknown to regen, but it is there to be looked at.
    if answer is None or answer["cost"] is None:
        return None, None
    return answer["activation_peak_bytes"], round(answer["cost"] - answer["base_cost"])


def compare(key, rows, planner, arguments):
    name, algorithm, mode = key
    rows = rows[:: max(1, len(rows) // arguments.rows)] if arguments.rows else rows
    answers = ours_within(graph_file(name), planner, mode, [int(r["peak_bytes"]) for r in rows], arguments)
    result = []
    for row in rows:
        ours = answers.get(int(row["peak_bytes"]))
        if ours is None:
            continue
        total = int(row["total_forward_cost"])
        good = common.found(ours)
        result.append([name, algorithm, mode, int(row["peak_bytes"]), int(row["overhead"]), ours["status"],
                       ours["activation_peak_bytes"] if good else None,
                       round(ours["cost"]) - total if good else None, total,
                       ours["seconds"], row["seconds"], row["budget_bytes"],
                       *in_their_model(graph_file(name), planner, row, arguments)])
    return result


def mean_ratio(rows, column):
    """Geometric mean of forward pass plus overhead, that in `column` over the published one."""
    logarithms = [math.log((r[8] + r[column]) / (r[8] + r[4])) for r in rows if r[column] is not None]
    return f"{math.exp(sum(logarithms) / len(logarithms)):.3f}" if logarithms else ""


def summary(rows):
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[:3]), []).append(row)
    table = []
    for key, group in groups.items():
        both = [r for r in group if r[7] is not None]
        signs = [(r[7] > r[4]) - (r[7] < r[4]) for r in both]
        table.append([*key, len(group), len(both), signs.count(-1), signs.count(0), signs.count(1),
                      mean_ratio(group, 7), mean_ratio(group, 13), f"{min(r[3] for r in group) / 1e6:,.1f}",
                      f"{min(r[6] for r in both) / 1e6:,.1f}" if both else ""])
    return table


def at_batch(name, file_batch, batch, folder):
    """The dumped graph with another batch: all but parameters and their gradients grow with it."""
    document = common.graph_document(graph_file(name))
    for tensor in document["tensors"]:
        if not tensor["name"].startswith("/"):
            tensor["bytes"] = tensor["bytes"] * batch // file_batch
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"cg_{name}_batch{batch}.json"
    path.write_text(json.dumps(document))
    return path


def poster_row(network, planners, arguments):
    name, file_batch, batch, vanilla, published = POSTER[network]
    path = at_batch(name, file_batch, batch, arguments.out)
    keep_all, _ = run("plan", path, "--planner", "keep_all")
    row = [network, batch, f"{keep_all['peak_bytes'] / 1e9:.1f}", vanilla]
    for planner, theirs in zip(POSTER_PLANNERS, published):
        # Without a budget a planner looks for the least memory.
        answer = None
        if planner in planners:
            prefer = ["--prefer", "memory"] if planner.startswith("lower_sets") else []
            answer, _ = run("plan", path, "--planner", planner, "--time-limit", arguments.time_limit, *prefer)
        peak = answer["peak_bytes"] if answer and common.found(answer) else None
        row += [f"{peak / 1e9:.1f} ({peak / keep_all['peak_bytes'] - 1:+.0%})" if peak else "", theirs]
    return row


def draw(rows, out, plt):
    names = list(dict.fromkeys(row[0] for row in rows))
    figure, axes = plt.subplots(1, len(names), figsize=(4.6 * len(names), 4), squeeze=False)
    for axis, name in zip(axes[0], names):
        for index, key in enumerate(dict.fromkeys(tuple(r[1:3]) for r in rows)):
            mine = [r for r in rows if r[0] == name and tuple(r[1:3]) == key]
            colour = common.look(index)["color"]
            label = " ".join(key).removesuffix(" -")
            axis.plot([r[3] / 1e9 for r in mine], [r[4] / r[8] for r in mine], "x", color=colour, label=f"{label}, published")
            good = [r for r in mine if r[7] is not None]
            axis.plot([r[6] / 1e9 for r in good], [r[7] / r[8] for r in good], "o", color=colour, markersize=4,
                      fillstyle="none", label=f"{label}, ours")
        axis.set(title=name, xlabel="peak of activations and gradients [GB]", ylabel="overhead / forward pass")
        axis.grid(color=style.GRID)
    axes[0][-1].legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1))
    common.save(figure, out, "lower_sets.png")


def main():
    parser = common.parser(__doc__.splitlines()[0], 120)
    parser.add_argument("--rows", type=int, help="at most about this many published rows for each algorithm and mode")
    parser.add_argument("--networks", nargs="*", choices=list(POSTER), default=list(POSTER), metavar="NAME", help="of the poster's table")
    arguments = parser.parse_args()
    if not (DATA / "lower_sets_reference.csv").exists() or not graph_file("vgg19").exists():
        print(f"The reference data is absent ({DATA}; REGEN_REFERENCE_DATA names another folder): nothing to compare with.")
        return
    planners = common.available(list(PLANNERS.values()))
    rows = []
    for key, group in published_runs().items():
        if PLANNERS[key[1]] in planners:
            rows += compare(key, group, PLANNERS[key[1]], arguments)
    common.print_table("Within the peak of each published run",
                       ["graph", "algorithm", "mode", "runs", "ours found", "cheaper", "equal", "more expensive",
                        "cost ours / published", "the same, planned in the published model", "lowest published peak [MB]", "our lowest peak [MB]"],
                       summary(rows))
    common.write_csv(arguments.out, "lower_sets.csv", COLUMNS, rows)
    if rows:
        draw(rows, arguments.out, style.prepare())
    networks = [n for n in arguments.networks if graph_file(POSTER[n][0]).exists()]
    table = [poster_row(network, planners, arguments) for network in networks]
    head = ["network", "batch", "vanilla, ours [GB]", "published"]
    for planner in POSTER_PLANNERS:
        head += [f"{planner}, ours", "published"]
    common.print_table("Lowest peak at the paper's batches (published: measured on a GPU, with workspaces)", head, table)
    common.write_csv(arguments.out, "lower_sets_poster.csv", head, table)


if __name__ == "__main__":
    main()
