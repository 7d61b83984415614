"""Options mean the same in every verb, and an option of another planner is an error."""

import itertools

import pytest


def whole_bytes(regen):
    return regen.json("plan", "zoo:vgg16@64", "--planner", "keep_all")["peak_bytes"]


def test_a_budget_may_be_a_fraction_of_keeping_everything(regen):
    answer = regen.json("plan", "zoo:vgg16@64", "--budget", "95%", "--work-limit", 100000)
    assert answer["budget_bytes"] == pytest.approx(0.95 * whole_bytes(regen), abs=1)
    rows = regen.json("sweep", "zoo:vgg16@64", "--planners", "chen_greedy", "--budgets", "90%:100%:3")
    assert [row["budget_bytes"] for row in rows] == pytest.approx([part * whole_bytes(regen) for part in (0.9, 0.95, 1.0)], abs=2)


@pytest.mark.parametrize("budget", ["-1%", "x%", "%", "2000%", "nan%"])
def test_bad_fractions_are_refused_in_one_line(regen, budget):
    assert "expected such as 50%" in regen.fails(2, "plan", "zoo:vgg16@64", f"--budget={budget}")


def test_a_range_begins_with_its_smaller_end(regen):
    assert "expected the smaller end first" in regen.fails(2, "sweep", "zoo:vgg16@64", "--budgets", "90%:50%:3")


@pytest.mark.parametrize(("option", "value", "planner", "expected"), [
    ("--slots", "3", "auto", "griewank"),
    ("--mode", "all", "auto", "monet"),
    ("--rounding", "half", "checkmate", "checkmate_lp"),
    ("--ablate", "str", "chen_sqrt", "auto"),
])
def test_an_option_of_another_planner_is_refused(regen, option, value, planner, expected):
    line = regen.fails(2, "plan", "zoo:vgg16@64", "--planner", planner, option, value)
    assert f"{option}: planner {planner} does not take it, expected" in line and expected in line


def test_a_sweep_takes_the_options_of_any_of_its_planners(regen):
    regen.json("sweep", "zoo:chain:8", "--planners", "keep_all,griewank", "--budgets", "100%", "--slots", 2)
    assert "--slots" in regen.fails(2, "sweep", "zoo:chain:8", "--planners", "keep_all", "--budgets", "100%", "--slots", 2)


def test_explain_search_names_what_made_the_plan(regen):
    answer = regen.json("plan", "zoo:vgg_unet@8", "--budget", "60%", "--work-limit", 200000, "--explain-search")
    trace = answer["search"]
    sources = [event["source"] for event in trace["events"]]
    assert trace["best_plan"] in sources and trace["first_plan"] in sources
    without = regen.json("plan", "zoo:vgg_unet@8", "--budget", "60%", "--work-limit", 200000, "--explain-search", "--ablate", "checkmate,quick")
    sources = [event["source"] for event in without["search"]["events"]]
    assert not any(source.startswith("checkmate@") or source.endswith("@quick") for source in sources)
    text = regen.ok("plan", "zoo:vgg_unet@8", "--budget", "60%", "--work-limit", 200000, "--explain-search")
    assert "best plan" in text and "covering_bound" in text
    assert "is no part of the search" in regen.fails(2, "plan", "zoo:vgg16@64", "--budget", "95%", "--ablate", "nothing")


def test_a_bound_in_advise_never_falls_with_the_budget(regen):
    rows = regen.json("advise", "zoo:vgg_unet@8", "--device", "v100-16", "--backward", "exact", "--points", 5, "--work-limit", 30000)
    for less, more in itertools.pairwise(rows):
        if less["bound_kind"] == more["bound_kind"]:
            assert less["lower_bound"] >= more["lower_bound"] * (1 - 1e-12)
