"""Reads results/*.csv. Every row carries the commit, machine, date and command of its measurement."""

import csv
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "results"
PROVENANCE = ["commit", "machine", "date", "command"]

# One line for each file: what its rows are. A file that is not listed here is an error of --check.
SUBJECTS = {
    "auto_against_all": "`auto` against the best of all other planners: counts of rows per run",
    "before_after": "`auto` of two builds beside each other (`experiments/before_after.py`), network by network",
    "before_after_first": "the same two builds: the shortest limit within which each has a plan",
    "checks": "comparisons with oracles, fuzzing, CUDA test runs, fault injection",
    "coverage": "networks of transformers, diffusers and PEFT under `wrap`: islands, nodes, bits (docs/reference/covered-models.md)",
    "default_configurations": "every architecture of transformers' automatic classes, default configurations made small: bits under `wrap`",
    "equality": "bitwise comparison of planned and plain training on the CPU",
    "exact_gaps": "`checkmate` budget by budget: proven optima, gaps, seconds",
    "h200_checkpoint": "`torch.utils.checkpoint` around each block, same runs as `h200_overhead`",
    "h200_cuda_graph_probe": "plain PyTorch's whole step in one CUDA graph",
    "h200_keep_everything": "regen without a limit beside eager PyTorch",
    "h200_house": "keep-everything and a third of eager's bytes before and after (rooms, session, one decision model), two runs, each beside its eager",
    "h200_largest_batch": "largest batch that trains in 16e9 bytes on the card",
    "h200_monet": "time over eager at MONeT's budgets, beside MONeT's own figures",
    "h200_overhead": "training steps under a budget, the rest of the card taken",
    "h200_transformers": "training steps of transformers beside eager PyTorch and its checkpointing at the same bytes, as the driver counts",
    "hybrid": "STR's named runs: overhead of each recompute+swap planner",
    "hybrid_auto": "STR's batch sweeps: `auto` beside `str` and `capuchin`",
    "hybrid_sweeps": "STR's batch sweeps: `str` over `capuchin`",
    "integrality": "integer optimum over the relaxation on unit chains",
    "lengths": "training on batches of many lengths beside plain PyTorch: times, plans, longest wait",
    "lower_sets": "planning time of the lower-set planners",
    "lower_sets_peaks": "least budgets and peaks of the lower-set planners",
    "max_batch": "largest batch in 16e9 bytes at one extra forward pass, planned",
    "monet": "MONeT's instances: objective and bound beside Gurobi's objective",
    "monet_ablation": "MONeT's full instances with decisions switched off",
    "observations": "single figures that belong to no table",
    "packing": "MiniMalloc's hard instances packed into one arena",
    "recorded_steps": "`auto` on steps recorded on an H200, with and without a link",
    "report_page": "the page of `regen report` in a browser: seconds to open, size, numbers beside the JSON's, findings, frames per second",
    "rounding": "roundings of the relaxation over the optimum",
    "scale": "`auto` on graphs of 1,000 to 30,000 ops",
    "shared_input": "one reader for several jobs (SwitchFlow's Figures 8 and 9)",
    "shared_input_cost": "processor time of the producer for each batch",
    "sharing_admission": "three trainings that do not fit together",
    "sharing_grants": "time from a request to its grant and its first kernel",
    "sharing_requests": "latency of requests beside a training",
    "sharing_trainings": "two trainings on one device",
    "speed": "micro-benchmarks, one thread",
    "start_from_cache": "start-up time of `step` and `wrap` on the CPU",
    "state_move": "state of a job moved to the host and back (SwitchFlow's Table 1)",
    "switchflow_fig2": "SwitchFlow's Figure 2: two trainings of ResNet-50",
    "switchflow_fig3": "SwitchFlow's Figure 3: idle time of the device",
    "switchflow_fig6": "SwitchFlow's Figure 6: requests beside trainings",
    "switchflow_fig7": "SwitchFlow's Figure 7: two trainings of different networks",
    "switchflow_fig10": "SwitchFlow's Figure 10: decoding interleaved with compute",
    "unit_chains": "cost and peak of unit chains beside the published ones",
    "vgg19_plans": "cost and peak of VGG19 beside the published ones",
    "zoo": "nodes, edges and parameters of zoo models beside the published ones",
}

# Files that are shown where they are there.
OPTIONAL = {
    "ablation": "`auto` with one row, bound or part switched off (`experiments/ablation.py`); without: which",
}


def subjects():
    """name -> what its rows are, of all files that should be there or are."""
    return SUBJECTS | {name: what for name, what in OPTIONAL.items() if (FOLDER / f"{name}.csv").exists()}


def read(subject):
    """The rows of results/SUBJECT.csv as dictionaries of text."""
    with open(FOLDER / f"{subject}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def latest(rows, *keys):
    """Of the rows that agree in `keys` the last one in the file: rows are appended in order of time."""
    newest = {}
    for row in rows:
        newest[tuple(row[key] for key in keys)] = row
    return list(newest.values())


def where(rows, **wanted):
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def one(rows, **wanted):
    """The last row with these values; a missing row is an error that names them."""
    found = where(rows, **wanted)
    if not found:
        raise KeyError(f"no row with {wanted}")
    return found[-1]


def append(subject, rows):
    """Adds rows to results/SUBJECT.csv. Columns must be those of the file."""
    path = FOLDER / f"{subject}.csv"
    with open(path, newline="", encoding="utf-8") as file:
        columns = next(csv.reader(file))
    for row in rows:
        unknown = set(row) - set(columns)
        if unknown:
            raise KeyError(f"{path.name}: unknown columns {sorted(unknown)}, expected some of {columns}")
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writerows(rows)


def problems():
    """One line for each file of results/ that is not as promised."""
    found = []
    names = {path.stem for path in FOLDER.glob("*.csv")}
    found += [f"results/{name}.csv is not listed in tools/results_data.py" for name in sorted(names - set(subjects()))]
    found += [f"results/{name}.csv is listed in tools/results_data.py, but missing" for name in sorted(set(SUBJECTS) - names)]
    for name in sorted(names):
        with open(FOLDER / f"{name}.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        if not rows or len(rows) < 2:
            found.append(f"results/{name}.csv has no rows")
            continue
        missing = [column for column in PROVENANCE if column not in rows[0]]
        if missing:
            found.append(f"results/{name}.csv lacks the columns {', '.join(missing)}")
            continue
        for number, row in enumerate(rows[1:], 2):
            if len(row) != len(rows[0]):
                found.append(f"results/{name}.csv line {number} has {len(row)} cells, expected {len(rows[0])}")
                continue
            cells = dict(zip(rows[0], row))
            empty = [column for column in PROVENANCE if not cells[column]]
            if empty:
                found.append(f"results/{name}.csv line {number} has no {', '.join(empty)} (write 'unknown' if it is)")
    return found
