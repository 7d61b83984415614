"""Measures the subjects of results/ that take seconds and appends their rows: `tools/results.py measure`.

Needs build/regen and, for the speed rows, build/benchmarks/regen_bench. The published values are those of the papers and their artifacts.
"""

import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

import results_data as data

ROOT = data.ROOT
REGEN = pathlib.Path(os.environ.get("REGEN_BIN", ROOT / "build" / "regen"))
BENCH = ROOT / "build" / "benchmarks" / "regen_bench"
REFERENCE = pathlib.Path(os.environ.get("REGEN_REFERENCE_DATA", ROOT.parent / "shared" / "reference" / "data"))


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} cores {model}"


def commit():
    """The commit of the tree, with a + where tracked files differ from it."""
    head = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    changed = subprocess.run(["git", "status", "--porcelain", "-uno"], cwd=ROOT, capture_output=True, text=True, check=False)
    return (head.stdout.strip() or "unknown") + ("+" if changed.stdout.strip() else "")


def provenance(command):
    return {"commit": commit(), "machine": machine(), "date": datetime.date.today().isoformat(), "command": command}


def regen(*arguments):
    """The JSON that `regen ... --json` prints, and the command as text."""
    done = subprocess.run([REGEN, *arguments, "--json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 3):
        sys.exit(f"regen {' '.join(arguments)} failed: {done.stderr.strip()}")
    return json.loads(done.stdout), "regen " + " ".join(arguments)


def max_batch():
    published = {("VGG19", "checkmate", ""): (167, 197, 266), ("VGG19", "checkmate", "4:8"): (164, 196, 260),
                 ("VGG19", "plain", ""): (222, 272, 289), ("VGG16", "checkmate", ""): (180, 230, 268)}
    planners = ["keep_all", "chen_sqrt", "chen_greedy"]
    cases = [(*key, planners) for key in published]
    cases += [(model, accounting, "", [*planners, "griewank"]) for model in ("vgg_unet", "fcn_8", "segnet", "MobileNet", "ResNet50")
              for accounting in ("checkmate", "plain")]
    for model, accounting, grid, asked in cases:
        options = ["--grid", grid] if grid else []
        answer, command = regen("max-batch", f"zoo:{model}", "--memory", "16e9", "--accounting", accounting,
                                "--planners", ",".join(asked), *options)
        found = {row["planner"]: row for row in answer["results"]}
        values = published.get((model, accounting, grid), ())
        for place, planner in enumerate(asked):
            yield {"network": model, "accounting": accounting, "grid": grid, "planner": planner,
                   "max_batch": found.get(planner, {}).get("max_batch", "none"),
                   "upper_bound": found.get(planner, {}).get("upper_bound", ""),
                   "published": values[place] if place < len(values) else "", **provenance(command)}


def vgg19_plans():
    published = {"keep_all": (58_896_187_392, 81_723_296), "keep_all_ap": (58_896_187_392, 81_723_296),
                 "chen_sqrt": (72_512_667_648, 69_447_584), "chen_sqrt_noap": (72_512_667_648, 69_447_584),
                 "chen_greedy": (71_005_863_936, 51_380_224), "chen_greedy_noap": (71_005_863_936, 51_380_224),
                 "last_node": (389_852_987_392, 51_380_224), "griewank": (108_266_881_024, 51_380_224)}
    for planner, (cost, peak) in published.items():
        slots = ["--slots", "5"] if planner == "griewank" else []
        ours, command = regen("plan", "zoo:vgg19@1", "--accounting", "checkmate", "--planner", planner, *slots)
        plain, _ = regen("plan", "zoo:vgg19@1", "--planner", planner, *slots)
        yield {"planner": planner, "slots": "5" if slots else "", "cost": ours["cost"],
               "activation_peak_bytes": ours["activation_peak_bytes"], "published_cost": cost, "published_peak_bytes": peak,
               "plain_cost": plain["cost"], "plain_peak_bytes": plain["activation_peak_bytes"], **provenance(command)}


def unit_chains():
    published = {4: [(9, 6), (11, 5), (19, 3)], 8: [(17, 10), (21, 7), (53, 3)],
                 16: [(33, 18), (45, 10), (169, 3)], 32: [(65, 34), (89, 14), (593, 3)]}
    for length, pairs in published.items():
        for planner, (cost, peak) in zip(["keep_all", "chen_sqrt", "last_node"], pairs):
            ours, command = regen("plan", f"zoo:chain:{length}", "--accounting", "checkmate", "--planner", planner)
            yield {"length": length, "planner": planner, "cost": ours["cost"], "peak": ours["activation_peak_bytes"],
                   "published_cost": cost, "published_peak": peak, **provenance(command)}


def zoo():
    published = {"VGG16": (45, 87, 138_357_544), "VGG19": (51, 99, 143_667_240), "MobileNet": (185, 367, 4_253_864),
                 "vgg_unet": (71, 148, 12_332_755), "segnet": (77, 151, 3_707_411), "fcn_8_vgg": (73, 149, 134_456_985),
                 "fcn_8": (87, 177, 69_912_025), "ResNet50": (353, 751, 25_636_712)}
    for model, (nodes, edges, parameters) in published.items():
        ours, command = regen("zoo", model)
        yield {"network": model, "nodes": ours["nodes"], "edges": ours["edges"], "parameters": ours["parameters"],
               "published_nodes": nodes, "published_edges": edges, "published_parameters": parameters, **provenance(command)}


def packing():
    """Our packer alone; a row of a peer must come from the same run (peer_source)."""
    for name in "ABCDE":
        path = REFERENCE / "minimalloc" / f"{name}.1048576.csv"
        if not path.exists():
            sys.exit(f"{path.name} is not in {REFERENCE}: set REGEN_REFERENCE_DATA to the folder that holds minimalloc/")
        ours, _ = regen("pack", str(path), "--capacity", "1048576")
        yield {"instance": name, "items": ours["items"], "capacity": 1048576, "status": ours["status"], "height": ours["height"],
               "seconds": f"{ours['seconds']:.4f}", **provenance(f"regen pack {path.name} --capacity 1048576")}


def speed():
    command = [BENCH, "--benchmark_format=json", "--benchmark_min_time=0.5",
               "--benchmark_filter=BM_(Simulate|Validate|KeepAll|ChenSqrt|ChenGreedy|Pack|Load|Read|Write)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    targets = {"BM_ReadGraph/regen/10000": "200", "BM_ChenGreedy": "1000", "BM_PackChenGreedy": "1000"}
    known = {"name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions", "repetition_index",
             "threads", "iterations", "real_time", "cpu_time", "time_unit", "label", "error_occurred", "error_message"}
    to_ms = {"ns": 1e-6, "us": 1e-3, "ms": 1, "s": 1e3}
    for row in json.loads(done.stdout)["benchmarks"]:
        if row.get("error_occurred"):
            continue
        counters = ", ".join(f"{key} {value:,.6g}" for key, value in row.items() if key not in known)
        yield {"benchmark": row["name"], "cpu_ms": f"{row['cpu_time'] * to_ms[row['time_unit']]:.3g}",
               "counters": counters.replace("packed/live", "packed_over_live"), "target_ms": targets.get(row["name"], ""),
               "target": "5e6 steps/s" if row["name"].startswith("BM_Simulate") else "", **provenance("make bench")}


MEASURED = {"max_batch": max_batch, "vgg19_plans": vgg19_plans, "unit_chains": unit_chains, "zoo": zoo, "packing": packing,
            "speed": speed}


def measure(subjects):
    for subject in subjects or MEASURED:
        if subject not in MEASURED:
            sys.exit(f"no measurement is called '{subject}', expected one of {', '.join(MEASURED)}")
        rows = list(MEASURED[subject]())
        data.append(subject, rows)
        print(f"results/{subject}.csv: {len(rows)} rows added")
