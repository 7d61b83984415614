"""What takes long says so: events for callbacks and the log, a line on a terminal or in a notebook; plans do not depend on listeners."""

import logging
import os
import pathlib
import signal
import subprocess
import sys
import types
import warnings

import pytest
import torch
from torch.nn import functional as F

import regen
from eventually import eventually
from pseudo_terminal import PseudoTerminal
from regen._progress import events, notebook, terminal
from small_training import Net, batch, make

WORKER = pathlib.Path(__file__).parent / "progress_worker.py"
LINK = (1e7, 1e7, 2e7)


def planned(**options):
    model = make(Net, depth=6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return regen.step(model, F.cross_entropy, optimizer, batch(), **{"budget": 0.7, "work_limit": 5_000, "link": LINK, "cache": False, **options})


def planned_anew(cache, **options):
    """With the measurements of the first call, so that counted work finds the same plan again; not with its plan."""
    for kept in cache.rglob("plan-*"):
        kept.unlink()
    return planned(cache=cache, **options)


def plan_of(step):
    return step.active.session.plan_json()


@pytest.fixture
def heard():
    """Every event of a test."""
    found = []
    with regen.on_progress(found.append):
        yield found


# --- callbacks


def test_a_step_says_what_it_does(heard):
    planned()
    ended = [event for event in heard if event.ended]
    assert [event.stage for event in ended] == ["capture", "measure", "plan", "compile"], "all before the call returns"
    capture, measure, plan, _ = ended
    assert capture.done > 50 and capture.total is None and capture.pieces == "ops"
    assert measure.done == measure.total and measure.total >= capture.done
    assert plan.best_seconds >= plan.bound_seconds > 0 and plan.base_seconds > 0
    assert plan.overhead == pytest.approx(plan.best_seconds / plan.base_seconds - 1) and 0 <= plan.gap < 1
    assert [event.number for event in ended] == sorted({event.number for event in heard}), "each piece of work ends once"
    for event in heard:
        assert isinstance(event, regen.ProgressEvent) and event.seconds >= 0 and not event.background
        assert event.text.isascii() and event.text.isprintable()


def test_the_plan_that_is_told_is_the_plan(heard):
    step = planned()
    plan = next(event for event in heard if event.stage == "plan" and event.ended)
    assert plan.best_seconds == step.active.session.report.cost


def test_a_refusal_says_what_it_looked_for(heard):
    with pytest.raises(regen.BudgetError):
        planned(budget="60KB")
    plans = [event for event in heard if event.stage == "plan" and event.ended]
    assert plans[0].best_seconds is None and "no plan yet" in plans[0].text
    assert plans[-1].text.startswith("planning for the least budget") or plans[-1].text.startswith("planned for the least budget")
    assert "so far" in plans[-1].text


def test_only_as_long_as_it_is_asked_for():
    found = []
    handle = regen.on_progress(found.append)
    planned()
    handle.remove()
    count = len(found)
    planned()
    assert count > 0 and len(found) == count
    handle.remove()  # twice does no harm


def test_wrapped_models_and_inference_too(heard):
    model = make(Net)
    regen.wrap(model, (batch()[0],), 0.9, link=LINK, work_limit=1000, cache=False)
    wrapped = len(heard)
    assert {"capture", "measure", "plan", "compile"} <= {event.stage for event in heard}
    regen.share.infer(make(Net).eval(), (batch()[0],), cache=False)
    assert {"capture", "measure", "plan", "compile"} <= {event.stage for event in heard[wrapped:]}


def test_a_callback_that_raises_is_named_once_and_called_no_more(tmp_path):
    calls = []

    def fails(event):
        calls.append(event)
        raise ValueError("no such bar")

    others = []
    expected = plan_of(planned_anew(tmp_path))
    with regen.on_progress(fails), regen.on_progress(others.append), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step = planned_anew(tmp_path)
    assert plan_of(step) == expected
    assert torch.isfinite(step(*batch()))
    texts = [str(warning.message) for warning in caught]
    assert len(calls) == 1 and len(texts) == 1
    assert "fails" in texts[0] and "raised ValueError: no such bar" in texts[0] and "\n" not in texts[0]
    assert {event.stage for event in others if event.ended} == {"capture", "measure", "plan", "compile"}


def test_a_callback_may_use_regen(heard):
    inner = []

    def plans(event):
        if event.stage == "compile" and event.ended and not inner:
            inner.append(planned(budget=0.9))

    with regen.on_progress(plans):
        planned()
        assert eventually(lambda: [e.stage for e in heard if e.ended].count("compile") == 2)
    assert len(inner) == 1


def test_what_is_no_function_is_refused():
    with pytest.raises(regen.OptionTypeError, match="on_progress.*expected a function"):
        regen.on_progress("print")  # type: ignore[arg-type]


def test_a_search_beside_the_training(heard):
    model = make(Net, depth=6)
    wrapped = regen.wrap(model, (batch()[0],), 0.7, improve=0.5, link=LINK, cache=False, reserve=40_000, work_limit=20_000)
    session = wrapped.regen.active.session
    assert session.plan_by(["griewank"])
    wrapped.regen.active.make_ready()
    for seed in range(2):
        F.cross_entropy(wrapped(batch(seed=seed)[0]), batch(seed=seed)[1]).backward()
    assert session.search is not None
    session.search.wait()
    assert eventually(lambda: any(event.stage == "improve" and event.ended for event in list(heard)))
    found = [event for event in heard if event.stage == "improve"]
    assert all(event.background for event in found)
    assert found[-1].best_seconds is not None and found[-1].bound_seconds is not None


def test_a_forked_child_has_the_callbacks(heard):
    planned()
    heard.clear()
    child = os.fork()
    if child == 0:
        try:
            planned()
            ended = [event.stage for event in heard if event.ended]
            os._exit(0 if ended == ["capture", "measure", "plan", "compile"] else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert heard == []


@pytest.mark.parametrize("planner", ["auto", "checkmate"])
def test_the_same_work_gives_the_same_plan(planner, tmp_path):
    options = {"planner": planner, "work_limit": 20_000}
    quiet = planned_anew(tmp_path, **options)
    found = []
    with regen.on_progress(found.append):
        heard_of = planned_anew(tmp_path, **options)
    assert any(event.stage == "plan" and event.ended for event in found), "it was searched for again"
    assert plan_of(heard_of) == plan_of(quiet)


# --- the log


def test_the_log_has_every_end(caplog):
    with caplog.at_level(logging.INFO, "regen"):
        planned()
    lines = [record.getMessage() for record in caplog.records if record.name == "regen"]
    assert [line.split()[0].rstrip(",") for line in lines] == ["captured", "measured", "planned", "compiled"]
    assert all(record.levelno == logging.INFO for record in caplog.records)


def test_long_work_is_logged_while_it_lasts(caplog):
    records = events.LogRecords()

    def event(seconds, ended=False, stage="plan", number=1):
        return events.ProgressEvent(number, stage, 0, None, "", None, None, None, seconds, False, ended, f"{stage} {seconds}")

    with caplog.at_level(logging.INFO, "regen"):
        for seconds in (0.1, 0.9, 1.1, 5.0, 11.0, 11.2, 30.0):
            records(event(seconds))
        records(event(31.0, ended=True))
        for seconds in (0.3, 0.5):
            records(event(seconds, stage="wait", number=2))
        records(event(0.6, stage="wait", number=2, ended=True))
    assert [record.getMessage() for record in caplog.records] == ["plan 1.1", "plan 11.2", "plan 30.0", "plan 31.0"]
    assert records.next == {}


QUIET = """
import sys, threading; sys.path[:0] = [{root!r}, {python!r}]
import torch, regen
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64), torch.nn.Tanh()] * 4)
step = regen.step(model, lambda a, b: (a - b).sum(), torch.optim.SGD(model.parameters(), lr=0.1), (torch.ones(4, 64), torch.ones(4, 64)), "8MiB", cache=False)
print([thread.name for thread in threading.enumerate()])
"""


def test_nothing_is_printed_and_no_thread_started_by_default():
    root = WORKER.parents[3]
    code = QUIET.format(root=str(root), python=str(root / "python"))
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "['MainThread']\n")


# --- the terminal


def worker(what, **options):
    return PseudoTerminal(sys.executable, "-W", "always", str(WORKER), what, **options)


@pytest.mark.parametrize("columns", [40, 120])
def test_other_output_never_stands_in_the_line(columns):
    child = worker("talks", columns=columns)
    assert child.end() == 0
    lines = [line for line in child.screen.lines if line.startswith("regen: capturing")]
    assert len(lines) > 3 and all(len(line) < columns for line in child.screen.lines)
    assert not [line for line in lines if "half" in line or "said" in line]
    complaint = "a complaint that is much longer than a terminal of forty columns"
    folded = [complaint[at:at + columns].rstrip() for at in range(0, len(complaint), columns)]
    assert child.screen.text() == ["said aloud", "half a line and its end", *folded, "logged", "done"]


def test_an_error_leaves_no_line():
    child = worker("fails", columns=500)
    assert child.end() == 8
    assert any(line.startswith("regen: capturing") for line in child.screen.lines)
    *said, error = child.screen.text()
    assert said[:2] == ["said aloud", "half a line and its end"] and "bytes" in error
    assert not any(row.startswith("regen:") for row in child.screen.text())


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}])
def test_ctrl_c_ends_planning_and_the_line(environment):
    child = worker("plans", **environment)
    child.read_until(lambda screen: any("planning, " in line and "best " in line for line in screen.lines))
    child.process.send_signal(signal.SIGINT)
    assert child.end() == 7
    assert child.screen.text() == ["interrupted"]
    assert (b"\x1b" in child.output) == (not environment)


@pytest.mark.parametrize("environment", [{"RANK": "1"}, {"REGEN_PROGRESS": "0"}])
def test_no_line_where_it_is_not_wanted(environment):
    child = worker("talks", **environment)
    assert child.end() == 0
    assert "J" not in child.screen.codes and not any("capturing" in line for line in child.screen.lines)


class Pretended:
    """A stream that says it is a terminal."""

    def __init__(self, descriptor):
        self.descriptor = descriptor
        self.written = []

    def isatty(self):
        return True

    def fileno(self):
        return self.descriptor

    def write(self, text):
        self.written.append(text)
        return len(text)

    def flush(self):
        self.written.append(None)


def test_a_stream_that_is_not_the_terminal_of_the_process(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(sys, "stderr", Pretended(2))
    assert terminal.is_allowed()
    for other in (Pretended(7), None, object()):
        monkeypatch.setattr(sys, "stderr", other)
        assert not terminal.is_allowed()


def test_streams_are_put_back(monkeypatch):
    mine = Pretended(1)
    monkeypatch.setattr(sys, "stdout", mine)
    handler = logging.StreamHandler(mine)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    streams = terminal.Streams()
    streams.enter()
    streams.enter()  # inside
    assert isinstance(sys.stdout, terminal.BesideLine) and isinstance(handler.stream, terminal.BesideLine)
    assert sys.stdout.write("a") == 1 and sys.stdout.fileno() == 1
    sys.stdout.writelines(["b", ""])
    streams.leave()
    assert isinstance(sys.stdout, terminal.BesideLine)
    streams.leave()
    assert sys.stdout is mine and handler.stream is mine
    assert [text for text in mine.written if text is not None] == ["a", "b", ""]
    assert mine.written[mine.written.index("a") + 1] is None, "written out before the line comes again"


def test_a_stream_that_somebody_else_has_put_there_stays(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Pretended(1))
    streams = terminal.Streams()
    streams.enter()
    theirs = Pretended(1)
    monkeypatch.setattr(sys, "stdout", theirs)
    streams.leave()
    assert sys.stdout is theirs


# --- notebooks


class Display:
    """IPython, as far as it is used."""

    def __init__(self):
        self.shown = []
        self.display = types.SimpleNamespace(HTML=lambda text: text, display=self.begin)

    def get_ipython(self):
        return types.SimpleNamespace(kernel=object())

    def begin(self, text, display_id):
        assert display_id is True
        self.shown.append(text)
        return types.SimpleNamespace(update=self.shown.append)


def test_a_notebook_has_a_line_of_its_own(monkeypatch):
    ipython = Display()
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert notebook.is_here() and not terminal.is_allowed()
    line = notebook.Line()

    def event(number, seconds, ended=False, background=False):
        return events.ProgressEvent(number, "plan", 0, None, "", None, None, None, seconds, background, ended, f"planning <{seconds}>")

    for one in (event(1, 0.5), event(1, 1.5), event(2, 0.1), event(2, 3.0, background=True), event(1, 2.5), event(2, 0.2, ended=True), event(1, 3, ended=True),
                 event(3, 0.2), event(3, 0.4, ended=True)):
        line(one)
    assert ipython.shown == ["<code>regen: planning &lt;1.5&gt;</code>", "<code>regen: planning &lt;2.5&gt;</code>", ""]


def test_a_plain_interpreter_is_no_notebook(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not notebook.is_here()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    assert not notebook.is_here()


class WaitsFor(Net):
    """Its forward pass lasts until something is true."""

    def forward(self, x):
        assert eventually(self.condition)
        return super().forward(x)


def test_a_notebook_is_heard_without_asking(monkeypatch):
    ipython = Display()
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setattr(notebook, "SHOWN_AFTER", 0.0)
    reader = events.READER  # there is one in a process: a second one's thread could miss what the first one's was woken for
    monkeypatch.setattr(reader, "own", [])
    model = make(WaitsFor)
    model.condition = lambda: bool(ipython.shown)
    regen.wrap(model, (batch()[0],), 0.9, link=LINK, work_limit=1000, cache=False)
    for listener in reader.own:
        reader.remove(listener)
    assert ipython.shown[0].startswith("<code>regen: capturing") and ipython.shown[-1] == ""
