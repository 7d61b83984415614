"""Two builds of regen beside each other: networks x budgets, the same planner and limit, first the one, then the other.

    python experiments/before_after.py --before /path/to/old/regen --seconds 3 --set record --budgets 12

Budgets lie evenly from what every plan needs to what keeping everything takes. For each case: status and cost of both plans and
the memory of both programs. A case is worse beyond 0.05 %, missed where only the old build has a plan. Rows go into the CSV as
they finish; --resume goes on with the missing ones.

    python experiments/before_after.py --before /path/to/old/regen --random 1000000:100 --budgets 6

compares on random graphs with these seeds (tests/support/programs/write_random_graphs), every other one over a link. Seeds from
1,000,000 are for the record; none was developed on them.

    python experiments/before_after.py --before /path/to/old/regen --first

asks for the time to a first plan instead: the shortest limit of a series within which each build has one. The trace of a search
would not do, since older builds write none.

    python experiments/before_after.py --before /path/to/old/regen --after /path/to/old/regen --after-seed 1

compares a build with itself: how far two runs of the same search differ. A limit in seconds cuts a random search; differences
between builds mean something only beyond these.
"""

import csv
import datetime
import pathlib
import subprocess
import tempfile
from collections import Counter

import common
from ablation import ALLOWED, SAME, split
from exact_gaps import zoo_networks

COLUMNS = ["network", "nodes", "budget_share", "budget_bytes", "device", "before_status", "before_cost", "before_mib", "after_status",
           "after_cost", "after_mib", "ratio", "commit", "machine", "date", "command"]
FIRST_COLUMNS = ["network", "nodes", "budget_share", "budget_bytes", "device", "before_first_s", "after_first_s", "commit", "machine", "date",
                 "command"]
LIMITS = [0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10]  # seconds in which a first plan is asked for


def run(binary, *arguments):
    """(the JSON that the program prints, its largest memory in MiB)."""
    status, output, errors, used = common.measured([binary, *arguments, "--json"])
    answer, refusal = common.answer_of(status, output, errors)
    return answer or {"status": refusal[:80]}, round(used.ru_maxrss / 1024)


def plan(binary, case, arguments, seconds, seed=0):
    device = ["--device", arguments.device] if arguments.device else []
    answer, mib = run(binary, "plan", case["graph"], "--planner", arguments.planner, "--budget", case["budget_bytes"],
                      "--time-limit", seconds, *(["--seed", seed] if seed else []), *device)
    return answer["status"], answer["cost"] if common.found(answer) else None, mib


def compare(case, arguments):
    before = plan(arguments.before, case, arguments, arguments.seconds)
    after = plan(arguments.after, case, arguments, arguments.seconds, arguments.after_seed)
    ratio = after[1] / before[1] if before[1] and after[1] else None
    return dict(zip(COLUMNS[5:11], [*before, *after], strict=True)) | {"ratio": ratio}


def first_plans(case, arguments):
    def first(binary):
        return next((limit for limit in LIMITS if plan(binary, case, arguments, limit)[1]), None)
    return {"before_first_s": first(arguments.before), "after_first_s": first(arguments.after)}


def graphs_of(arguments, folder):
    if arguments.random:
        return common.random_graphs(arguments.random, folder, arguments.after)
    zoo = zoo_networks(arguments.most_nodes)
    return {name: (f"zoo:{name}", zoo.get(name)) for name in arguments.networks or split(zoo)[arguments.set]}


def cases(arguments, folder):
    device = ["--device", arguments.device] if arguments.device else []
    for name, (graph, nodes) in graphs_of(arguments, folder).items():
        whole, _ = run(arguments.after, "plan", graph, "--planner", "keep_all", *device)
        low, width = whole["structural_bound_bytes"], max(0, whole["peak_bytes"] - whole["structural_bound_bytes"])
        for k in range(arguments.budgets):
            share = k / max(1, arguments.budgets - 1)
            yield {"graph": graph, "network": name, "nodes": nodes, "budget_share": f"{share:.3f}",
                   "budget_bytes": low + int(width * share), "device": arguments.device or ""}


def report(rows):
    count = Counter()
    for row in rows:
        before, after = row["before_cost"], row["after_cost"]
        if not before or not after:
            count["missed" if before else "only after" if after else "neither"] += 1
            continue
        ratio = float(row["ratio"])
        count["worse over 0.05 %" if ratio > 1 + ALLOWED else "worse" if ratio > 1 + SAME else "better" if ratio < 1 - SAME else "equal"] += 1
    names = ["better", "equal", "worse", "worse over 0.05 %", "missed", "only after", "neither"]
    common.print_table(f"after against before, {len(rows)} cases", names, [[count[name] for name in names]])
    memory = [(float(row["before_mib"]), float(row["after_mib"])) for row in rows]
    print(f"largest memory in MiB, mean and most: before {sum(b for b, _ in memory) / len(rows):.0f}, {max(b for b, _ in memory):.0f}; "
          f"after {sum(a for _, a in memory) / len(rows):.0f}, {max(a for _, a in memory):.0f}")


def report_first(rows):
    count = Counter()
    for row in rows:
        before, after = (float(row[name] or "inf") for name in ("before_first_s", "after_first_s"))
        count["earlier" if after < before else "later" if after > before else "equal"] += 1
    names = ["earlier", "equal", "later"]
    common.print_table(f"first plan after against before, {len(rows)} cases", names, [[count[name] for name in names]])


def command_of(arguments):
    chosen = f"--random {arguments.random}" if arguments.random else f"--set {arguments.set}"
    options = [chosen, f"--seconds {arguments.seconds:g}", f"--budgets {arguments.budgets}"]
    if arguments.most_nodes:
        options.append(f"--most-nodes {arguments.most_nodes}")
    if arguments.device:
        options.append(f"--device {arguments.device}")
    if arguments.first:
        options.append("--first")
    if arguments.after_seed:
        options.append(f"--after-seed {arguments.after_seed}")
    return "experiments/before_after.py " + " ".join(options)


def main():
    parser = common.parser(__doc__, None)
    parser.add_argument("--before", required=True, type=pathlib.Path, help="the program of the older build")
    parser.add_argument("--after", type=pathlib.Path, default=common.REGEN, help="the program of the newer build")
    parser.add_argument("--planner", default="auto")
    parser.add_argument("--set", choices=["development", "record", "all"], default="record", help="of networks (record)")
    parser.add_argument("--networks", nargs="+", metavar="NAME", help="these instead")
    parser.add_argument("--random", metavar="FIRST:COUNT", help="random graphs with these seeds instead")
    parser.add_argument("--most-nodes", type=int, metavar="N", help="of the networks")
    parser.add_argument("--budgets", type=int, default=12, metavar="N", help="for each network (12)")
    parser.add_argument("--seconds", type=float, default=3, help="of each search (3)")
    parser.add_argument("--device", help="whose roofline and link count (default: flop, and nothing moves)")
    parser.add_argument("--first", action="store_true", help="the time to a first plan instead; into before_after_first.csv")
    parser.add_argument("--after-seed", type=int, default=0, metavar="N", help="of the newer build's search (0)")
    parser.add_argument("--name", default="", help="of the CSV: before_after_NAME.csv")
    parser.add_argument("--machine", default="unknown", help="for the column of the CSV")
    parser.add_argument("--resume", action="store_true", help="go on with the CSV of a run that was ended")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = arguments.name or ("first" if arguments.first else "")
    path = arguments.out / f"before_after{'_' if name else ''}{name}.csv"
    columns, measure, summary = (FIRST_COLUMNS, first_plans, report_first) if arguments.first else (COLUMNS, compare, report)
    rows = []
    if arguments.resume and path.exists():
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
    known = {(row["network"], row["budget_share"], row["device"]) for row in rows}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=common.ROOT, capture_output=True, text=True, check=False)
    origin = {"commit": commit.stdout.strip() or "unknown", "machine": arguments.machine, "date": datetime.date.today().isoformat(),
              "command": command_of(arguments)}
    with open(path, "w", newline="") as file, tempfile.TemporaryDirectory() as folder:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
        for case in cases(arguments, folder):
            if (case["network"], case["budget_share"], case["device"]) in known:
                continue
            rows.append(case | measure(case, arguments) | origin)
            writer.writerow(rows[-1])
            file.flush()
    summary(rows)


if __name__ == "__main__":
    main()
