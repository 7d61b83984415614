"""results/*.csv are whole, and docs/results.md with its figures is what they give."""

import csv
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "results").glob("*.csv"))


def run_check(root):
    return subprocess.run([sys.executable, root / "tools" / "results.py", "--check"], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_row_says_where_it_comes_from(path):
    with open(path, newline="", encoding="utf-8") as file:
        head, *rows = list(csv.reader(file))
    assert len(set(head)) == len(head)
    assert rows
    for row in rows:
        assert len(row) == len(head)
        cells = dict(zip(head, row))
        assert all(cells[column] for column in ("commit", "machine", "date", "command")), row


def test_the_page_and_its_figures_are_what_the_rows_give():
    done = run_check(ROOT)
    assert done.returncode == 0, done.stderr


def test_a_page_that_differs_is_reported(tmp_path):
    for folder in ("results", "tools", "docs/figures", "python/regen_plot", "regen/search/portfolio"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "docs" / "results.md", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    assert run_check(tmp_path).returncode == 0
    path = tmp_path / "results" / "packing.csv"
    path.write_text(path.read_text().replace(",packed,", ",packed,9"))  # another height in every row
    done = run_check(tmp_path)
    assert done.returncode == 1
    assert "docs/results.md is not what results/*.csv give" in done.stderr


def test_a_row_without_provenance_is_reported(tmp_path):
    for folder in ("results", "tools", "docs", "python/regen_plot"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "README.md", tmp_path)
    path = tmp_path / "results" / "zoo.csv"
    path.write_text(path.read_text().replace(",2026-11-15,", ",,", 1))
    done = run_check(tmp_path)
    assert done.returncode == 1
    assert "results/zoo.csv line 2 has no date" in done.stderr
