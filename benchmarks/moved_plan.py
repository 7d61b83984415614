"""A plan that keeps everything but moves a given number of bytes to the host and back, beside the computation."""

import bisect
import json


def moved_plan(graph_json, keep_plan_json, total_bytes, bytes_per_second, patience):
    """Large forward values leave one after the other and come back at once: what is measured is what copies cost the kernels
    beside them, not what a budget gains. The computation may have to wait `patience` seconds for a value. Returns the plan
    and the bytes moved each way."""
    graph, plan = json.loads(graph_json), json.loads(keep_plan_json)
    steps = plan["steps"]
    times = step_times(graph, steps)
    uses = uses_of(graph, steps)
    insertions, moved, out_free, in_free = [], 0, 0.0, 0.0
    for tensor, (made, last_forward, first_backward) in travellers(graph, steps, uses, total_bytes):
        duration = graph["tensors"][tensor]["bytes"] / bytes_per_second
        leaves = max(times[made + 1], out_free)
        left = leaves + duration
        offload = max(made, bisect.bisect_left(times, leaves) - 1)
        release = max(last_forward, offload, bisect.bisect_left(times, left) - 1)
        back = max(times[release], in_free) + duration
        if release >= first_backward or back > times[first_backward] + patience:
            continue
        insertions += [(offload, 0, f"o{tensor}"), (release, 1, f"r{tensor}"), (release, 2, f"f{tensor}")]
        moved, out_free, in_free = moved + graph["tensors"][tensor]["bytes"], left, back
    for position, _, step in sorted(insertions, reverse=True):
        steps.insert(position + 1, step)
    plan.pop("addresses", None)
    return json.dumps(plan), moved


def travellers(graph, steps, uses, total_bytes):
    """The values that are needed last, as many as asked for; among them those needed first go first."""
    chosen, total = [], 0
    for row in sorted(candidates(graph, steps, uses), key=lambda row: -row[1][2]):
        if total >= total_bytes:
            break
        chosen.append(row)
        total += graph["tensors"][row[0]]["bytes"]
    return chosen[::-1]


def step_times(graph, steps):
    """When each step begins, and the end of all."""
    times = [0.0]
    for step in steps:
        times.append(times[-1] + (graph["ops"][int(step[1:])]["variants"][0]["cost"] if step[0] == "c" else 0.0))
    return times


def uses_of(graph, steps):
    uses = {}
    for position, step in enumerate(steps):
        if step[0] == "c":
            op = graph["ops"][int(step[1:])]
            for tensor in op.get("inputs", []) + op.get("outputs", []):
                uses.setdefault(tensor, []).append(position)
    return uses


def candidates(graph, steps, uses):
    """(tensor, (made, last forward use, first backward use)) of forward values of at least 16 MiB, in no order."""
    turn = next(i for i, s in enumerate(steps) if s[0] == "c" and graph["ops"][int(s[1:])].get("phase", "forward") != "forward")
    found = []
    for tensor, positions in uses.items():
        row = graph["tensors"][tensor]
        before, after = [p for p in positions if p < turn], [p for p in positions if p >= turn]
        if row.get("kind", "activation") == "activation" and row["bytes"] >= 16 << 20 and before and after:
            found.append((tensor, (before[0], before[-1], after[0])))
    return found
