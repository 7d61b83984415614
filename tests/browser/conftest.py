"""Reports of several kinds, and a browser that opens them."""

import pathlib
import sys

import pytest

from devtools import Browser, chromium
from regen_program import Regen
from shown_report import Shown

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "share"))  # daemons, for their page


@pytest.fixture(scope="session")
def browser():
    if chromium() is None:
        pytest.skip("no Chromium here; tools/setup.sh installs it (Debian: apt install chromium)")
    with Browser() as running:
        yield running


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reports")


GRAPH = ["zoo:gpt2@4", "--backward", "exact", "--optimizer", "adam", "--device", "v100-16"]


@pytest.fixture(scope="session")
def program(folder):
    return Regen(folder)


@pytest.fixture(scope="session")
def shown(program):
    """GPT-2 under a budget: recomputes and moves."""
    program.ok("plan", *GRAPH, "--budget", "75%", "--work-limit", "300000", "-o", "plan.json")
    return Shown(program, "gpt2", *GRAPH, "plan.json", "--budget", "75%")


@pytest.fixture
def page(browser, shown):
    opened = browser.open(shown.url)
    opened.wait_for("document.documentElement.dataset.ready === 'yes'")
    yield opened
    assert opened.problems() == []
    opened.close()
