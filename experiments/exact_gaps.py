"""The exact planner network by network: which budgets are proven, what gap is left, how long it takes.

Budgets lie evenly from what every plan needs to what keeping everything takes. Each is a process
of its own on one core. Rows go into the CSV as they finish; Ctrl-C or SIGTERM ends the solves under
way with what they know and prints the tables of that.
"""

import concurrent.futures
import csv
import os
import pathlib
import signal
import subprocess

import common
from common import regen

# (budgets, seconds for each)
NETWORKS = {"VGG16": (32, 120), "VGG19": (32, 120), "vgg_unet": (8, 120), "segnet": (8, 120), "fcn_8": (8, 120),
            "MobileNet": (8, 120), "ResNet50": (8, 300)}
OTHERS = (8, 120)
COLUMNS = ["network", "nodes", "budget_index", "budget_bytes", "budget_share", "time_limit", "status", "proven", "cost",
           "base_cost", "overhead", "lower_bound", "gap", "seconds", "peak_bytes", "note"]


def zoo_networks(most_nodes):
    """name: nodes, smallest first; a network with several names only once."""
    entries = [entry for entry in regen("zoo") if "nodes" in entry]
    known = {}
    for entry in sorted(entries, key=lambda e: e["nodes"]):
        if most_nodes is None or entry["nodes"] <= most_nodes:
            known.setdefault(tuple(v for k, v in entry.items() if k != "name"), (entry["name"], entry["nodes"]))
    return dict(known.values())


def tasks_of(network, nodes, arguments):
    """One dictionary for each budget: the columns that are known before the solve."""
    count, seconds = NETWORKS.get(network, OTHERS)
    count, seconds = arguments.budgets or count, seconds if arguments.time_limit is None else arguments.time_limit
    whole = regen("plan", f"zoo:{network}", "--planner", "keep_all")
    low = whole["structural_bound_bytes"]
    width = max(0, whole["peak_bytes"] - low)
    parts = max(1, count - 1)
    return [{"network": network, "nodes": nodes, "budget_index": k, "budget_bytes": low + width * k // parts,
             "budget_share": round(k / parts, 4), "time_limit": seconds} for k in range(count)]


class Solves:
    """Runs regen once for each task and can end those under way."""

    def __init__(self):
        self.children = set()
        self.ended = False

    def solve(self, task):
        if self.ended:
            return None
        command = [common.REGEN, "plan", f"zoo:{task['network']}", "--planner", "checkmate", "--budget", task["budget_bytes"],
                   "--time-limit", task["time_limit"], "--json"]
        # A session of its own: Ctrl-C comes through end(), once.
        child = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 start_new_session=True)
        self.children.add(child)
        output, errors = child.communicate()
        self.children.discard(child)
        answer, refusal = common.answer_of(child.returncode, output, errors)
        return row_of(task, answer or {"status": "failed", "note": refusal})

    def end(self):
        """regen answers the first Ctrl-C with its best plan so far."""
        self.ended = True
        for child in list(self.children):
            child.send_signal(signal.SIGINT)


def row_of(task, answer):
    kept = {name: answer.get(name) for name in COLUMNS if name in answer}
    return {**task, **kept, "proven": int(answer["status"] in ("optimal", "infeasible"))}


def measure(tasks, arguments):
    """The rows in the order of the tasks; those that were not reached are missing."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "exact_gaps.csv"
    rows = {}
    solves = Solves()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with open(path, "w", newline="") as file, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        futures = {pool.submit(solves.solve, task): index for index, task in enumerate(tasks)}
        waiting = set(futures)
        while waiting:
            try:
                done, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
            except KeyboardInterrupt:
                solves.end()
                continue
            for future in done:
                if future.result() is not None:
                    rows[futures[future]] = future.result()
                    writer.writerow(future.result())
                    file.flush()
    if len(rows) < len(tasks):
        print(f"Ended early: {len(tasks) - len(rows)} of {len(tasks)} solves were not begun.\n")
    print(f"Wrote {common.shown(path)}.\n")
    return [rows[index] for index in sorted(rows)]


def percent(value, digits):
    return f"{value:.{digits}%}" if value is not None else ""


def print_rows(rows):
    table = [[r["network"], r["nodes"], f"{r['budget_bytes']:,}", percent(r["budget_share"], 0), r["status"],
              percent(r.get("gap"), 2), f"{r.get('seconds') or 0:.2f}", percent(r.get("overhead"), 3)] for r in rows]
    common.print_table("Every budget", ["network", "nodes", "budget", "of the range", "status", "gap", "seconds", "overhead"], table)


def print_summary(rows, asked):
    table = []
    for network in dict.fromkeys(r["network"] for r in rows):
        mine = [r for r in rows if r["network"] == network]
        statuses = [r["status"] for r in mine]
        without = len([s for s in statuses if s in ("unknown", "failed")])
        table.append([network, mine[0]["nodes"], f"{sum(r['proven'] for r in mine)} of {asked[network]}",
                      statuses.count("infeasible"), without or "", percent(max(r.get("gap") or 0 for r in mine), 2),
                      f"{max(r.get('seconds') or 0 for r in mine):.2f}", percent(max(r.get("overhead") or 0 for r in mine), 2)])
    common.print_table("Summary", ["network", "nodes", "proven", "of these infeasible", "no plan, nothing proven", "largest gap",
                                   "longest seconds", "largest overhead"], table)
    print(f"Proven: {sum(r['proven'] for r in rows)} of {sum(asked.values())} budgets of {len(asked)} networks.\n")


def main():
    parser = common.parser(__doc__.splitlines()[0], None)
    parser.add_argument("--networks", nargs="+", metavar="NAME", help=f"default: {' '.join(NETWORKS)}")
    parser.add_argument("--all", action="store_true", help="every network of the zoo of at most --most-nodes nodes")
    parser.add_argument("--most-nodes", type=int, default=400, metavar="N", help="for --all (default 400)")
    parser.add_argument("--budgets", type=int, metavar="N", help="for each network (default: VGG16 and VGG19 32, others 8)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="solves at a time (default: the cores)")
    parser.add_argument("--binary", type=pathlib.Path, help="the program (default: REGEN_BIN, or build/regen)")
    arguments = parser.parse_args()
    if arguments.binary:
        common.REGEN = arguments.binary.resolve()
    nodes = zoo_networks(arguments.most_nodes if arguments.all else None)
    networks = arguments.networks or (list(nodes) if arguments.all else list(NETWORKS))
    tasks = [task for network in networks for task in tasks_of(network, nodes.get(network), arguments)]
    # Short solves first: a run that is cut has most of its rows.
    tasks.sort(key=lambda task: task["time_limit"])
    rows = measure(tasks, arguments)
    asked = {network: sum(task["network"] == network for task in tasks) for network in networks}
    print_rows(rows)
    print_summary(rows, asked)


if __name__ == "__main__":
    main()
