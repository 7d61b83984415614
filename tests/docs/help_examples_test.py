"""Every example of `regen VERB --help`, as the reference of the command line shows it, runs."""

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import page_blocks

from page_session import REGEN, Session

PAGES = [ROOT / "docs" / "reference" / name for name in ("command-line.md", "command-line-running.md")]
HELPS = [block for path in PAGES for block in page_blocks.read(path).blocks if block.is_help]
# These do not end: they are stopped after a moment by the signal of Ctrl-C, which `timeout` reports as 124.
ENDLESS = re.compile(r"regen share (serve|status --watch)\b")
ELSEWHERE = {
    "regen advise zoo:resnet50@64 --device v100-16": "half a minute of search; the page of the verb runs one like it",
    "regen share set train --priority 1 --memory 20GiB": "needs a job that runs: tests/share/daemon/test_share.py::test_set_changes_a_job_that_runs",
}


def examples(block):
    return [line.strip() for line in block.text.partition("\nExample:\n")[2].splitlines()]


def test_every_help_that_runs_something_has_an_example():
    without = [block.text.splitlines()[0] for block in HELPS if not examples(block)]
    assert without == []
    lines = {line for block in HELPS for line in examples(block)}
    assert set(ELSEWHERE) <= lines and len(lines) > 35


@pytest.mark.skipif(not REGEN.with_name("regen-runtime").exists(), reason="needs the programs regen and regen-runtime")
def test_the_examples_of_help_run(tmp_path):
    pytest.importorskip("regen")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    ran = 0
    with Session(tmp_path) as session:
        for name in ("captured_networks.py", "files_of_help.sh", "daemon.sh"):
            session.run_block(page_blocks.hidden("help", 0, f"fixture: {name}"))
        for line in dict.fromkeys(line for block in HELPS for line in examples(block)):
            if line in ELSEWHERE:
                continue
            endless = ENDLESS.match(line)
            socket = " --socket other.sock" if endless and endless[1] == "serve" else ""
            command = f"timeout --signal INT 1 {line}{socket}" if endless else line
            printed, status = session.run_shell(command + "\n", strict=False)
            assert status == (124 if endless else 0), f"{line}\n{printed}"
            ran += 1
    assert ran > 35
