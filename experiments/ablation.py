"""What each row, bound and part of `auto` is worth: networks x budgets, planned whole and with one name switched off (--ablate).

For each name: in how many cases it made the first plan, the best plan or the bound of the whole search (--explain-search), and
how the search without it compares: worse, equal, better, by how much at most, plans missed, and the work to the first plan. A
row that never makes a final plan, and without which no case is worse, should leave the table (regen/search/portfolio/table.cpp).

Work is counted (--work), so that a row says the same on every machine. Networks for development and for the record are apart:
split() says which; --set names the one to run. Rows and parts that are for tight budgets (--shares 0 0.03) or for graphs whose ops have
several variants (--random FIRST:COUNT) show what they are worth only there. Rows go into the CSV as they finish; --resume goes on with the missing ones.
"""

import csv
import datetime
import subprocess
import tempfile
from collections import Counter, defaultdict

import common
from exact_gaps import zoo_networks

SAME = 1e-9  # costs that differ by less are the same up to rounding
ALLOWED = 0.0005  # a case is worse only beyond this fraction
COLUMNS = ["network", "nodes", "budget_bytes", "budget_share", "without", "status", "cost", "bound", "first_plan", "best_plan",
           "bound_by", "first_work", "commit", "machine", "date", "command"]


def split(networks):
    """Every other network of the zoo, smallest first, is for development; the rest is for the record."""
    names = list(networks)
    return {"development": names[0::2], "record": names[1::2], "all": names}


def names_to_ablate():
    """As the program itself lists them, without rounds (several rows at once) and rows (their planner stands for them)."""
    _, refusal = common.run("plan", "zoo:chain:1", "--budget", "1GiB", "--ablate", "?")
    names = refusal.split("expected one of ")[1].split(", ")
    rounds = {"quick", "rescue", "exact", "resume", "opinion", "repeat"}
    return [name for name in names if "@" not in name and name not in rounds]


def solve(case, graph, arguments):
    without = ["--ablate", case["without"]] if case["without"] else []
    device = ["--device", arguments.device] if arguments.device else []
    answer, refusal = common.run("plan", graph, "--budget", case["budget_bytes"], "--work-limit", arguments.work,
                                 "--explain-search", *device, *without)
    if answer is None:
        return case | {"status": refusal[:80]}
    trace = answer.get("search", {})
    first = next((event for event in trace.get("events", []) if event["cost"] is not None), None)
    work = sum(event["work"] for event in trace["events"][: trace["events"].index(first) + 1]) if first else None
    return case | {"status": answer["status"], "cost": answer["cost"] if common.found(answer) else None, "bound": answer["lower_bound"],
                   "first_plan": trace.get("first_plan"), "best_plan": trace.get("best_plan"), "bound_by": trace.get("bound"),
                   "first_work": work}


def graphs_of(arguments, folder):
    """name: (what the program plans, ops)."""
    if arguments.random:
        return common.random_graphs(arguments.random, folder)
    zoo = zoo_networks(arguments.most_nodes)
    return {name: (f"zoo:{name}", zoo.get(name)) for name in arguments.networks or split(zoo)[arguments.set]}


def budgets_of(network, graph, nodes, arguments):
    device = ["--device", arguments.device] if arguments.device else []
    whole = common.regen("plan", graph, "--planner", "keep_all", *device)
    low, width = whole["structural_bound_bytes"], max(0, whole["peak_bytes"] - whole["structural_bound_bytes"])
    for share in arguments.shares or [(k + 1) / (arguments.budgets + 1) for k in range(arguments.budgets)]:
        yield {"network": network, "nodes": nodes, "budget_bytes": low + int(width * share), "budget_share": f"{share:.3f}"}


def key(case):
    return case["network"], int(case["budget_bytes"]), case["without"] or ""


def compare(name, rows, whole):
    """The line of one name, and the worst case."""
    count, worst, missed = Counter(), 0.0, 0
    for row in rows:
        base = whole.get((row["network"], int(row["budget_bytes"])))
        if not base or not base["cost"]:
            continue
        if not row["cost"]:
            missed += 1
            continue
        ratio = float(row["cost"]) / float(base["cost"])
        count["worse" if ratio > 1 + SAME else "better" if ratio < 1 - SAME else "equal"] += 1
        count["clearly worse"] += ratio > 1 + ALLOWED
        worst = max(worst, ratio - 1)
    return [name, count["better"], count["equal"], count["worse"], count["clearly worse"], missed, f"{100 * worst:.4f}"]


def report(rows):
    by_name = defaultdict(list)
    for row in rows:
        by_name[row["without"] or ""].append(row)
    whole = {(row["network"], int(row["budget_bytes"])): row for row in by_name.pop("", [])}
    made = {column: Counter(row[column].split("@")[0] for row in whole.values() if row[column])
            for column in ("first_plan", "best_plan", "bound_by")}
    names = sorted(set(by_name) | set().union(*made.values()) - {"none"})
    table = [[*compare(name, by_name.get(name, []), whole), made["first_plan"][name], made["best_plan"][name], made["bound_by"][name]]
             for name in names]
    common.print_table(f"auto with one name switched off, {len(whole)} cases",
                       ["without", "better", "equal", "worse", "over 0.05 %", "no plan", "worst, %", "first plans", "best plans", "bounds"], table)


def provenance(arguments):
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=common.ROOT, capture_output=True, text=True, check=False)
    return {"commit": commit.stdout.strip() or "unknown", "machine": arguments.machine, "date": datetime.date.today().isoformat(),
            "command": command_of(arguments)}


def command_of(arguments):
    chosen = f"--set {arguments.set} --most-nodes {arguments.most_nodes}"
    if arguments.random or arguments.networks:
        chosen = f"--random {arguments.random}" if arguments.random else f"--networks {' '.join(arguments.networks)}"
    options = [chosen, f"--work {arguments.work}"]
    options.append(f"--shares {' '.join(map(str, arguments.shares))}" if arguments.shares else f"--budgets {arguments.budgets}")
    if arguments.device:
        options.append(f"--device {arguments.device}")
    return "experiments/ablation.py " + " ".join(options)


def main():
    parser = common.parser(__doc__, None)
    parser.add_argument("--set", choices=["development", "record", "all"], default="development", help="of networks (development)")
    parser.add_argument("--networks", nargs="+", metavar="NAME", help="these instead")
    parser.add_argument("--random", metavar="FIRST:COUNT", help="random graphs with these seeds instead; below 1,000,000 for development")
    parser.add_argument("--most-nodes", type=int, default=200, metavar="N", help="of the networks (200)")
    parser.add_argument("--names", nargs="*", metavar="NAME", help="to switch off (default: every planner and part); none: only the whole search")
    parser.add_argument("--budgets", type=int, default=4, metavar="N", help="for each network (4)")
    parser.add_argument("--shares", nargs="+", type=float, metavar="PART", help="budgets at these parts of the way from the least to everything kept instead")
    parser.add_argument("--work", type=int, default=1_000_000, metavar="N", help="counted, of each search (1,000,000)")
    parser.add_argument("--device", help="whose roofline and link count (default: flop, and nothing moves)")
    parser.add_argument("--machine", default="unknown", help="for the column of the CSV")
    parser.add_argument("--resume", action="store_true", help="go on with the CSV of a run that was ended")
    common.add_jobs(parser, 1)
    arguments = parser.parse_args()
    names = names_to_ablate() if arguments.names is None else arguments.names
    with tempfile.TemporaryDirectory() as folder:
        run_all(arguments, graphs_of(arguments, folder), names)


def run_all(arguments, graphs, names):
    budgets = [case for name, (graph, nodes) in graphs.items() for case in budgets_of(name, graph, nodes, arguments)]
    cases = [case | {"without": name} for name in ["", *names] for case in budgets]
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "ablation.csv"
    done = []
    if arguments.resume and path.exists():
        with open(path, newline="") as file:
            done = [row for row in csv.DictReader(file) if row["command"]]
    known = {key(row) for row in done}
    origin = provenance(arguments)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(done)
        missing = [case for case in cases if key(case) not in known]
        for _, row in common.in_parallel(lambda case: solve(case, graphs[case["network"]][0], arguments), missing, arguments):
            writer.writerow(row | origin)
            file.flush()
            done.append(row)
    report(done)


if __name__ == "__main__":
    main()
