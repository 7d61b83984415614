"""The main job in a minute: how much of a network fits, what a budget costs, and a picture of it."""

import csv
import json
import pathlib
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
REGEN = str(ROOT / "build" / "regen")
OUT = ROOT / "out"
PLANNED = {"optimal", "feasible"}  # the statuses that come with a plan within the budget


def regen(*arguments):
    """Runs regen and returns its JSON; exit statuses 1 and 3 are answers, not failures."""
    done = subprocess.run([REGEN, *arguments, "--json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 3):
        sys.exit(f"regen {' '.join(arguments)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def print_table(head, rows):
    cells = [head, *[[str(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for row in cells:
        print("  " + "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))))
    print(flush=True)


def print_command(*arguments):
    print("  $ regen " + " ".join(str(a) for a in arguments))


def largest_batches():
    print("1. Largest batch of VGG19 in 16 GB, with at most one extra forward pass of recomputation")
    print("   (keep_all recomputes nothing, as plain PyTorch does)")
    published = ["keep_all", "chen_sqrt", "chen_greedy", "griewank", "checkmate"]
    planners = [*published, "auto"]
    command = ["max-batch", "zoo:vgg19", "--memory", "16e9", "--planners"]
    print_command(*command, ",".join(planners))
    rows = []
    for title, asked, accounting in [
        ("every byte counted once", planners, "plain"),
        ("as Checkmate's artifact counts", published, "checkmate"),
    ]:
        answer = regen(*command, ",".join(asked), "--accounting", accounting)
        found = {row["planner"]: row["max_batch"] for row in answer["results"]}
        rows.append([title, *(found.get(p, "-") for p in planners)])
    print_table(["", *planners], rows)


def gpt2_row(budget, plan):
    if plan["status"] not in PLANNED:
        return [budget, plan["status"], *["-"] * 6]
    return [
        budget,
        plan["status"],
        f"{plan['peak_bytes'] / 2**30:.2f} GiB",
        f"{plan['cost'] * 1e3:.1f} ms",
        f"{plan['overhead']:+.1%}",
        f"{plan['lower_bound'] * 1e3:.1f} ms",
        plan["recomputed"],
        f"{plan['offloaded_bytes'] / 2**30:.2f} GiB",
    ]


def gpt2_in_less_memory():
    print("2. GPT-2 small, batch 8 x 1024 tokens, Adam, on an A100 (times by its roofline): one training step within a budget")
    step = ["zoo:gpt2_small@8", "--backward", "exact", "--optimizer", "adam", "--device", "a100-40"]
    print_command("plan", *step, "--budget", "6GiB")
    rows = [gpt2_row("no limit", regen("plan", *step, "--planner", "keep_all"))]
    for budget in ["10GiB", "8GiB", "6GiB", "5GiB", "4GiB"]:
        rows.append(gpt2_row(budget, regen("plan", *step, "--budget", budget, "--time-limit", "5")))
    print_table(["budget", "plan", "peak", "step time", "overhead", "no plan below", "recomputed ops", "moved to host"], rows)
    print("   A budget that no plan can keep is refused before anything runs, with the op that makes it so:")
    print_command("plan", *step, "--budget", "4GiB")
    refused = subprocess.run([REGEN, "plan", *step, "--budget", "4GiB"], capture_output=True, text=True, check=False)
    print(textwrap.fill(refused.stderr.strip(), 118, initial_indent="  ", subsequent_indent="    ") + "\n", flush=True)


def sweep_table(file, planners):
    """One row for each budget, the overhead of each planner in it."""
    with open(file, newline="") as lines:
        rows = list(csv.DictReader(lines))
    cells = {(row["planner"], int(row["budget_bytes"])): row for row in rows}

    def cell(planner, budget):
        row = cells[planner, budget]
        proven = "*" if row["status"] == "optimal" else " "
        return f"{float(row['overhead']):.1%}{proven}" if row["status"] in PLANNED else "- "

    budgets = sorted({budget for _, budget in cells}, reverse=True)
    print_table(["budget", *planners], [[f"{b / 1e9:.2f} GB", *(cell(p, b) for p in planners)] for b in budgets])


def sweeps():
    print("3. What less memory costs: extra time of a step under each planner, from what keeping everything takes down to what")
    print("   every plan needs, on a V100 (- no plan found, * proven optimal among the planner's plans)")
    OUT.mkdir(exist_ok=True)
    planners = ["keep_all", "chen_sqrt", "chen_greedy", "griewank", "checkmate", "auto"]
    for name in ["vgg19", "resnet50"]:
        table, plot = OUT / f"{name}_sweep.csv", OUT / f"{name}_sweep.png"
        command = ["sweep", f"zoo:{name}@64", "--device", "v100-16", "--budgets", "auto:8", "--time-limit", "4",
                   "--planners", ",".join(planners)]  # fmt: skip
        print_command(*command, "-o", table.relative_to(ROOT), "--plot", plot.relative_to(ROOT))
        subprocess.run([REGEN, *command, "-o", table, "--plot", plot], check=True)
        sweep_table(table, planners)
    print("  The tables and their plots are in out/: *_sweep.csv and *_sweep.png\n")


if __name__ == "__main__":
    if not pathlib.Path(REGEN).exists():
        sys.exit("demo: build/regen is missing; run 'make demo'")
    largest_batches()
    gpt2_in_less_memory()
    sweeps()
