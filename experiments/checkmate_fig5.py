"""Checkmate, Figure 5: the largest batch of six networks in 16e9 bytes, at most one extra forward pass."""

import common
from common import regen, run, style

NETWORKS = ["VGG19", "vgg_unet", "fcn_8", "segnet", "ResNet50", "MobileNet"]
BASELINES = ["keep_all", "keep_all_ap", "chen_sqrt", "chen_sqrt_noap", "chen_greedy", "chen_greedy_noap",
             "griewank", "last_node"]
EXACT = ["checkmate_lp", "checkmate"]
DRAWN = ["keep_all", "chen_sqrt", "chen_greedy", "griewank", *EXACT]
# Documented by the authors for VGG19: the artifact's README, and the paper's chart (its baselines
# were others: an extrapolation, and a narrower search).
ARTIFACT = {"keep_all": 167, "keep_all_ap": 167, "chen_sqrt": 197, "chen_sqrt_noap": 197, "chen_greedy": 266,
            "chen_greedy_noap": 266, "checkmate": 289}
CHART = {"keep_all": 191, "chen_sqrt": 223, "chen_greedy": 231, "checkmate": 289}


def batches(network, planner, arguments, accounting):
    """The answer for one planner; None where it refuses the graph."""
    answer, refusal = run("max-batch", f"zoo:{network}", "--memory", arguments.memory, "--accounting", accounting,
                          "--planners", planner, "--time-limit", arguments.time_limit)
    if refusal is not None:
        print(f"{planner} is left out for {network}: {refusal}\n")
        return None
    return (answer["results"] + answer["excluded"])[0]


def ceiling(network, memory):
    """No plan trains more: the bytes of one sample that some op needs at once, whatever the plan.

    Sizes are linear in the batch, so the difference of two batches is that of one sample.
    """
    one, two = (regen("plan", f"zoo:{network}@{b}", "--planner", "keep_all") for b in (1, 2))
    sample = two["structural_bound_bytes"] - one["structural_bound_bytes"]
    return int((memory - one["structural_bound_bytes"]) // sample) + 1


def measure(network, planners, arguments):
    """(planner, accounting, answer) for each pair that has one."""
    rows = []
    for planner in planners:
        # The exact ones have one accounting: every byte once.
        for accounting in ["plain"] if planner in EXACT else ["checkmate", "plain"]:
            answer = batches(network, planner, arguments, accounting)
            if answer is not None:
                rows.append((planner, accounting, answer))
    return rows


def print_network(network, limit, measured):
    by_planner = {}
    for planner, accounting, answer in measured:
        by_planner.setdefault(planner, {})[accounting] = answer
    rows = []
    for planner, answers in by_planner.items():
        artifact, plain = (answers.get(a, {}) for a in ("checkmate", "plain"))
        row = [planner, artifact.get("max_batch", "none" if artifact else ""), plain.get("max_batch", "none"),
               plain.get("upper_bound", ""), plain.get("limited_by", "")]
        if network == "VGG19":
            row += [ARTIFACT.get(planner, ""), CHART.get(planner, "")]
        rows.append(row)
    head = ["planner", "as the artifact counts", "every byte once", "proven: at most", "limited by"]
    head += ["published: artifact", "published: chart"] if network == "VGG19" else []
    common.print_table(f"{network}: no plan trains more than {limit:,}", head, rows)


def draw(arguments, results, limits, plt):
    figure, axes = plt.subplots(figsize=(2.1 * len(results) + 3, 4.4))
    series = list(dict.fromkeys((p, a) for rows in results.values() for p, a, _ in rows if p in DRAWN))
    width = 0.85 / max(1, len(series))
    for index, (planner, accounting) in enumerate(series):
        values = [next((r.get("max_batch", 0) for p, a, r in rows if (p, a) == (planner, accounting)), 0) / limits[n]
                  for n, rows in results.items()]
        axes.bar([i + (index - len(series) / 2) * width for i in range(len(results))], values, width,
                 color=common.look(DRAWN.index(planner), planner)["color"], align="edge",
                 alpha=0.45 if accounting == "checkmate" else 1,
                 label=planner if accounting == "plain" else f"{planner}, artifact")
    axes.axhline(1, color=style.QUIET, linestyle="--", linewidth=1.1, label="no plan trains more")
    axes.set_xticks(range(len(results)), [f"{n}\n({limits[n]:,})" for n in results])
    axes.set(ylabel="largest batch / what no plan exceeds", title=f"Largest batch in {arguments.memory:,.0f} bytes")
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    common.save(figure, arguments.out, "checkmate_fig5.png")


def main():
    parser = common.parser(__doc__, 60)
    parser.add_argument("--memory", type=float, default=16e9, help="bytes (default 16e9)")
    parser.add_argument("--networks", nargs="+", default=NETWORKS, metavar="NAME")
    parser.add_argument("--planners", nargs="+", default=BASELINES + EXACT, metavar="NAME")
    arguments = parser.parse_args()
    planners = common.available(arguments.planners)
    results, limits = {}, {}
    for network in arguments.networks:
        limits[network] = ceiling(network, arguments.memory)
        results[network] = measure(network, planners, arguments)
        print_network(network, limits[network], results[network])
    print("Published values are documented for VGG19 only. An answer equal to what is proven is the largest batch that any plan trains.\n")
    rows = [[n, p, a, r.get("max_batch", 0), r.get("upper_bound"), limits[n], r.get("peak_bytes"), r.get("overhead"), r["limited_by"]]
            for n, measured in results.items() for p, a, r in measured]
    common.write_csv(arguments.out, "checkmate_fig5.csv",
                     ["network", "planner", "accounting", "max_batch", "upper_bound", "ceiling", "peak_bytes", "overhead", "limited_by"], rows)
    draw(arguments, results, limits, style.prepare())


if __name__ == "__main__":
    main()
