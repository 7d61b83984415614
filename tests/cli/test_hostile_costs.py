"""Costs that no sum can hold: every verb and planner answers with one line, and none prints inf or nan."""

import json
import re

import pytest

VERBS = ["explain", "sweep", "advise", "draw"]


def chain(costs):
    """A forward chain and its backward pass, with these costs in turn."""
    depth = 6
    tensors = [{"name": "x", "bytes": 64, "kind": "input"}]
    tensors += [{"name": f"h{i}", "bytes": 64} for i in range(depth)] + [{"name": f"g{i}", "bytes": 64, "kind": "gradient"} for i in range(depth)]
    ops = [{"name": f"f{i}", "type": "conv", "inputs": [i], "outputs": [i + 1]} for i in range(depth)]
    for i in reversed(range(depth)):
        inputs = [i + 1] + ([depth + 2 + i] if i + 1 < depth else [])
        ops.append({"name": f"b{i}", "type": "conv", "phase": "backward", "inputs": inputs, "outputs": [depth + 1 + i]})
    for i, op in enumerate(ops):
        op["variants"] = [{"cost": costs[i % len(costs)]}]
    return {"format": "regen-graph", "version": 1, "name": "huge", "cost_unit": "second", "tensors": tensors, "ops": ops}


def write(regen, costs):
    (regen.folder / "huge.json").write_text(json.dumps(chain(costs)))


@pytest.mark.parametrize("costs", [[1e308], [1.7e308, 1.0], [1e200, 1e-320], [5e-324]], ids=str)
def test_every_planner_refuses_costs_that_no_sum_can_hold(regen, costs):
    write(regen, costs)
    unknown = regen.fails(2, "plan", "huge.json", "--planner", "no_such_planner", "--budget", "60%")
    known = re.findall(r"[a-z_]+", unknown.split("expected one of")[1])
    assert {"auto", "griewank", "checkmate", "str", "monet"} <= set(known) and len(known) >= 10
    for planner in known:
        message = regen.fails(2, "plan", "huge.json", "--planner", planner, "--budget", "60%", "--work-limit", "1000")
        assert "cost" in message and "expected" in message, planner


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_prints_inf_or_nan(regen, verb):
    write(regen, [1e308])
    message = regen.fails(2, verb, "huge.json")
    assert "expected" in message


def test_costs_of_a_sane_size_are_planned(regen):
    write(regen, [1e90, 1e-90])
    text = regen.ok("plan", "huge.json", "--planner", "griewank", "--budget", "90%", "--json")
    answer = json.loads(text)
    assert "Infinity" not in text and "NaN" not in text
    assert answer["status"] in ("feasible", "optimal")


def test_files_keep_every_cost(regen):
    write(regen, [1e308])
    regen.ok("convert", "huge.json", "-o", "again.json")
    again = json.loads((regen.folder / "again.json").read_text())
    assert {variant["cost"] for op in again["ops"] for variant in op["variants"]} == {1e308}
