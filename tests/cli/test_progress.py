"""What takes long says so in one line of a terminal, which is gone at the end, however that comes; nowhere else."""

import json
import signal

import pytest

from pseudo_terminal import PseudoTerminal, shows
from regen_program import BINARY

# Longer than any test waits.
LONG_PLAN = ["plan", "zoo:chain:50000", "--planner", "chen_greedy", "--greedy-points", "100000"]
LONG_SWEEP = ["sweep", "zoo:resnet152@8", "--budgets", "2.5e9:4e9:20000", "--planners", "chen_greedy", "-o", "/dev/null"]
# A budget that square-root plans of so many layers do not keep.
NO_PLAN = [*LONG_PLAN, "--budget", "100"]


def begin(*arguments, **options):
    return PseudoTerminal(str(BINARY), *arguments, **options)


def rows_of_progress(screen):
    return [row for row in screen.text() if row.startswith(("regen: plan", "regen: sweep", "regen: reading"))]


@pytest.mark.parametrize("columns, expected", [
    (40, ["regen: planning, ", "best "]), (120, ["regen: planning, ", "best ", " over keeping everything", "at least "])])
def test_the_line_fits_the_terminal(columns, expected):
    child = begin("plan", "zoo:resnet152@32", "--budget", "1.2e9", "--time-limit", "100000", "--planner", "str", columns=columns)
    child.read_until(lambda screen: len(screen.lines) > 2 and all(part in screen.lines[-1] for part in expected))
    assert len(rows_of_progress(child.screen)) == 1
    child.process.send_signal(signal.SIGINT)
    assert child.end() == 0
    assert all(len(line) < columns for line in child.screen.lines)
    assert not rows_of_progress(child.screen)
    assert child.screen.text()[0].startswith("graph "), "the answer stands where the line was"


def test_what_does_not_fit_is_left_out_as_a_whole():
    child = begin(*LONG_SWEEP, columns=30)
    child.read_until(shows("sweep"))
    child.process.send_signal(signal.SIGINT)
    child.end()
    lines = [line for line in child.screen.lines if "/" in line]
    assert lines and all(line.endswith(("/20000", "/20000 points")) and len(line) < 30 for line in lines)


def test_a_changed_window_counts_at_once():
    child = begin(*LONG_SWEEP, columns=120)
    child.read_until(shows("["))
    child.resize(40)
    wide = len(child.screen.lines)
    child.read_until(lambda screen: len(screen.lines) > wide + 3)
    assert max(map(len, child.screen.lines[:wide])) > 40
    assert all(len(line) < 40 for line in child.screen.lines[wide + 1:]), "but for one that was on its way"
    child.process.send_signal(signal.SIGINT)
    child.end()
    assert not rows_of_progress(child.screen)


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}])
def test_without_escape_codes(environment):
    child = begin(*LONG_SWEEP, columns=60, **environment)
    child.read_until(lambda screen: len(screen.lines) > 3)
    assert len(rows_of_progress(child.screen)) == 1
    child.process.send_signal(signal.SIGINT)
    child.end()
    assert b"\x1b" not in child.output and not rows_of_progress(child.screen)
    assert child.screen.text()[0].startswith("regen: interrupted, ")


def test_nothing_without_a_terminal(regen):
    regen.ok("plan", "zoo:resnet152@32", "--budget", "40%", "--time-limit", 1.5)  # checks that standard error is empty


def test_standard_output_may_be_elsewhere():
    child = begin(*LONG_PLAN, "--json", separate=True)
    child.read_until(shows("planning"))
    child.process.send_signal(signal.SIGINT)
    assert child.process.stdout is not None
    plan = json.loads(child.process.stdout.read())
    child.process.stdout.close()
    assert child.end() == 0
    assert plan["status"] == "feasible" and child.screen.text() == []


def test_it_can_be_switched_off():
    child = begin("plan", "zoo:resnet152@32", "--budget", "40%", "--time-limit", "1.5", "-o", "/dev/null", REGEN_PROGRESS="0")
    assert child.end() == 0
    assert child.screen.lines == [] and "J" not in child.screen.codes


# --- ends that are not good


def test_an_error_stands_alone():
    child = begin(*NO_PLAN, columns=300)
    child.read_until(shows("no plan yet"))
    child.process.send_signal(signal.SIGINT)
    assert child.end() == 3
    rows = child.screen.text()
    assert len(rows) == 1 and rows[0].startswith("regen: planner chen_greedy found no plan for ") and "interrupted" in rows[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_wipe_the_line_and_end_the_program(number):
    child = begin(*LONG_PLAN)
    child.read_until(shows("planning"))
    child.process.send_signal(number)
    assert child.end() == -number
    assert child.screen.text() == []


def test_a_second_interrupt_wipes_the_line_too():
    child = begin(*LONG_PLAN)
    child.read_until(shows("planning"))
    while child.process.poll() is None:
        child.process.send_signal(signal.SIGINT)
    assert child.end() == 130
    assert child.screen.text() == []


@pytest.mark.parametrize("verb, shown", [("explain", "reading the graph, "), ("pack", "pack, ")])
def test_an_interrupt_where_nothing_catches_it(verb, shown):
    """Every verb has a line; these read a pipe that says nothing."""
    child = begin(verb, "/dev/stdin", silent_input=True)
    child.read_until(shows(f"regen: {shown}"))
    child.process.send_signal(signal.SIGINT)
    assert child.end() == -signal.SIGINT
    assert child.screen.text() == []


# --- beside other output


def test_lines_that_were_asked_for_stay_above():
    child = begin(*LONG_PLAN, "--progress", columns=120)
    child.read_until(lambda screen: len(screen.lines) > 5)
    child.process.send_signal(signal.SIGINT)
    assert child.end() == 0
    log = [row for row in child.screen.text() if " s: best " in row]
    assert log and all(row.endswith(" flop") and not row.startswith("regen") for row in log)
    assert not rows_of_progress(child.screen)


# --- what is found does not depend on it


@pytest.mark.parametrize("planner", ["auto", "checkmate", "chen_greedy"])
def test_the_same_work_gives_the_same_plan(regen, planner):
    asked = ["plan", "zoo:resnet50@16", "--budget", "40%", "--planner", planner, "--work-limit", "50000", "-o"]
    regen.ok(*asked, "alone.json")
    child = begin(*asked, str(regen.folder / "shown.json"))
    assert child.end() == 0
    alone, shown = (json.loads(regen.bytes_of(name)) for name in ("alone.json", "shown.json"))
    assert alone["steps"] and alone["steps"] == shown["steps"]
