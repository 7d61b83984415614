"""The code of docs/tutorials runs: ```python blocks of a page as one script, ```sh blocks as one shell script.

A block ```python file=NAME is a file that the shell blocks use.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REGEN = pathlib.Path(os.environ.get("REGEN_BIN", ROOT / "build" / "regen")).resolve()
BLOCK = re.compile(r"^```(python|sh)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page):
    return BLOCK.findall((ROOT / "docs" / "tutorials" / page).read_text())


def environment(folder):
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "python"), "REGEN_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}


def run(command, folder):
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def prepare(page, folder):
    """Writes the files of a page and puts `regen` and `python` on the path; returns its shell script."""
    (folder / "regen").symlink_to(REGEN)
    (folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "python").chmod(0o755)
    script = "set -e\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n"
    for language, name, text in blocks(page):
        if name:
            (folder / name).write_text(text)
        elif language == "sh":
            script += text
    return script


def test_train_a_model_that_does_not_fit(tmp_path):
    pytest.importorskip("torch")
    script = "".join(text for language, name, text in blocks("train-a-model-that-does-not-fit.md") if language == "python")
    (tmp_path / "tutorial.py").write_text(script)
    printed = run([sys.executable, "tutorial.py"], tmp_path)
    assert "True fits: " in printed
    assert "no plan fits into 5,242,880 bytes" in printed
    assert (tmp_path / "plan.json").exists()


@pytest.mark.skipif(not REGEN.exists(), reason="needs the program build/regen")
def test_share_a_gpu(tmp_path):
    pytest.importorskip("torch")
    script = prepare("share-a-gpu.md", tmp_path)
    printed = run(["bash", "-m", "-c", script], tmp_path)
    assert "gave way" in printed
    assert "median of 20 requests" in printed
    assert (tmp_path / "status.json").read_text().startswith("{")


@pytest.mark.skipif(not REGEN.exists(), reason="needs the program build/regen")
def test_reproduce_a_paper(tmp_path):
    printed = run(["bash", "-c", prepare("reproduce-a-paper.md", tmp_path)], tmp_path)
    assert re.search(r"keep_all\s+167\b", printed)
    assert re.search(r"checkmate\s+289\b", printed)
    assert "58982891520" in printed
