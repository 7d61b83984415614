"""The generated references are what the program and the package say."""

import csv
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REGEN = pathlib.Path(os.environ.get("REGEN_BIN", ROOT / "build" / "regen"))


def run_check(tool, **environment):
    command = [sys.executable, ROOT / "tools" / tool, "--check"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


@pytest.mark.skipif(not REGEN.exists(), reason="needs the program build/regen")
def test_the_command_line_is_what_help_prints():
    done = run_check("command_line_reference.py", REGEN_BIN=str(REGEN.resolve()))
    assert done.returncode == 0, done.stderr


def test_the_covered_models_are_those_of_the_rows():
    done = run_check("covered_models.py")
    assert done.returncode == 0, done.stderr


def test_a_row_that_the_page_does_not_have_is_reported(tmp_path):
    for folder in ("results", "tools", "docs/reference"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    path = tmp_path / "results" / "coverage.csv"
    path.write_text(path.read_text().replace("llama,transformers,", "llama_2,transformers,"))
    done = subprocess.run([sys.executable, tmp_path / "tools" / "covered_models.py", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "docs/reference/covered-models.md is not what results/coverage.csv gives: run tools/covered_models.py\n"


def test_every_architecture_has_a_row():
    pytest.importorskip("transformers", reason="transformers is not installed")
    sys.path.insert(0, str(ROOT / "experiments"))
    import coverage

    with open(ROOT / "results" / "coverage.csv", newline="", encoding="utf-8") as file:
        assert {row["network"] for row in csv.DictReader(file)} == {case.name for case in coverage.ARCHITECTURES}


def test_a_program_that_is_missing_is_one_line():
    done = run_check("command_line_reference.py", REGEN_BIN="/nowhere/regen")
    assert done.returncode == 1
    assert done.stderr == "/nowhere/regen is not there, expected the program: build it, or set REGEN_BIN\n"


def test_the_python_reference_is_what_docstrings_say():
    for framework in ("torch", "transformers", "lightning"):  # of which the classes of regen.integrations are made
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    done = run_check("python_reference.py")
    assert done.returncode == 0, done.stderr
