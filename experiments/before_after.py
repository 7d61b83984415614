"""Two builds of regen beside each other: networks x budgets, the same planner and limit, first the one, then the other.

    python experiments/before_after.py --before /path/to/old/regen --seconds 3 --set record --budgets 12

Budgets lie evenly from what every plan needs to what keeping everything takes. For each case: status and cost of both plans and
the seconds to the first plan. A case is worse beyond 0.05 %, missed where only the old build has a plan. Rows go into the CSV as
they finish; --resume goes on with the missing ones.
"""

import csv
import datetime
import functools
import json
import pathlib
import subprocess
from collections import Counter

import common
from ablation import ALLOWED, SAME, split
from exact_gaps import zoo_networks

COLUMNS = ["network", "nodes", "budget_share", "budget_bytes", "device", "before_status", "before_cost", "before_first_s", "after_status",
           "after_cost", "after_first_s", "ratio", "commit", "machine", "date", "command"]


def run(binary, *arguments):
    done = subprocess.run([binary, *map(str, arguments), "--json"], capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        return {"status": done.stderr.strip()[:80] or f"status {done.returncode}"}


@functools.cache
def explains(binary):
    """Whether the build has --explain-search, which says when there was a first plan."""
    return "--explain-search" in subprocess.run([binary, "plan", "--help"], capture_output=True, text=True, check=False).stdout


def plan(binary, case, arguments):
    device = ["--device", arguments.device] if arguments.device else []
    explain = ["--explain-search"] if explains(binary) else []
    answer = run(binary, "plan", f"zoo:{case['network']}", "--planner", arguments.planner, "--budget", case["budget_bytes"],
                 "--time-limit", arguments.seconds, *explain, *device)
    events = answer.get("search", {}).get("events", [])
    first = next((event["seconds"] for event in events if event["cost"] is not None), None)
    return answer["status"], answer["cost"] if common.found(answer) else None, first


def compare(case, arguments):
    before = plan(arguments.before, case, arguments)
    after = plan(arguments.after, case, arguments)
    ratio = after[1] / before[1] if before[1] and after[1] else None
    return case | dict(zip(COLUMNS[5:11], [*before, *after], strict=True)) | {"ratio": ratio}


def cases(arguments):
    zoo = zoo_networks(arguments.most_nodes)
    device = ["--device", arguments.device] if arguments.device else []
    for network in arguments.networks or split(zoo)[arguments.set]:
        whole = run(arguments.after, "plan", f"zoo:{network}", "--planner", "keep_all", *device)
        low, width = whole["structural_bound_bytes"], max(0, whole["peak_bytes"] - whole["structural_bound_bytes"])
        for k in range(arguments.budgets):
            share = k / max(1, arguments.budgets - 1)
            yield {"network": network, "nodes": zoo.get(network), "budget_share": f"{share:.3f}",
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
    timed = [(float(row["before_first_s"]), float(row["after_first_s"])) for row in rows if row["before_first_s"] and row["after_first_s"]]
    if timed:
        sums = [sum(pair[i] for pair in timed) for i in (0, 1)]
        print(f"seconds to the first plan, sum of {len(timed)} cases: {sums[0]:.2f} before, {sums[1]:.2f} after")


def main():
    parser = common.parser(__doc__, None)
    parser.add_argument("--before", required=True, type=pathlib.Path, help="the program of the older build")
    parser.add_argument("--after", type=pathlib.Path, default=common.REGEN, help="the program of the newer build")
    parser.add_argument("--planner", default="auto")
    parser.add_argument("--set", choices=["development", "record", "all"], default="record", help="of networks (record)")
    parser.add_argument("--networks", nargs="+", metavar="NAME", help="these instead")
    parser.add_argument("--most-nodes", type=int, metavar="N", help="of the networks")
    parser.add_argument("--budgets", type=int, default=12, metavar="N", help="for each network (12)")
    parser.add_argument("--seconds", type=float, default=3, help="of each search (3)")
    parser.add_argument("--device", help="whose roofline and link count (default: flop, and nothing moves)")
    parser.add_argument("--machine", default="unknown", help="for the column of the CSV")
    parser.add_argument("--resume", action="store_true", help="go on with the CSV of a run that was ended")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "before_after.csv"
    rows = []
    if arguments.resume and path.exists():
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
    known = {(row["network"], row["budget_share"], row["device"]) for row in rows}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=common.ROOT, capture_output=True, text=True, check=False)
    origin = {"commit": commit.stdout.strip() or "unknown", "machine": arguments.machine, "date": datetime.date.today().isoformat(),
              "command": f"experiments/before_after.py --set {arguments.set} --seconds {arguments.seconds:g} --budgets {arguments.budgets}"
                         + (f" --device {arguments.device}" if arguments.device else "")}
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
        for case in cases(arguments):
            if (case["network"], case["budget_share"], case["device"]) in known:
                continue
            rows.append(compare(case, arguments) | origin)
            writer.writerow(rows[-1])
            file.flush()
    report(rows)


if __name__ == "__main__":
    main()
