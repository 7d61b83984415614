"""MONeT's modelled result tables: our `monet` planner beside Gurobi's objectives on the same instances.

One row for each instance file and budget of monet_objectives.csv; rows of the Checkmate baseline have no
instance file and are left out. Then the ablation: the full instances restricted mode by mode, and without
recomputation. Rows go into the CSV as they finish, so that a run can be ended at any time.
"""

import csv
import os
import sys

import common

FILES = {"unet": "un_11", "vgg16": "vgg16_176"}
FULL = "inplace_conv_multiway_newnode"
# The full instance with some decisions taken away.
ABLATIONS = ["all", "inplace_conv_multiway", "inplace_conv_newnode", "inplace_conv_normal", "inplace_normal",
             "conv_multiway_newnode", "inplace_conv_multiway_newnode_ablation"]
COLUMNS = ["net", "mode", "restricted_to", "budget_gib", "status", "objective_ms", "bound_ms", "gap_percent", "gurobi_ms",
           "gurobi_gap_percent", "gurobi_status", "over_gurobi_percent", "peak_gib", "wall_seconds", "cpu_seconds"]


def published(networks, modes, budgets):
    with open(common.DATA / "monet_objectives.csv") as file:
        rows = [row for row in csv.DictReader(file) if row["mode"] != "checkmate"]
    return [row for row in rows if row["net"] in networks and (not modes or row["mode"] in modes)
            and (not budgets or float(row["budget_gb"]) in budgets)]


def solve(row, mode, arguments):
    """One dictionary with the columns of the CSV."""
    path = common.DATA / "monet_instances" / f"{FILES[row['net']]}_{row['mode']}.json"
    limit = ["--work-limit", arguments.work_limit] if arguments.work_limit else ["--time-limit", arguments.time_limit]
    status, output, errors, used = common.measured([common.REGEN, "plan", path, "--planner", "monet", "--budget", f"{row['budget_gb']}GiB",
                                                    "--mode", mode, *limit, "--json"])
    answer, refusal = common.answer_of(status, output, errors)
    if refusal is not None:
        sys.exit(f"{path.name}, {row['budget_gb']} GiB: {refusal}")
    ours, theirs = answer.get("monet_objective_ms"), float(row["objective_ms"]) if row["objective_ms"] else None

    def number(value, digits):
        return "" if value is None else f"{value:.{digits}f}"

    return {"net": row["net"], "mode": row["mode"], "restricted_to": mode, "budget_gib": row["budget_gb"],
            "status": answer["status"], "objective_ms": number(ours, 2), "bound_ms": number(answer.get("monet_bound_ms"), 2),
            "gap_percent": number(answer["monet_gap"] * 100 if ours else None, 2), "gurobi_ms": row["objective_ms"],
            "gurobi_gap_percent": row["gap_percent"], "gurobi_status": row["status"],
            "over_gurobi_percent": number(100 * (ours / theirs - 1) if ours and theirs else None, 3),
            "peak_gib": number(answer["peak_bytes"] / 2**30 if answer["peak_bytes"] else None, 2),
            "wall_seconds": number(answer["seconds"], 1), "cpu_seconds": number(used.ru_utime + used.ru_stime, 1)}


class Table:
    """A CSV that is whole after every row; the rows are in the order of their cases however they come."""

    def __init__(self, folder, name):
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / name
        self.by_case = {}
        self.write()

    @property
    def rows(self):
        return [row for _, row in sorted(self.by_case.items())]

    def fill(self, cases, arguments):
        """cases: (row of the published table, mode)."""
        for index, row in common.in_parallel(lambda case: solve(*case, arguments), cases, arguments):
            self.by_case[index] = row
            self.write()

    def write(self):
        part = self.path.with_suffix(".part")
        with open(part, "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(self.rows)
        os.replace(part, self.path)

    def show(self, title, columns):
        common.print_table(title, columns, [[row[name] for name in columns] for row in self.rows])
        print(f"Wrote {common.shown(self.path)}.")


def summary(rows):
    """How many rows reach the two aims, in one line each."""
    compared = [row for row in rows if row["over_gurobi_percent"]]
    over = [float(row["over_gurobi_percent"]) for row in compared]
    gaps = [float(row["gap_percent"]) for row in rows if row["gap_percent"]]
    if over:
        print(f"{sum(x <= 1e-9 for x in over)} of {len(over)} rows cost at most Gurobi's objective, "
              f"{sum(x <= 0.5 for x in over)} at most 0.5 % more; the worst is {max(over):+.3f} %.")
    if gaps:
        print(f"{sum(x <= 1 for x in gaps)} of {len(gaps)} gaps to our own bound are at most 1 %; the largest is {max(gaps):.2f} %.\n")


def main():
    parser = common.parser(__doc__, 60)
    parser.add_argument("--networks", nargs="+", default=list(FILES), choices=list(FILES))
    parser.add_argument("--modes", nargs="+", metavar="MODE", help="of the instance files (default all)")
    parser.add_argument("--budgets", nargs="+", type=float, metavar="GIB", help="default: those of the published table")
    parser.add_argument("--work-limit", type=int, metavar="N", help="counted work instead of seconds: the same on a machine with other work on it")
    parser.add_argument("--no-ablation", action="store_true", help="only the published rows")
    common.add_jobs(parser, 2)
    arguments = parser.parse_args()
    if not (common.DATA / "monet_objectives.csv").exists():
        print(f"No data at {common.DATA}: nothing to do.")
        return
    table = Table(arguments.out, "monet_tables.csv")
    table.fill([(row, "all") for row in published(arguments.networks, arguments.modes, arguments.budgets)], arguments)
    table.show("MONeT's instances", [name for name in COLUMNS if name != "restricted_to"])
    summary(table.rows)
    if arguments.no_ablation:
        return
    ablation = Table(arguments.out, "monet_ablation.csv")
    full = published(arguments.networks, [FULL], arguments.budgets)
    ablation.fill([(row, mode) for row in full for mode in ABLATIONS], arguments)
    ablation.show("The full instances, restricted", ["net", "budget_gib", "restricted_to", "status", "objective_ms", "bound_ms"])


if __name__ == "__main__":
    main()
