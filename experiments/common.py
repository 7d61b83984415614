"""What the experiments share: calling regen, tables, CSV files and pictures.

All numbers come from the binary; Python drives it, divides and draws.
"""

import argparse
import concurrent.futures
import csv
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
REGEN = pathlib.Path(os.environ.get("REGEN_BIN", ROOT / "build" / "regen")).resolve()
WRITER = ROOT / "build" / "tests" / "write_random_graphs"
DATA = pathlib.Path(os.environ.get("REGEN_REFERENCE_DATA", ROOT.parent / "shared" / "reference" / "data"))

sys.path.insert(0, str(ROOT / "python"))
from regen_plot import style


def parser(description, time_limit):
    """Options that every experiment takes."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--out", type=pathlib.Path, default=ROOT / "out", help="folder for CSV and plot (default out/)")
    result.add_argument("--time-limit", type=float, default=time_limit, metavar="SECONDS",
                        help=f"of each single solve (default {time_limit or 'depends on the network'})")
    return result


def add_jobs(options, cores):
    """--jobs and --cores, for an experiment whose cases do not need each other; in_parallel() obeys them."""
    options.add_argument("--jobs", type=positive, default=1, metavar="N",
                         help="cases at a time (default 1: one after the other, each on all cores)")
    options.add_argument("--cores", type=positive, default=cores, metavar="N",
                         help=f"of each case where --jobs is above 1 (default {cores})")


def positive(text):
    """A whole number of at least 1, for argparse."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a whole number of at least 1")
    return int(text)


def in_parallel(function, cases, arguments):
    """Yields (index of the case, function(case)) as they finish, --jobs of them at a time, each pinned to --cores cores of its own."""
    if arguments.jobs == 1:
        yield from enumerate(map(function, cases))
        return
    cores = sorted(os.sched_getaffinity(0))
    if arguments.jobs * arguments.cores > len(cores):
        print(f"{arguments.jobs} jobs of {arguments.cores} cores share {len(cores)}: a time limit brings less than it could.\n", flush=True)
    slots = itertools.count()

    def pin():
        first = next(slots) * arguments.cores
        # Of this thread alone; the programs it starts inherit it and make as many threads as they may have cores.
        os.sched_setaffinity(0, {cores[(first + k) % len(cores)] for k in range(arguments.cores)})

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs, initializer=pin) as pool:
        index_of = {pool.submit(function, case): index for index, case in enumerate(cases)}
        try:
            for done in concurrent.futures.as_completed(index_of):
                yield index_of[done], done.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def measured(command):
    """(exit status, standard output, standard error, what this one program used: see resource.getrusage)."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(list(map(str, command)), stdout=output, stderr=errors)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)  # it has been waited for
        output.seek(0)
        errors.seek(0)
        return child.returncode, output.read(), errors.read(), used


def run(*arguments):
    """(what `regen ... --json` prints, None), or (None, the line with which it refuses)."""
    if not REGEN.exists():
        sys.exit(f"no program at {REGEN}; run make first, or name it in REGEN_BIN")
    done = subprocess.run([REGEN, *map(str, arguments), "--json"], capture_output=True, text=True, check=False)
    return answer_of(done.returncode, done.stdout, done.stderr)


def answer_of(status, output, errors):
    """(the JSON, None), or (None, one line) when a run of regen failed."""
    if status in (0, 1, 3) and output:
        return json.loads(output), None
    return None, errors.strip().removeprefix("regen: ") or f"ended with status {status}"


def regen(*arguments):
    """The JSON that `regen ... --json` prints; infeasible and unknown are answers, not failures."""
    answer, refusal = run(*arguments)
    if refusal is not None:
        sys.exit(f"regen {' '.join(map(str, arguments))}: {refusal}")
    return answer


def graph_document(graph):
    """The graph as regen writes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "graph.json"
        subprocess.run([REGEN, "convert", graph, "-o", path], check=True)
        return json.loads(path.read_text())


def random_graphs(seeds, folder, program=REGEN):
    """name: (its file, ops), of the first COUNT seeds from FIRST (`FIRST:COUNT`) on whose graphs can keep everything; every other two over a link."""
    first, count = map(int, seeds.split(":"))
    link = {"to_host": 4, "to_device": 2, "both": 4}  # bytes in one unit of cost
    graphs = {}
    for seed in itertools.count(first):
        if len(graphs) == count:
            return graphs
        subprocess.run([WRITER, folder, str(seed), "1"], check=True)
        path = pathlib.Path(folder) / f"random_{seed}.json"
        document = json.loads(path.read_text())
        if seed // 2 % 2:
            # Bytes per second: a graph whose costs are FLOPs has no use for a link.
            path.write_text(json.dumps(document | {"cost_unit": "second", "attributes": {"link": link}}))
        status, output, errors, _ = measured([program, "plan", path, "--planner", "keep_all", "--json"])
        if (answer_of(status, output, errors)[0] or {}).get("peak_bytes"):
            graphs[path.stem] = (str(path), len(document["ops"]))


def available(planners):
    """Those that this build has; names the others in one line."""
    missing = []
    for planner in planners:
        _, refusal = run("plan", "zoo:chain:1", "--planner", planner)
        if refusal is not None and "unknown planner" in refusal:
            missing.append(planner)
    if missing:
        print(f"Not in this build, left out: {', '.join(missing)}.\n")
    return [planner for planner in planners if planner not in missing]


def found(answer):
    return answer["status"] in ("optimal", "feasible")


def print_table(title, head, rows):
    """A markdown table."""
    print(f"### {title}\n")
    print("| " + " | ".join(head) + " |")
    print("|" + " --- |" * len(head))
    for row in rows:
        print("| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |")
    print(flush=True)


def ratio(numerator, denominator, digits=3):
    """As text; empty when either side is not known."""
    return f"{numerator / denominator:.{digits}f}" if numerator and denominator else ""


def write_csv(folder, name, head, rows):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / name, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)
    print(f"Wrote {shown(folder / name)}.")


def save(figure, folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(style.finish(figure, name.rsplit(".", 1)[1]))
    print(f"Wrote {shown(folder / name)}.")


def shown(path):
    path = path.resolve()
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def look(index, planner=""):
    """Colour and line style of the index-th series: the palette repeats with dashes, the exact planner is black."""
    if planner == "checkmate":
        return {"color": style.INK, "linestyle": "-"}
    return {"color": style.SERIES[index % len(style.SERIES)],
            "linestyle": ["-", "--", ":"][index // len(style.SERIES) % 3]}
