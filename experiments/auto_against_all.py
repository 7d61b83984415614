"""`auto` against every other planner of the registry, network by network: is it ever worse than the best of them, and does it
find a plan wherever any of them does?

Budgets lie evenly from what every plan needs to what keeping everything takes. Rows go into the CSV as they finish, so that a run can
be ended at any time, and --resume goes on with the cases that are missing; --jobs plans for several networks and budgets at a time.
With --device costs are its roofline and values may move over its link.
"""

import csv

import common
from exact_gaps import zoo_networks

SAME = 1e-9  # costs that differ by less are the same up to rounding
COLUMNS = ["network", "nodes", "budget_bytes", "budget_share", "auto_status", "auto_cost", "best_other", "best_cost", "over_percent",
           "verdict"]


def other_planners():
    """All of the registry but `auto` and the bound, which has no plan, as the program itself names them."""
    _, refusal = common.run("plan", "zoo:chain:1", "--planner", "?")
    names = refusal.split("expected one of ")[1].split(", ")
    return [name for name in names if name not in ("auto", "lp_bound")]


def solve(network, planner, budget, seconds, arguments):
    """The cost of the planner's plan within the budget, and its status; (None, reason) without one."""
    device = ["--device", arguments.device] if arguments.device else []
    answer, refusal = common.run("plan", f"zoo:{network}", "--planner", planner, "--budget", budget, "--time-limit", seconds, *device)
    if answer is None:
        return None, refusal
    return (answer["cost"] if common.found(answer) else None), answer["status"]


def compare(case, planners, arguments):
    """The row of one network at one budget."""
    network, budget = case["network"], case["budget_bytes"]
    cost, status = solve(network, "auto", budget, arguments.seconds, arguments)
    best, best_cost = None, None
    for planner in planners:
        other, _ = solve(network, planner, budget, arguments.other_seconds, arguments)
        if other is not None and (best_cost is None or other < best_cost):
            best, best_cost = planner, other
    over = 100 * (cost / best_cost - 1) if cost and best_cost else None
    if best_cost is None:
        verdict = "alone" if cost else "none"
    elif cost is None:
        verdict = "misses"
    else:
        verdict = "worse" if cost > best_cost * (1 + SAME) else "equal" if cost >= best_cost * (1 - SAME) else "better"
    return case | {"auto_status": status, "auto_cost": cost, "best_other": best, "best_cost": best_cost,
                   "over_percent": None if over is None else f"{over:.6f}", "verdict": verdict}


def cases_of(network, nodes, arguments):
    """One dictionary for each budget: the columns that are known before anything is planned."""
    device = ["--device", arguments.device] if arguments.device else []
    whole = common.regen("plan", f"zoo:{network}", "--planner", "keep_all", *device)
    low, width = whole["structural_bound_bytes"], max(0, whole["peak_bytes"] - whole["structural_bound_bytes"])
    for k in range(arguments.budgets):
        share = k / max(1, arguments.budgets - 1)
        yield {"network": network, "nodes": nodes, "budget_bytes": low + int(width * share), "budget_share": f"{share:.3f}"}


def finished(file):
    """The rows of a run that was ended; none where there was none. Half a line at the end does not count."""
    if not file.exists():
        return []
    with open(file, newline="") as text:
        return [row for row in csv.DictReader(text) if row["verdict"]]


def key(case):
    return case["network"], int(case["budget_bytes"])


def summary(network, nodes, rows):
    """The row of one network: how often it is better, equal and so on, and by how much it is over the best at most."""
    count = [sum(row["verdict"] == verdict for row in rows) for verdict in ("better", "equal", "worse", "alone", "misses", "none")]
    worst = max((float(row["over_percent"]) for row in rows if row["over_percent"]), default=None)
    return [network, nodes, *count, None if worst is None else f"{worst:+.4f}"]


def main():
    parser = common.parser(__doc__, None)
    parser.add_argument("--networks", nargs="+", metavar="NAME", help="default: all of the zoo, smallest first")
    parser.add_argument("--most-nodes", type=int, default=400, metavar="N", help="of the networks taken by default (400)")
    parser.add_argument("--budgets", type=int, default=12, metavar="N", help="for each network (12)")
    parser.add_argument("--seconds", type=float, default=10, help="for auto (10)")
    parser.add_argument("--other-seconds", type=float, default=10, metavar="SECONDS", help="for each of the others (10)")
    parser.add_argument("--device", help="whose roofline and link count (default: flop, and nothing moves)")
    parser.add_argument("--resume", action="store_true", help="go on with the CSV of a run that was ended")
    common.add_jobs(parser, 1)
    arguments = parser.parse_args()
    zoo = zoo_networks(None if arguments.networks else arguments.most_nodes)
    networks, planners = arguments.networks or list(zoo), other_planners()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "auto_against_all.csv"
    known = {key(row): row for row in finished(path)} if arguments.resume else {}
    cases = [case for network in networks for case in cases_of(network, zoo.get(network), arguments)]
    rows = {network: [known[key(case)] for case in cases if case["network"] == network and key(case) in known] for network in networks}
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(known.values())
        missing = [case for case in cases if key(case) not in known]
        for _, row in common.in_parallel(lambda case: compare(case, planners, arguments), missing, arguments):
            writer.writerow(row)
            file.flush()
            rows[row["network"]].append(row)
            if len(rows[row["network"]]) == arguments.budgets:
                print(*summary(row["network"], row["nodes"], rows[row["network"]]), flush=True)
    table = [summary(network, zoo.get(network), rows[network]) for network in networks]
    common.print_table("auto against the best of all others", ["network", "nodes", "better", "equal", "worse", "only auto has a plan",
                                                               "auto misses", "none has", "auto over the best at most, %"], table)


if __name__ == "__main__":
    main()
