"""Bad input: one line that says what, where, which value and what was expected; exit 2 (1 when a
budget is proven too small, 3 when a limit came first); nothing half-written."""

import json
import os
import subprocess

import pytest

from regen_program import BINARY


def graph(**changes) -> dict:
    """x -> a -> y: two ops that anything can be damaged in."""
    return {
        "format": "regen-graph",
        "version": 1,
        "name": "small",
        "tensors": [
            {"name": "x", "bytes": 8, "kind": "input"},
            {"name": "a", "bytes": 16},
            {"name": "y", "bytes": 4, "kind": "output"},
        ],
        "ops": [
            {"name": "first", "inputs": [0], "outputs": [1], "variants": [{"cost": 1}]},
            {"name": "second", "inputs": [1], "outputs": [2], "variants": [{"cost": 2}]},
        ],
        **changes,
    }


def damaged(path: list, value) -> dict:
    document = graph()
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return document


def test_the_small_graph_is_good(regen):
    regen.write("g.json", graph())
    assert regen.json("plan", "g.json")["peak_bytes"] == 28


# --- usage

USAGE = [
    ([], "verb"),
    (["frobnicate"], "frobnicate"),
    (["plan"], "GRAPH"),
    (["plan", "zoo:vgg19", "--frobnicate"], "--frobnicate"),
    (["plan", "zoo:vgg19", "--budget"], "--budget"),
    (["plan", "zoo:vgg19", "extra"], "extra"),
    (["plan", "zoo:vgg19", "--budget", "1GB", "--activation-budget", "1GB"], "--budget"),
    (["plan", "zoo:vgg19", "--budget", "8GX"], "GX"),
    (["plan", "zoo:vgg19", "--budget", "-5"], "-5"),
    (["plan", "zoo:vgg19", "--budget", "1e300"], "1e300"),
    (["plan", "zoo:vgg19", "--budget", "nan"], "nan"),
    (["plan", "zoo:vgg19", "--budget", ""], "size"),
    (["plan", "zoo:vgg19", "--budget", "device"], "--device"),
    (["plan", "zoo:vgg19", "--activation-budget", "8QiB"], "8QiB"),
    (["plan", "zoo:vgg19", "--planner", "magic"], "magic"),
    (["plan", "zoo:vgg19", "--accounting", "creative"], "creative"),
    (["plan", "zoo:vgg19", "--device", "abacus"], "abacus"),
    (["plan", "zoo:vgg19", "--cost", "guess"], "guess"),
    (["plan", "zoo:vgg19", "--cost", "roofline"], "device"),
    (["plan", "zoo:vgg19", "--cost", "table:nowhere.json"], "nowhere.json"),
    (["plan", "zoo:vgg19", "--seed", "x"], "--seed"),
    (["plan", "zoo:vgg19", "--time-limit", "-1"], "--time-limit"),
    (["plan", "zoo:vgg19", "--time-limit", "nan"], "nan"),
    (["plan", "zoo:vgg19", "--greedy-points", "0"], "--greedy-points"),
    (["plan", "zoo:vgg19", "--gap", "1"], "--gap"),
    (["sweep", "zoo:vgg19", "--gap", "-0.1"], "less than 1"),
    (["plan", "zoo:vgg19", "--gap", "nan"], "nan"),
    (["plan", "zoo:vgg19", "--schedule", "late"], "cover_all"),
    (["sweep", "zoo:vgg19", "--rounding", "up"], "random_threshold"),
    (["sweep", "zoo:vgg19", "--samples", "0"], "--samples"),
    (["max-batch", "zoo:vgg19", "--memory", "16e9", "--prefer", "luck"], "luck"),
    (["plan", "zoo:vgg19", "--model", "wishful"], "published"),
    (["plan", "zoo:vgg19", "--mode", "inplace_fast"], "newnode"),
    (["plan", "zoo:vgg19", "--keep-gradients=maybe"], "--keep-gradients"),
    (["sweep", "zoo:vgg19", "--ratios", "--reference", "magic"], "magic"),
    (["sweep", "zoo:vgg19", "--budgets", "1GB,2GX"], "2GX"),
    (["sweep", "zoo:vgg19", "--budgets", "1GB,,2GB"], "1GB,,2GB"),
    (["plan", "zoo:vgg19", "--work-limit", "1.5"], "1.5"),
    (["plan", "zoo:vgg91"], "vgg91"),
    (["plan", "zoo:vgg19@0"], "0"),
    (["plan", "zoo:vgg19@two"], "two"),
    (["plan", "zoo:vgg19@99999999999999999999"], "99999999999999999999"),
    (["plan", "zoo:"], "name"),
    (["plan", "zoo:chain:0"], "chain"),
    (["plan", "zoo:vgg19", "--backward", "sideways"], "sideways"),
    (["plan", "zoo:vgg19", "--optimizer", "adam"], "exact"),
    (["plan", "nowhere.json"], "nowhere.json"),
    (["plan", "."], "directory"),
    (["zoo", "vgg91"], "vgg91"),
    (["zoo", "vgg19", "--batch", "0"], "--batch"),
    (["zoo", "vgg19@2", "--batch", "3"], "two batches"),
    (["zoo", "vgg19", "--to", "gif", "-o", "x"], "gif"),
    (["zoo", "-o", "x.json"], "model"),
    (["convert", "zoo:vgg19", "-o", "x.unknown"], "--to"),
    (["convert", "zoo:vgg19"], "--output"),
    (["draw", "zoo:vgg19", "-o", "x.gif"], "x.gif"),
    (["draw", "zoo:chain:9000", "-o", "x.svg"], "ops"),
    (["sweep", "zoo:vgg19", "--budgets", "1:2"], "1:2"),
    (["sweep", "zoo:vgg19", "--budgets", "1GB:2GB:1"], "1GB:2GB:1"),
    (["sweep", "zoo:vgg19", "--budgets", "3GB:2GB:5"], "3GB:2GB:5"),
    (["sweep", "zoo:vgg19", "--planners", "keep_all,,x"], "--planners"),
    (["sweep", "zoo:vgg19", "--planners", "magic"], "magic"),
    (["sweep", "zoo:vgg19", "--plot", "x.bmp"], "x.bmp"),
    (["sweep", "zoo:vgg19", "--threads", "-1"], "--threads"),
    (["max-batch", "zoo:vgg19"], "--memory"),
    (["max-batch", "zoo:vgg19@4", "--memory", "16e9"], "batch"),
    (["max-batch", "zoo:vgg19", "--memory", "much"], "much"),
    (["max-batch", "zoo:vgg19", "--memory", "16e9", "--grid", "4"], "4"),
    (["max-batch", "zoo:vgg19", "--memory", "16e9", "--planners", "magic"], "magic"),
    (["pack", "nowhere.csv", "--capacity", "4"], "nowhere.csv"),
    (["completion", "tcsh"], "tcsh"),
    (["simulate", "zoo:vgg19"], "PLAN"),
    (["validate", "zoo:vgg19", "nowhere.json"], "nowhere.json"),
]


@pytest.mark.parametrize("arguments,word", USAGE, ids=lambda x: " ".join(x) if isinstance(x, list) else "")
def test_usage(regen, arguments, word):
    assert word in regen.fails(2, *arguments)


def test_messages_stay_one_line(regen):
    regen.fails(2, "plan", "zoo:vgg\n19")
    regen.fails(2, "two\nlines")
    regen.fails(2, "plan", "no\nwhere.json")
    regen.fails(2, "plan", "zoo:" + "x" * 100000)
    assert "\x1b" not in regen.fails(2, "plan", "\x1b[31mred.json")


# --- graph files

GRAPHS = {
    "duplicate maker": (damaged(["ops", 1, "outputs"], [1]), "1"),
    "dangling tensor": (damaged(["ops", 1, "inputs"], [17]), "17"),
    "negative id": (damaged(["ops", 1, "inputs"], [-1]), "-1"),
    "negative bytes": (damaged(["tensors", 1, "bytes"], -16), "-16"),
    "fractional bytes": (damaged(["tensors", 1, "bytes"], 1.5), "1.5"),
    "overflowing bytes": (damaged(["tensors", 1, "bytes"], 2**63), "bytes"),
    "bytes as text": (damaged(["tensors", 1, "bytes"], "16"), "bytes"),
    "negative cost": (damaged(["ops", 0, "variants"], [{"cost": -1}]), "cost"),
    "unknown kind": (damaged(["tensors", 1, "kind"], "liquid"), "liquid"),
    "unknown phase": (damaged(["ops", 0, "phase"], "sideways"), "sideways"),
    "unknown unit": (damaged(["cost_unit"], "parsec"), "parsec"),
    "unknown version": (damaged(["version"], 99), "99"),
    "unknown field": (damaged(["opz"], []), "opz"),
    "ops missing": ({k: v for k, v in graph().items() if k != "ops"}, "ops"),
    "ops no list": (damaged(["ops"], 3), "ops"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_damaged_graphs(regen, name):
    document, word = GRAPHS[name]
    regen.write("g.json", document)
    line = regen.fails(2, "plan", "g.json")
    assert word in line and "g.json" in line


def test_overflowing_sums(regen):
    tensors = [{"name": f"p{i}", "bytes": 2**53, "kind": "param"} for i in range(1100)]
    tensors += [{"name": "y", "bytes": 4, "kind": "output"}]
    ops = [{"name": "f", "inputs": [0], "outputs": [1100]}]
    regen.write("g.json", graph(tensors=tensors, ops=ops))
    done = regen.run("plan", "g.json", "--json")
    assert done.returncode in (0, 2)
    if done.returncode == 0:
        assert json.loads(done.stdout)["fixed_bytes"] == 1100 * 2**53


def test_cyclic_graph(regen):
    document = graph()
    document["tensors"].append({"name": "b", "bytes": 4})
    document["ops"][0]["inputs"] = [3]
    document["ops"][1]["outputs"] = [2, 3]
    regen.write("g.json", document)
    line = regen.fails(2, "plan", "g.json")
    assert "first" in line or "cycle" in line


def test_truncated_graph(regen):
    text = json.dumps(graph())
    for length in range(0, len(text), 7):
        regen.write("g.json", text[:length])
        assert "g.json" in regen.fails(2, "plan", "g.json")


HOSTILE = {
    "deep arrays": "[" * 1_000_000,
    "deep objects": '{"a":' * 500_000,
    "deep inside a graph": '{"format":"regen-graph","ops":' + "[" * 500_000,
    "long number": '{"format":"regen-graph","version":' + "9" * 1_000_000 + "}",
    "huge exponent": json.dumps(graph()).replace('"bytes": 16', '"bytes": 1e999'),
    "not a number": json.dumps(graph()).replace('"bytes": 16', '"bytes": NaN'),
    "control characters": "\x00\x01\x02",
    "not utf-8": None,
    "empty": "",
    "only spaces": " \n" * 1000,
    "wrong json": "[1, 2, 3]",
    "some text": "Dear sir or madam,\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(regen, name):
    text = HOSTILE[name]
    if text is None:
        (regen.folder / "g.json").write_bytes(b'{"format":"regen-graph","name":"\xff\xfe"}')
    else:
        regen.write("g.json", text)
    regen.fails(2, "plan", "g.json")
    regen.fails(2, "validate", "zoo:vgg19", "g.json")
    regen.fails(2, "pack", "g.json", "--capacity", "4")
    regen.fails(2, "plan", "zoo:vgg19", "--cost", "table:g.json")
    regen.fails(2, "plan", "zoo:vgg19", "--device", "./g.json")


def test_huge_but_good_graph(regen):
    """100,000 ops: not an error, and not slow."""
    regen.ok("zoo", "chain:50000", "-o", "g.json", timeout=60)
    assert regen.json("plan", "g.json", "--planner", "keep_all", timeout=60)["status"] == "feasible"


# --- plans

PLANS = {
    "another graph": ('{"format":"regen-plan","version":1,"graph":"00c0ffee00c0ffee","steps":["c0"]}', "graph"),
    "unknown op": ('{"format":"regen-plan","version":1,"steps":["c99"]}', "99"),
    "missing input": ('{"format":"regen-plan","version":1,"steps":["c1"]}', "step 0"),
    "unfinished": ('{"format":"regen-plan","version":1,"steps":["c0"]}', "second"),
    "no step": ('{"format":"regen-plan","version":1,"steps":["x0"]}', "x0"),
    "a graph": (json.dumps(graph()), "plan.json"),
}


@pytest.mark.parametrize("name", PLANS)
def test_damaged_plans(regen, name):
    content, word = PLANS[name]
    regen.write("g.json", graph())
    regen.write("plan.json", content)
    for verb in ("validate", "simulate", "explain"):
        line = regen.fails(2, verb, "g.json", "plan.json")
        assert word in line and "plan.json" in line
    regen.fails(2, "draw", "g.json", "plan.json", "-o", "p.png")


def test_refused_plan_as_json(regen):
    regen.write("g.json", graph())
    regen.write("plan.json", PLANS["unfinished"][0])
    done = regen.run("validate", "g.json", "plan.json", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["valid"] is False


# --- budgets


def test_budget_below_the_bound_names_op_and_tensors(regen):
    line = regen.fails(1, "plan", "zoo:vgg19", "--activation-budget", "51380223", "-o", "plan.json")
    assert "block1_conv1" in line and "1,200,718,143" in line and "1,200,718,144" in line
    done = regen.run("plan", "zoo:vgg19", "--budget", "1GB", "--json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert answer["status"] == "infeasible" and answer["cost"] is None
    assert answer["budget_bytes"] == 1000000000


def test_budget_that_a_planner_cannot_meet(regen):
    line = regen.fails(3, "plan", "zoo:vgg19", "--planner", "keep_all", "--activation-budget",
                       "52MB", "-o", "plan.json")
    assert "keep_all" in line and "at least" in line
    done = regen.run("plan", "zoo:vgg19", "--planner", "keep_all", "--activation-budget", "52MB",
                     "--json")
    assert done.returncode == 3 and json.loads(done.stdout)["status"] == "unknown"


def test_validate_refuses_a_plan_over_the_budget(regen, plan):
    line = regen.fails(2, "validate", "zoo:vgg19@4", plan, "--budget", "1GB")
    assert "1,000,000,000" in line or "1000000000" in line


# --- output


@pytest.mark.parametrize("target", ["nowhere/x.json", ".", "/proc/x.json"])
def test_unwritable_output(regen, target):
    regen.fails(2, "plan", "zoo:vgg19", "-o", target)
    regen.fails(2, "zoo", "vgg19", "-o", target, "--to", "regen")
    regen.fails(2, "sweep", "zoo:linear4", "--budgets", "auto:2", "-o", target)


def test_unwritable_pictures(regen):
    regen.fails(2, "draw", "zoo:linear4", "-o", "nowhere/x.svg")
    regen.fails(2, "sweep", "zoo:linear4", "--budgets", "auto:2", "-o", "-", "--plot", "nowhere/x.png")


def test_full_disk(regen):
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(BINARY), "zoo"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "/dev/full" in regen.fails(2, "zoo", "vgg19", "-o", "/dev/full")


def test_a_failed_write_keeps_the_old_file(regen):
    regen.write("plan.json", "old")
    regen.fails(1, "plan", "zoo:vgg19", "--budget", "1", "-o", "plan.json")
    assert regen.bytes_of("plan.json") == b"old"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder(regen):
    os.chmod(regen.folder, 0o555)
    regen.fails(2, "plan", "zoo:vgg19", "-o", "plan.json")
    os.chmod(regen.folder, 0o755)


# --- what to do next


def test_a_graph_that_is_none_leads_to_what_was_meant(regen):
    assert regen.fails(2, "plan", "resnet50", "--budget", "8GiB").endswith("; a model of the zoo is zoo:resnet50\n")
    assert regen.fails(2, "plan", "VGG19@64").endswith("; a model of the zoo is zoo:VGG19@64\n")
    assert "zoo:" not in regen.fails(2, "plan", "resnet")
    (regen.folder / "step.program").mkdir()
    regen.write("step.program/program.json", "{}")
    assert "`regen profile step.program -o FILE`" in regen.fails(2, "plan", "step.program")


def test_a_planner_that_finds_nothing_leads_to_another(regen):
    assert "--planner auto" in regen.fails(3, "plan", "zoo:vgg19@64", "--budget", "4.5GiB", "--planner", "keep_all")


def test_usage_points_to_the_help_of_the_verb(regen):
    assert "regen share run --help says" in regen.fails(2, "share", "run", "--", "ls")
    assert "regen plan --help says" in regen.fails(2, "plan", "--budgte", "1")
