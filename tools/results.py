"""Measures the rows of docs/results.md and writes it: every number beside the published one.

Run by `make results` from the repository root, with build/regen and build/benchmarks/regen_bench there.
"""

import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
REGEN = ROOT / "build" / "regen"
BENCH = ROOT / "build" / "benchmarks" / "regen_bench"
DATA = pathlib.Path(os.environ.get("REGEN_REFERENCE_DATA", ROOT.parent / "shared" / "reference" / "data"))

# What stands below this line in docs/results.md takes too long to measure here and is kept.
BY_HAND = "<!-- recorded by hand from here on: make results keeps it -->"


def regen(*arguments):
    """The JSON that `regen ... --json` prints."""
    done = subprocess.run([REGEN, *arguments, "--json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 3):
        sys.exit(f"regen {' '.join(arguments)} failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def number(value):
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def batches(model, accounting, planners, *options):
    answer = regen("max-batch", f"zoo:{model}", "--memory", "16e9", "--accounting", accounting,
                   "--planners", ",".join(planners), *options)
    found = {row["planner"]: row for row in answer["results"]}
    return [found.get(p, {}).get("max_batch", "none") for p in planners]


def section_batches():
    planners = ["keep_all", "chen_sqrt", "chen_greedy"]
    rows = [
        ["Checkmate's accounting", *batches("vgg19", "checkmate", planners), "167 / 197 / 266"],
        ["the same, `--grid 4:8`", *batches("vgg19", "checkmate", planners, "--grid", "4:8"), "164 / 196 / 260"],
        ["plain", *batches("vgg19", "plain", planners), "222 / 272 / 289 (trimmed baselines)"],
        ["VGG16, Checkmate's accounting", *batches("vgg16", "checkmate", planners), "180 / 230 / 268"],
    ]
    text = "## Largest batch in 16e9 bytes\n"
    text += "`regen max-batch zoo:vgg19 --memory 16e9 --planners keep_all,chen_sqrt,chen_greedy --accounting checkmate`, at most one\n"
    text += "extra forward pass. `last_node` has no batch within that cap.\n\n"
    text += table(["VGG19", *planners, "published"], rows)
    planners += ["griewank"]
    rows = []
    for model in ["vgg_unet", "fcn_8", "segnet", "MobileNet", "ResNet50", "VGG19"]:
        artifact = batches(model, "checkmate", planners)
        plain = batches(model, "plain", planners)
        rows.append([model, *(f"{a} / {p}" for a, p in zip(artifact, plain))])
    text += "\n\nThe six networks of the paper's figure, Checkmate's accounting / plain:\n\n"
    return text + table(["network", *planners], rows)


def section_plans():
    published = {
        "keep_all": (58_896_187_392, 81_723_296),
        "keep_all_ap": (58_896_187_392, 81_723_296),
        "chen_sqrt": (72_512_667_648, 69_447_584),
        "chen_sqrt_noap": (72_512_667_648, 69_447_584),
        "chen_greedy": (71_005_863_936, 51_380_224),
        "chen_greedy_noap": (71_005_863_936, 51_380_224),
        "last_node": (389_852_987_392, 51_380_224),
        "griewank": (108_266_881_024, 51_380_224),
    }
    rows = []
    for planner, (cost, peak) in published.items():
        slots = ["--slots", "5"] if planner == "griewank" else []
        ours = regen("plan", "zoo:vgg19@1", "--accounting", "checkmate", "--planner", planner, *slots)
        plain = regen("plan", "zoo:vgg19@1", "--planner", planner, *slots)
        rows.append([f"`{planner}`" + (" with 5 slots" if slots else ""),
                     f"{number(ours['cost'])} / {number(ours['activation_peak_bytes'])}",
                     f"{number(cost)} / {number(peak)}",
                     f"{number(plain['cost'])} / {number(plain['activation_peak_bytes'])}"])
    text = "## VGG19, batch 1: cost (multiply-accumulates) / activation peak (bytes)\n"
    text += "`regen plan zoo:vgg19@1 --accounting checkmate --planner P`; the last column is the default, plain accounting.\n\n"
    return text + table(["planner", "ours", "published", "plain"], rows)


def section_chains():
    published = {4: [(9, 6), (11, 5), (19, 3)], 8: [(17, 10), (21, 7), (53, 3)],
                 16: [(33, 18), (45, 10), (169, 3)], 32: [(65, 34), (89, 14), (593, 3)]}
    rows = []
    for length, pairs in published.items():
        cells = []
        for planner, pair in zip(["keep_all", "chen_sqrt", "last_node"], pairs):
            ours = regen("plan", f"zoo:chain:{length}", "--accounting", "checkmate", "--planner", planner)
            got = (ours["cost"], ours["activation_peak_bytes"])
            cells.append(f"{got} {'=' if got == pair else 'differs from'} {pair}")
        rows.append([length, *cells])
    text = "## Unit chains: (cost, peak), ours and published\n`regen plan zoo:chain:N --accounting checkmate --planner P`\n\n"
    return text + table(["N", "keep_all", "chen_sqrt", "last_node"], rows)


def section_models():
    published = {
        "VGG16": (45, 87, 138_357_544), "VGG19": (51, 99, 143_667_240), "MobileNet": (185, 367, 4_253_864),
        "vgg_unet": (71, 148, 12_332_755), "segnet": (77, 151, 3_707_411), "fcn_8_vgg": (73, 149, 134_456_985),
        "fcn_8": (87, 177, 69_912_025), "ResNet50": (353, 751, 25_636_712),
    }
    rows = []
    for model, expected in published.items():
        ours = regen("zoo", model)
        got = (ours["nodes"], ours["edges"], ours["parameters"])
        rows.append([model, *(f"{g:,}" for g in got), "equal" if got == expected else f"published {expected}"])
    text = "## Networks: nodes, edges, parameters\n`regen zoo NAME --json`\n\n"
    return text + table(["network", "nodes", "edges", "parameters", "against the reference"], rows)


def section_packing():
    minimalloc = {"A": 5.0, "B": 3.9, "C": 0.8, "D": 2.7, "E": 3.4}
    rows = []
    for name, seconds in minimalloc.items():
        path = DATA / "minimalloc" / f"{name}.1048576.csv"
        if not path.exists():
            return "## Packing\nThe reference instances are not on this machine."
        ours = regen("pack", str(path), "--capacity", "1048576")
        rows.append([name, ours["items"], ours["status"], number(ours["height"]), f"{ours['seconds']:.3f}", seconds,
                     f"{seconds / ours['seconds']:.0f}x"])
    text = "## Packing into 1,048,576: MiniMalloc's instances\n"
    text += "`regen pack X.1048576.csv --capacity 1048576`, one thread; MiniMalloc's times are those of the reference notes on a like machine.\n\n"
    return text + table(["instance", "items", "status", "height", "seconds", "MiniMalloc's seconds", "faster"], rows)


def section_speed():
    done = subprocess.run([BENCH, "--benchmark_format=json", "--benchmark_min_time=0.5",
                           "--benchmark_filter=BM_(Simulate|Validate|KeepAll|ChenSqrt|ChenGreedy|Pack|Load|Read|Write)"],
                          capture_output=True, text=True, check=True)
    skip = {"name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions",
            "repetition_index", "threads", "iterations", "real_time", "cpu_time", "time_unit", "label",
            "error_occurred", "error_message"}
    rows = []
    for row in json.loads(done.stdout)["benchmarks"]:
        if row.get("error_occurred"):
            continue
        counters = ", ".join(f"{k} {v:,.6g}" for k, v in row.items() if k not in skip)
        rows.append([f"`{row['name']}`", f"{row['cpu_time']:.3g} {row['time_unit']}", counters])
    text = "## Speed, one thread\n`make bench`. Asked for: 5 million simulated steps per second; a 10,000-op graph loaded from JSON in 0.2 s,\n"
    text += "planned by `chen_greedy` in 1 s, packed in 1 s within 2 % of the highest live sum.\n\n"
    return text + table(["benchmark", "CPU time", "counters"], rows)


def main():
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    head = "# Results\n\n"
    head += "*Audience: whoever wants to know whether it holds what it says.* Written by `make results`; every section names its command.\n"
    head += f"Measured {datetime.date.today()} on {os.cpu_count()} cores of {cpu}.\n"
    sections = [section_batches(), section_plans(), section_chains(), section_models(), section_packing(), section_speed()]
    page = ROOT / "docs" / "results.md"
    kept = page.read_text().partition(BY_HAND)[2] if page.exists() else "\n"
    page.write_text("\n\n".join([head.rstrip(), *sections, BY_HAND]) + kept)
    print("wrote docs/results.md")


if __name__ == "__main__":
    main()
