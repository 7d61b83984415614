"""Checkmate: how far the relaxation is from the integer program, and what imposing the schedule gains."""

import common
from common import run, style

SCHEDULES = {"frontier": "each op first in its own stage", "cover_all": "every op once, anywhere",
             "cover_last": "only the last op"}
PUBLISHED = {"frontier": ("0.23 s", "1.18"), "cover_all": ("", ""), "cover_last": ("9.4 h", "21.56")}
HEAD = ["budget", "ILP cost", "LP cost", "rounded cost", "ILP / LP", "rounded / ILP", "rounded / LP",
        "LP time / ILP time", "rounding time / ILP time", "ILP"]


def solve(graph, planner, budget, arguments, *options):
    """One answer; an empty one, with a word, where the planner refuses."""
    answer, refusal = run("plan", graph, "--planner", planner, "--activation-budget", budget,
                          "--time-limit", arguments.time_limit, *options)
    if refusal is not None:
        print(f"{planner} is left out at budget {budget}: {refusal}\n")
        return {"status": "unknown", "cost": None, "lower_bound": None, "seconds": None}
    return answer


def relaxation(answer):
    """The relaxation's value. The bound that regen reports is never below one run of every op, which the
    relaxations of the other schedules are; these say in their note what they were."""
    if answer["status"] == "infeasible" or answer["lower_bound"] is None:
        return None
    _before, by_itself, value = answer.get("note", "").partition("the relaxation by itself: ")
    value = round(float(value) if by_itself else answer["lower_bound"], 6)
    return int(value) if value == int(value) else value


def chain_rows(arguments, budgets):
    graph = f"zoo:chain:{arguments.length}"
    rows = []
    for budget in budgets:
        whole = solve(graph, "checkmate", budget, arguments)
        least = solve(graph, "lp_bound", budget, arguments)
        rounded = solve(graph, "checkmate_lp", budget, arguments, "--rounding", "sweep")
        bound = relaxation(least)
        rows.append([budget, whole["cost"], bound, rounded["cost"], common.ratio(whole["cost"], bound),
                     common.ratio(rounded["cost"], whole["cost"]), common.ratio(rounded["cost"], bound),
                     common.ratio(least["seconds"], whole["seconds"], 4),
                     common.ratio(rounded["seconds"], whole["seconds"], 4), whole["status"]])
    return rows


def ablation_rows(arguments):
    """The 8-layer chain (17 ops) in 4 units of memory under each family of schedules.

    A schedule of the first family belongs to the others too, so the best cost known is an upper end for
    all of them.
    """
    rows = []
    known = None
    for schedule, meaning in SCHEDULES.items():
        whole = solve("zoo:chain:8", "checkmate", 4, arguments, "--schedule", schedule)
        least = solve("zoo:chain:8", "lp_bound", 4, arguments, "--schedule", schedule)
        known = min((cost for cost in (known, whole["cost"]) if cost is not None), default=None)
        at_most = "" if whole["status"] == "optimal" else "at most "
        gap = common.ratio(known, relaxation(least))
        rows.append([schedule, meaning, whole["status"], whole["cost"], relaxation(least),
                     f"{whole['seconds']:.3f} s" if whole["seconds"] is not None else "", PUBLISHED[schedule][0],
                     at_most + gap if gap else "", PUBLISHED[schedule][1]])
    return rows


def draw(arguments, rows, plt):
    figure, (gaps, times) = plt.subplots(1, 2, figsize=(11, 4.2))
    for axes, columns in ((gaps, (4, 5, 6)), (times, (7, 8))):
        for index, column in enumerate(columns):
            known = [(row[0], float(row[column])) for row in rows if row[column]]
            axes.plot([x for x, _ in known], [y for _, y in known], marker="o", markersize=4, label=HEAD[column], **common.look(index))
        axes.axhline(1, color=style.QUIET, linestyle="--", linewidth=1)
        axes.set_xlabel("budget [unit tensors]")
        axes.grid(color=style.GRID)
        axes.legend(frameon=False, fontsize=9)
    gaps.set_title(f"Unit chain of {arguments.length} layers: cost ratios")
    times.set_title("Time ratios")
    times.set_yscale("log")
    common.save(figure, arguments.out, "integrality_gap.png")


def main():
    parser = common.parser(__doc__, 10)
    parser.add_argument("--length", type=int, default=16, metavar="N", help="layers of the chain (default 16)")
    parser.add_argument("--budgets", type=int, nargs="+", metavar="B", help="default: N + 2 down to 4")
    arguments = parser.parse_args()
    wanted = ["checkmate", "lp_bound", "checkmate_lp"]
    if common.available(wanted) != wanted:
        print("This experiment compares exactly these planners: nothing to do.")
        return
    rows = chain_rows(arguments, arguments.budgets or range(arguments.length + 2, 3, -1))
    common.print_table(f"Unit chain of {arguments.length} layers", HEAD, rows)
    ablation = ablation_rows(arguments)
    head = ["schedule", "must run", "status", "ILP cost", "LP cost", "ours", "published", "ILP / LP, ours", "published"]
    common.print_table("Imposed schedules: chain of 8 layers, 17 ops, budget 4", head, ablation)
    common.write_csv(arguments.out, "integrality_gap.csv", HEAD, rows)
    common.write_csv(arguments.out, "imposed_schedules.csv", head, ablation)
    draw(arguments, rows, style.prepare())


if __name__ == "__main__":
    main()
