"""The main job in a minute: how much of a network fits, what a budget costs, and a picture of it."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
REGEN = str(ROOT / "build" / "regen")
OUT = ROOT / "out"


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
    print()


def largest_batches():
    planners = ["keep_all", "chen_sqrt", "chen_greedy", "griewank", "checkmate"]
    rows = []
    for accounting, title in [("checkmate", "as the published artifact counts"), ("plain", "every byte counted once")]:
        answer = regen("max-batch", "zoo:vgg19", "--memory", "16e9", "--accounting", accounting,
                       "--planners", ",".join(planners))
        found = {row["planner"]: row["max_batch"] for row in answer["results"]}
        rows.append([title, *(found.get(p, "-") for p in planners)])
    print("Largest batch of VGG19 in 16e9 bytes, with at most one extra forward pass")
    print_table(["", *planners], rows)


def gpt2_in_less_memory():
    step = ["zoo:gpt2_small@8", "--backward", "exact", "--optimizer", "adam", "--device", "a100-40"]
    rows = []
    for budget in ["10GiB", "8GiB", "6GiB", "5GiB", "4GiB"]:
        plan = regen("plan", *step, "--budget", budget)
        fits = plan["status"] == "feasible"
        rows.append([budget, plan["status"], f"{plan['peak_bytes'] / 2**30:.2f} GiB" if fits else "-",
                     f"{plan['cost'] * 1e3:.0f} ms" if fits else "-",
                     f"{plan['overhead']:+.1%}" if fits else "-", plan["recomputed"] if fits else "-"])
    print("GPT-2 small, batch 8 x 1024 tokens, Adam, on an A100 (roofline): a step within a budget")
    print_table(["budget", "plan", "peak", "step time", "overhead", "recomputed ops"], rows)
    refused = subprocess.run([REGEN, "plan", *step, "--budget", "4GiB"], capture_output=True, text=True, check=False)
    print("  " + refused.stderr.strip() + "\n")


def sweep_with_plot():
    OUT.mkdir(exist_ok=True)
    for name, graph, device in [("vgg19", "zoo:vgg19@64", "v100-16"), ("resnet50", "zoo:resnet50@64", "v100-16")]:
        subprocess.run([REGEN, "sweep", graph, "--device", device, "--budgets", "auto:32",
                        "--planners", "keep_all,chen_sqrt,chen_greedy,griewank",
                        "-o", OUT / f"{name}_sweep.csv", "--plot", OUT / f"{name}_sweep.png"], check=True)
        print(f"  wrote out/{name}_sweep.csv and out/{name}_sweep.png: cost against memory for each planner")


if __name__ == "__main__":
    largest_batches()
    gpt2_in_less_memory()
    sweep_with_plot()
