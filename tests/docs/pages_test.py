"""Every command of README.md and docs/ runs here, or its page says which test runs it, or why none can (tools/page_blocks.py)."""

import collections
import importlib.util
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import page_blocks
from page_session import REGEN, Session

PAGES = {path: page_blocks.read(path) for path in page_blocks.pages()}
# What `import` finds only where it is installed: its pages need it.
FRAMEWORKS = ("torch", "transformers", "accelerate", "peft", "diffusers", "lightning", "matplotlib")


def commands():
    return [block for page in PAGES.values() for block in page.blocks if block.is_command]


def runs(page):
    return any(block.is_command and not block.tested_by and not block.not_run for block in page.blocks)


def frameworks(page):
    """The packages that the page needs beside regen."""
    text = "\n".join(block.text for block in [*page.before_each, *page.blocks])
    return [name for name in FRAMEWORKS if re.search(rf"^ *(?:import|from) {name}\b", text, re.MULTILINE)]


RUN = [page for page in PAGES.values() if runs(page)]


@pytest.mark.skipif(not REGEN.exists(), reason="needs the program build/regen")
@pytest.mark.parametrize("page", [pytest.param(page, id=page.name, marks=pytest.mark.xdist_group(page.name)) for page in RUN])
def test_the_blocks_of_a_page_run(page, tmp_path):
    for name in frameworks(page):
        pytest.importorskip(name, reason=f"{name} is not installed")
    with Session(tmp_path) as session:
        session.run(page)


def test_every_command_is_accounted_for(record_property):
    """Each block runs here, in a test that is named, or cannot run for one of a few reasons."""
    counts = collections.Counter()
    for block in commands():
        assert not (block.tested_by and block.not_run), f"{block.place}: tested, and not run"
        assert block.not_run in ("", *page_blocks.NOT_RUN), f"{block.place}: not run: {block.not_run}; expected one of {', '.join(page_blocks.NOT_RUN)}"
        assert set(block.varies) <= set(page_blocks.VARYING), f"{block.place}: varies: {block.varies}"
        counts["tested elsewhere" if block.tested_by else block.not_run or "run here"] += 1
    for reason, count in sorted(counts.items()):
        record_property(reason, count)
        print(f"{count:4} {reason}")
    assert counts["run here"] > 0.8 * counts.total()
