"""MiniMalloc's instances A to E packed by regen and, where its program is at hand, by MiniMalloc in the same run.

    .venv/bin/python benchmarks/packing.py [--minimalloc PROGRAM] [--repeats N] [--most S] [--append]

Both are timed from outside, start of the process included, in turns; the median counts. Every layout is checked: no two lifetimes that meet share
an address, and none ends above the capacity. MiniMalloc has --most seconds for an instance; where it does not end in time, it is not asked again and
its row says "over N". --append adds the rows to results/packing.csv. Without --minimalloc, third_party/minimalloc/minimalloc
is taken; where that is missing too, the rows say so.
"""

import argparse
import csv
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import results_data as data
from results_measure import REFERENCE, REGEN, provenance

CAPACITY = 1048576
SECONDS = 120  # the most that one packing of ours may take


def overlap(rows):
    """Two rows of a layout that share time and address, or None; a row above the capacity counts as two."""
    found = [{key: int(row[key]) for key in ("lower", "upper", "size", "offset")} for row in rows]
    for i, a in enumerate(found):
        if a["offset"] < 0 or a["offset"] + a["size"] > CAPACITY:
            return i, i
        for j in range(i):
            b = found[j]
            in_time = a["lower"] < b["upper"] and b["lower"] < a["upper"]
            if in_time and a["offset"] < b["offset"] + b["size"] and b["offset"] < a["offset"] + a["size"]:
                return j, i
    return None


def packed(name, command, output, most=SECONDS):
    """Seconds of one run, None where it took longer than the most; a layout that is missing or wrong ends the benchmark."""
    output.unlink(missing_ok=True)
    begin = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=most, check=False)
    except subprocess.TimeoutExpired:
        return None
    seconds = time.perf_counter() - begin
    if done.returncode != 0 or not output.exists():
        sys.exit(f"packing: {name} failed with status {done.returncode}: {done.stderr.strip()[:200]}")
    with open(output, newline="", encoding="utf-8") as file:
        wrong = overlap(csv.DictReader(file))
    if wrong:
        sys.exit(f"packing: {name}: rows {wrong[0]} and {wrong[1]} overlap or pass {CAPACITY}")
    return seconds


def height(output):
    with open(output, newline="", encoding="utf-8") as file:
        return max(int(row["offset"]) + int(row["size"]) for row in csv.DictReader(file))


def beside(peer_times, most):
    """The columns of the peer."""
    if not peer_times:
        return {"peer": "minimalloc", "peer_source": "not built here: its sources are not at hand"}
    known = None not in peer_times
    return {"peer": "minimalloc", "peer_seconds": f"{statistics.median(peer_times):.4f}" if known else f"over {most:g}", "peer_source": "same run"}


def measure(instance, peer, repeats, most, folder):
    path = REFERENCE / "minimalloc" / f"{instance}.{CAPACITY}.csv"
    if not path.exists():
        sys.exit(f"packing: {path.name} is not in {REFERENCE}: set REGEN_REFERENCE_DATA to the folder that holds minimalloc/")
    ours, theirs = folder / "regen.csv", folder / "minimalloc.csv"
    times, peer_times = [], []
    for _ in range(repeats):
        times.append(packed("regen", [REGEN, "pack", path, "--capacity", str(CAPACITY), "-o", ours], ours))
        if times[-1] is None:
            sys.exit(f"packing: regen took more than {SECONDS} s for {instance}")
        if peer and None not in peer_times:
            command = [peer, f"--capacity={CAPACITY}", f"--input={path}", f"--output={theirs}"]
            peer_times.append(packed("minimalloc", command, theirs, most))
    with open(path, encoding="utf-8") as file:
        items = sum(1 for _ in file) - 1
    command = f"benchmarks/packing.py --repeats {repeats} --most {most:g}" + (" --minimalloc PROGRAM" if peer else "")
    return {"instance": instance, "items": items, "capacity": CAPACITY, "status": "packed", "height": height(ours),
            "seconds": f"{statistics.median(times):.4f}", **beside(peer_times, most), **provenance(command)}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minimalloc", type=pathlib.Path, default=ROOT / "third_party/minimalloc/minimalloc")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--most", type=float, default=120, metavar="S", help="seconds that MiniMalloc has for an instance (120)")
    parser.add_argument("--append", action="store_true", help="add the rows to results/packing.csv")
    arguments = parser.parse_args()
    if arguments.repeats < 1:
        parser.error(f"--repeats is {arguments.repeats}, expected at least 1")
    peer = arguments.minimalloc if arguments.minimalloc.exists() else None
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(instance, peer, arguments.repeats, arguments.most, pathlib.Path(folder)) for instance in "ABCDE"]
    print(f"instance  items    height   regen s  minimalloc s  (median of {arguments.repeats})")
    for row in rows:
        print(f"{row['instance']:8}  {row['items']:5}  {row['height']:8}  {row['seconds']:>8}  {row.get('peer_seconds', row['peer_source']):>12}")
    if arguments.append:
        data.append("packing", rows)


if __name__ == "__main__":
    main()
