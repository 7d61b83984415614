"""How `auto` fares on large training graphs: time to the first plan, the last one, its gap, and the program's memory.

Layered random networks with skips, a backward pass that reads what it must, and costs and sizes of a wide range. Graph files
given as arguments (of captured_graphs.py, say) are planned as well.
"""

import json
import pathlib
import random
import re
import tempfile

import common

SIZES = (1_000, 3_000, 10_000, 30_000)
SHARES = (0.3, 0.5, 0.7)
MIB = 1 << 20
COLUMNS = ["graph", "ops", "share", "status", "first_s", "seconds", "processor_s", "overhead", "gap", "moved_gib", "memory_mib"]


def layered_graph(ops):
    """A step of about `ops` ops: half of them forward, each read by the next and now and then by one further on."""
    numbers = random.Random(ops)
    tensors = [{"name": "x", "bytes": MIB, "kind": "input"}]
    nodes, layers = [], []

    def add(name, phase, inputs, size, cost):
        tensors.append({"name": name, "bytes": size})
        nodes.append({"name": name, "type": "op", "phase": phase, "inputs": inputs, "outputs": [len(tensors) - 1],
                      "variants": [{"cost": cost * 1e-5}]})
        return len(tensors) - 1

    made = [0]
    for layer in range(ops // 2):
        inputs = [made[-1]] + ([numbers.choice(made[-6:])] if numbers.random() < 0.3 else [])
        inputs = list(dict.fromkeys(inputs))
        made.append(add(f"f{layer}", "forward", inputs, numbers.choice((1, 2, 4, 8)) * MIB, numbers.choice((1, 2, 3, 8))))
        layers.append((made[-1], inputs))
    gradient = add("loss", "loss", [made[-1]], MIB, 1)
    for value, inputs in reversed(layers):
        reads = list(dict.fromkeys([gradient, value] + [t for t in inputs if t != 0]))
        gradient = add(f"g{value}", "backward", reads, tensors[inputs[0]]["bytes"], numbers.choice((2, 4, 6, 16)))
    return {"format": "regen-graph", "version": 1, "name": f"layered {ops}", "cost_unit": "second", "tensors": tensors, "ops": nodes}


def cases_of(path, arguments):
    """(graph file, the columns that are known before it is planned, budget) for each share."""
    whole = common.regen("plan", path, "--cost", "graph", "--planner", "keep_all")
    document = json.loads(pathlib.Path(path).read_text())
    fixed = sum(tensor["bytes"] for tensor in document["tensors"] if tensor.get("kind") in ("input", "param", "state"))
    for share in arguments.shares:
        known = {"graph": document["name"], "ops": len(document["ops"]), "share": share}
        yield path, known, fixed + int(share * (whole["peak_bytes"] - fixed))


def row_of(case, arguments):
    path, row, budget = case
    link = [] if arguments.device == "none" else ["--device", arguments.device]
    command = [common.REGEN, "plan", path, "--cost", "graph", *link, "--planner", "auto", "--budget", budget,
               "--time-limit", arguments.time_limit, "--progress", "--json"]
    status, output, errors, used = common.measured(command)
    first = re.search(r"^([0-9.]+) s: best", errors, re.M)
    answer, _ = common.answer_of(status, output, errors)
    row |= {"first_s": float(first[1]) if first else None, "processor_s": round(used.ru_utime + used.ru_stime, 1),
            "memory_mib": used.ru_maxrss >> 10}
    if answer is not None:
        row |= {"status": answer["status"], "seconds": round(answer["seconds"], 2)}
        if answer["cost"] is not None:
            row |= {"overhead": round(answer["overhead"], 4), "gap": round(answer["gap"], 4),
                    "moved_gib": round(answer["offloaded_bytes"] / 2**30, 2)}
    print("  ".join(f"{column} {row.get(column, '-')}" for column in COLUMNS), flush=True)
    return row


def main():
    options = common.parser(__doc__, 20)
    options.add_argument("graphs", nargs="*", help="graph files besides the random ones")
    options.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    options.add_argument("--shares", type=float, nargs="*", default=SHARES, help="budgets, of what keeping everything takes beside the fixed bytes")
    options.add_argument("--device", default="h200", help="whose link (default h200); none: without movement")
    common.add_jobs(options, 1)
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = list(arguments.graphs)
        for size in arguments.sizes:
            path = pathlib.Path(folder) / f"layered{size}.json"
            path.write_text(json.dumps(layered_graph(size)))
            paths.append(path)
        cases = [case for path in paths for case in cases_of(path, arguments)]
        rows = dict(common.in_parallel(lambda case: row_of(case, arguments), cases, arguments))
    common.write_csv(arguments.out, "auto_scale.csv", COLUMNS, [[row.get(c, "") for c in COLUMNS] for _, row in sorted(rows.items())])


if __name__ == "__main__":
    main()
