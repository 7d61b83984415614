"""Searches: options of planners, Ctrl-C, progress, and how far a planner is from the best."""

import csv
import json
import math
import signal
import subprocess
import time
from pathlib import Path

import pytest

from regen_program import BINARY
from test_terminal import complete, on_terminal
from test_verbs import batches

# chen_greedy with this many segment sizes walks the chain a hundred thousand times: far longer than
# any test waits.
LONG_PLAN = ["plan", "zoo:chain:50000", "--planner", "chen_greedy", "--greedy-points", "100000"]
LONG_SWEEP = ["sweep", "zoo:resnet152@8", "--budgets", "2.5e9:4e9:100000", "--planners", "chen_greedy"]


def default_sigint():
    """A test run in the background ignores SIGINT, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def begin(*arguments):
    """A call that is searching: it catches SIGINT by now, and has had a second to find something."""
    child = subprocess.Popen([str(BINARY), *arguments], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, preexec_fn=default_sigint)
    deadline = time.monotonic() + 60
    while not catches_sigint(child.pid) and time.monotonic() < deadline:
        assert child.poll() is None, child.communicate()
        time.sleep(0.01)
    time.sleep(1)
    return child


def catches_sigint(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt"))
    return int(caught, 16) >> (signal.SIGINT - 1) & 1


def interrupted(*arguments):
    """(status, output, errors) of a search that gets SIGINT."""
    child = begin(*arguments)
    child.send_signal(signal.SIGINT)  # does nothing to a child that has ended
    output, errors = child.communicate(timeout=60)
    return child.returncode, output, errors


# --- options


def test_options_of_planners_are_the_same_in_every_verb(regen):
    names = {"--accounting", "--greedy-points", "--slots", "--keep-gradients", "--gap",
             "--schedule", "--rounding", "--samples", "--prefer", "--model", "--mode", "--seed", "--time-limit",
             "--work-limit"}
    for verb in ("plan", "sweep", "max-batch"):
        help_text = regen.ok(verb, "--help")
        assert not [name for name in names if name not in help_text]


def test_completion_knows_the_values(regen):
    assert complete(regen, "regen", "plan", "--schedule", "") == ["frontier", "cover_all", "cover_last"]
    assert complete(regen, "regen", "sweep", "--rounding", "ra") == ["random_threshold", "randomised"]
    assert complete(regen, "regen", "max-batch", "--accounting", "") == ["plain", "checkmate"]
    assert complete(regen, "regen", "plan", "--prefer", "m") == ["memory"]
    assert complete(regen, "regen", "plan", "--model", "p") == ["published"]
    assert complete(regen, "regen", "sweep", "--reference", "last") == ["last_node"]


def test_no_time_is_a_limit_like_any_other(regen):
    plan = regen.json("plan", "zoo:vgg19", "--time-limit", 0, "--keep-gradients", "--keep-order", "--seed", 3)
    assert plan["status"] == "feasible"
    regen.write("in.csv", "id,lower,upper,size\na,0,4,2\n")
    assert regen.json("pack", "in.csv", "--time-limit", 0)["height"] == 2


def test_an_exact_planner_stops_at_the_gap(regen):
    asked = ("plan", "zoo:vgg_unet", "--planner", "checkmate", "--budget", 470798853)
    near = regen.json(*asked, "--gap", 0.5)
    assert near["status"] == "feasible" and near["gap"] <= 0.5
    least = regen.json(*asked, "--gap", 0)
    assert least["status"] == "optimal" and least["cost"] <= near["cost"]
    assert near["lower_bound"] <= least["cost"] and near["work"] < least["work"]


def test_greedy_points_reach_the_sweep(regen):
    # With one point only the finest segments are tried, which keep everything: too much.
    one = regen.json("sweep", "zoo:vgg19@8", "--planners", "chen_greedy", "--budgets", "1.6e9",
                     "--greedy-points", 1)
    assert [point["status"] for point in one] == ["unknown"]
    many = regen.json("sweep", "zoo:vgg19@8", "--planners", "chen_greedy", "--budgets", "1.6e9")
    assert [point["status"] for point in many] == ["feasible"]


# --- Ctrl-C


def test_interrupted_plan_is_still_a_plan(regen):
    status, output, errors = interrupted(*LONG_PLAN, "--json")
    plan = json.loads(output)
    assert (status, errors) == (0, "")
    assert plan["status"] == "feasible" and plan["note"].endswith("interrupted")


def test_interrupted_without_a_plan(regen):
    # Square-root plans of 50,000 layers need some hundred units.
    status, output, errors = interrupted(*LONG_PLAN, "--budget", "100")
    assert (status, output) == (3, "") and errors.count("\n") == 1 and "interrupted" in errors


def test_second_interrupt_ends_the_program(regen):
    child = begin(*LONG_PLAN)
    while child.poll() is None:  # the next one comes before the search has seen the first
        child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=30)
    assert (child.returncode, output, errors) == (130, "", "")


def test_interrupted_sweep_prints_what_it_has(regen):
    status, output, errors = interrupted(*LONG_SWEEP)
    rows = list(csv.DictReader(output.splitlines()))
    assert status == 0 and len(rows) == 100000
    assert errors.startswith("regen: interrupted, ") and errors.count("\n") == 1
    left = [row for row in rows if row["seconds"] == "0" and row["status"] == "unknown"]
    assert left and all(row["cost"] == row["lower_bound"] == "" for row in left)
    assert len(left) < len(rows)


def test_interrupted_max_batch_says_so(regen):
    planners = "keep_all" + ",griewank" * 40  # two seconds each
    status, output, errors = interrupted("max-batch", "zoo:resnet152", "--memory", "80e9", "--planners",
                                         planners, "--threads", "1", "--json")
    answer = json.loads(output)
    assert (status, errors) == (0, "")
    assert batches(answer)["keep_all"] > 200
    assert [row["limited_by"] for row in answer["excluded"]].count("interrupted") > 30


# --- progress


def test_progress_on_request(regen):
    done = regen.run("plan", "zoo:vgg19@64", "--planner", "chen_greedy", "--budget", "4.5GiB", "--progress")
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert lines and all(" s: best " in line and line.endswith(" flop") for line in lines)
    assert lines[-1].split("best ")[1] in done.stdout


def test_no_progress_unless_asked(regen):
    regen.ok("plan", "zoo:vgg19@64", "--budget", "4.5GiB")  # checks that standard error is empty
    assert b" s: best" not in on_terminal("plan", "zoo:vgg19@64", "--budget", "4.5GiB")


# --- ratios


def test_ratios_against_a_reference(regen):
    budgets = "1.3e9,1.5e9,1.7e9,2e9"
    answer = regen.json("sweep", "zoo:vgg19@8", "--planners", "keep_all,chen_sqrt,last_node", "--budgets",
                        budgets, "--ratios", "--reference", "chen_greedy")
    points, ratios = answer["points"], answer["ratios"]
    assert ratios["reference"] == "chen_greedy"
    assert [row["planner"] for row in ratios["planners"]] == ["keep_all", "chen_sqrt", "last_node", "chen_greedy"]
    cost = {(p["planner"], p["budget_bytes"]): p.get("cost") for p in points}
    # A heuristic proves nothing, so its lower bound is the divisor: every op once.
    bound = {p["budget_bytes"]: p["lower_bound"] for p in points if p["planner"] == "chen_greedy" and "cost" in p}
    for row in ratios["planners"]:
        expected = [cost[row["planner"], b] / bound[b] for b in bound if cost[row["planner"], b]]
        assert row["budgets"] == row["against_bound"] == len(expected)
        if expected:
            assert row["maximum"] == pytest.approx(max(expected))
            assert row["geometric_mean"] == pytest.approx(math.exp(sum(map(math.log, expected)) / len(expected)))


def test_ratios_for_people(regen):
    text = regen.ok("sweep", "zoo:vgg19@8", "--planners", "keep_all,chen_sqrt", "--budgets", "auto:4",
                    "--ratios", "--reference", "keep_all", "-o", "s.csv")
    head, *rows = text.splitlines()
    assert "geometric mean" in head and len(rows) == 2
    assert regen.bytes_of("s.csv").startswith(b"planner,")
    both = regen.ok("sweep", "zoo:vgg19@8", "--planners", "keep_all", "--budgets", "auto:2",
                    "--ratios", "--reference", "keep_all")
    assert both.startswith("planner,") and "\n\nplanner " in both


def test_listed_budgets(regen):
    points = regen.json("sweep", "zoo:vgg19", "--planners", "chen_greedy", "--activation-budgets", "60MB,52e6")
    assert [p["budget_bytes"] - 1149337920 for p in points] == [60_000_000, 52_000_000]
    assert all(0 <= p["gap"] < 1 and p["lower_bound"] == 58896187392 for p in points)


# --- what only exact planners can show


def test_ratios_against_the_optimum(regen):
    answer = regen.json("sweep", "zoo:chain:6", "--planners", "chen_sqrt,keep_all", "--budgets", "4,6,8", "--ratios")
    optimum = {p["budget_bytes"]: p["cost"] for p in answer["points"] if p["planner"] == "checkmate"}
    rows = {row["planner"]: row for row in answer["ratios"]["planners"]}
    assert rows["checkmate"]["against_optimum"] == 3 and rows["checkmate"]["maximum"] == 1
    assert rows["keep_all"]["budgets"] == rows["keep_all"]["maximum"] == 1  # 8 units hold everything
    ratios = [p["cost"] / optimum[p["budget_bytes"]] for p in answer["points"]
              if p["planner"] == "chen_sqrt" and "cost" in p]
    assert rows["chen_sqrt"]["maximum"] == pytest.approx(max(ratios))


def test_no_time_still_gives_a_plan(regen):
    plan = regen.json("plan", "zoo:vgg19", "--planner", "checkmate", "--activation-budget", "60MB", "--time-limit", 0)
    assert plan["status"] in ("feasible", "optimal") and plan["activation_peak_bytes"] <= 60_000_000


def test_progress_has_a_gap(regen):
    done = regen.run("plan", "zoo:chain:8", "--planner", "checkmate", "--budget", 5, "--progress")
    assert done.returncode == 0 and ", at least " in done.stderr and ", gap " in done.stderr


def test_interrupted_exact_search_keeps_its_bound(regen):
    status, output, errors = interrupted("plan", "zoo:resnet50", "--planner", "checkmate", "--activation-budget",
                                         "40MB", "--json")
    plan = json.loads(output)
    assert (status, errors) == (0, "") and plan["lower_bound"] > 0
    if plan["status"] == "feasible":
        assert plan["note"].endswith("interrupted")
