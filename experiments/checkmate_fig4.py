"""Checkmate, Figure 4: cost against memory for VGG16, MobileNet and U-Net on a V100.

The authors' measured costs were never published; the V100's roofline takes their place, so the
shape of the curves is comparable and their exact values are not.
"""

import math

import common
from common import regen, run, style
from regen_plot.sweep import frontier

NETWORKS = {  # name: (batch, exact points, x limits in GB)
    "VGG16": (256, 64, (13, 22)),
    "MobileNet": (512, 32, (4, 48)),
    "vgg_unet": (32, 32, (4, 32)),
}
DEVICE, PLATFORM_GB = "v100-16", 16
BASELINES = ["keep_all", "keep_all_ap", "last_node", "chen_sqrt", "chen_sqrt_noap", "chen_greedy",
             "chen_greedy_noap", "griewank"]
OTHERS = ["chen_cuts", "lower_sets_approx", "lower_sets", "chain"]  # not of the paper, but of this project
EXACT = ["checkmate_lp", "checkmate"]
COLUMNS = ["network", "planner", "set", "budget_bytes", "status", "cost", "lower_bound", "gap",
           "peak_bytes", "activation_peak_bytes", "seconds"]


def sweep(graph, planner, *options):
    """The points of one planner; a planner that cannot take this graph is left out with a word."""
    points, refusal = run("sweep", graph, "--device", DEVICE, "--planners", planner, *options)
    if refusal is not None:
        print(f"{planner} is left out: {refusal}\n")
    return points or []


def least_degree(graph):
    """The lowest published budget: the largest forward op, its output and its inputs.

    Backward ops need about twice that, so the lower half of the points is infeasible; regen
    proves it at once.
    """
    document = common.graph_document(graph)
    tensors = document["tensors"]
    free = {i for i, t in enumerate(tensors) if t.get("kind", "activation") in ("activation", "gradient", "output")}
    return max(sum(tensors[t]["bytes"] for t in {*op.get("inputs", []), *op["outputs"]} & free)
               for op in document["ops"] if op.get("phase", "forward") == "forward")


def exact_budgets(graph, count, keep_all, points):
    """Activation bytes of the global and of the local points."""
    ends = [p["activation_peak_bytes"] for p in points
            if p["planner"].startswith("chen_greedy") and p["cost"] <= keep_all["cost"]]
    low, high = least_degree(graph), min(ends, default=keep_all["activation_peak_bytes"])
    spread = [1000 * math.ceil((low + (high - low) * k / count) / 1000) for k in range(count)]
    smallest = min(p["activation_peak_bytes"] for p in points)
    local = [int(smallest * (0.5 + k / max(1, count - 1))) for k in range(count)]
    return {"global": [*spread, keep_all["peak_bytes"], keep_all["activation_peak_bytes"]], "local": local}


def measure(network, arguments, baselines, exact):
    batch, count, _ = NETWORKS[network]
    graph = f"zoo:{network}@{batch}"
    keep_all = regen("plan", graph, "--device", DEVICE, "--planner", "keep_all", "--accounting", arguments.accounting)
    # Some published strategies keep more than everything: dead checkpoints and whole segments.
    budgets = f"{keep_all['structural_bound_bytes']}:{2 * keep_all['peak_bytes']}:{arguments.baseline_points}"
    points = []
    for planner in baselines:
        # The published strategies in the published accounting, the others as they are.
        rules = ["--accounting", arguments.accounting] if planner in BASELINES else []
        tries = ["--greedy-points", 300] if planner.startswith("chen_greedy") else []
        points += [{**p, "set": "baseline"} for p in sweep(
            graph, planner, "--budgets", budgets, "--time-limit", arguments.time_limit, *tries, *rules)]
    known = [p for p in points if common.found(p)]
    for name, budgets in exact_budgets(graph, arguments.points or count, keep_all, known).items():
        listed = ",".join(str(b) for b in budgets)
        for planner in exact:
            points += [{**p, "set": name} for p in sweep(graph, planner, "--activation-budgets", listed,
                                                         "--time-limit", arguments.time_limit)]
    return keep_all, points


def curves(points, base):
    """planner: corners of the running minimum of cost over all ops once, against the peak."""
    planners = dict.fromkeys(p["planner"] for p in points)
    return {planner: frontier([[p["peak_bytes"], p["cost"] / base] for p in points
                               if p["planner"] == planner and common.found(p)]) for planner in planners}


def slowdowns(lines):
    """Per planner, at each step of the exact one: its cheapest plan within that memory, over the exact cost."""
    rows = []
    for planner, corners in lines.items():
        ratios = []
        for memory, cost in lines.get("checkmate", []):
            within = [c for m, c in corners if m <= memory]
            ratios += [min(within) / cost] if within else []
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            rows.append([planner, len(ratios), f"{mean:.4f}", f"{max(ratios):.4f}"])
    return rows


def draw(axes, network, lines):
    left, right = NETWORKS[network][2]
    for index, (planner, corners) in enumerate(lines.items()):
        if planner in ("last_node", "keep_all") or not corners:
            continue
        xs = [memory / 1e9 for memory, _ in corners] + [max(right, corners[-1][0] / 1e9)]
        ys = [cost for _, cost in corners] + [corners[-1][1]]
        width = 2.4 if planner == "checkmate" else 1.4
        axes.step(xs, ys, where="post", linewidth=width, label=planner, **common.look(index, planner))
    axes.axhline(1, color=style.QUIET, linestyle="--", linewidth=1.1, label="ideal: keep everything")
    axes.axvline(PLATFORM_GB, color=style.WARNING, linestyle=":", linewidth=1.4, label="V100, 16 GB")
    axes.set(xlim=(left, right), ylim=(0.95, 1.5), xlabel="peak memory [GB]", ylabel="cost / all ops once")
    axes.set_title(f"{network}, batch {NETWORKS[network][0]}")
    axes.grid(color=style.GRID)


def summary(points, base):
    rows = []
    for planner in dict.fromkeys(p["planner"] for p in points):
        mine = [p for p in points if p["planner"] == planner]
        good = [p for p in mine if common.found(p)]
        least = min(good, key=lambda p: (p["peak_bytes"], p["cost"]), default=None)
        rows.append([planner, len(mine), len(good), sum(p["status"] == "optimal" for p in mine),
                     f"{least['peak_bytes'] / 1e9:.2f} GB at {least['cost'] / base:.3f}" if least else "none",
                     f"{sum(p['seconds'] for p in mine):.1f}"])
    return rows


def main():
    parser = common.parser(__doc__.splitlines()[0], 60)
    parser.add_argument("--points", type=int, help="exact points in each of the two sets (default as published: 64 for VGG16, else 32)")
    parser.add_argument("--baseline-points", type=int, default=256, metavar="N", help="budgets for each other strategy (default 256)")
    parser.add_argument("--accounting", choices=["checkmate", "plain"], default="checkmate", help="of the published strategies (default checkmate)")
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS), metavar="NAME")
    arguments = parser.parse_args()
    have = common.available(BASELINES + OTHERS + EXACT)
    baselines, exact = [p for p in have if p not in EXACT], [p for p in have if p in EXACT]
    plt = style.prepare()
    figure, axes = plt.subplots(1, len(arguments.networks), figsize=(5.6 * len(arguments.networks), 4.6), squeeze=False)
    rows = []
    for axis, network in zip(axes[0], arguments.networks):
        keep_all, points = measure(network, arguments, baselines, exact)
        base = keep_all["base_cost"]
        rows += [[network, *(p.get(c) for c in COLUMNS[1:])] for p in points]
        lines = curves(points, base)
        title = f"{network}, batch {NETWORKS[network][0]}"
        common.print_table(f"{title}: points", ["planner", "budgets", "with a plan", "optimal", "least memory, at cost ratio", "seconds"],
                           summary(points, base))
        if lines.get("checkmate"):
            exact_points = [p for p in points if p["planner"] == "checkmate" and common.found(p)]
            proven = sum(p["status"] == "optimal" for p in exact_points)
            common.print_table(f"{title}: cost over checkmate's ({proven} of its {len(exact_points)} plans are proven optimal)",
                               ["planner", "steps compared", "geometric mean", "maximum"], slowdowns(lines))
        draw(axis, network, lines)
    axes[0][-1].legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    common.write_csv(arguments.out, "checkmate_fig4.csv", COLUMNS, rows)
    common.save(figure, arguments.out, "checkmate_fig4.png")


if __name__ == "__main__":
    main()
