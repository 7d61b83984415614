"""The generated references are what the program and the package say."""

import os
import pathlib
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


def test_a_program_that_is_missing_is_one_line():
    done = run_check("command_line_reference.py", REGEN_BIN="/nowhere/regen")
    assert done.returncode == 1
    assert done.stderr == "/nowhere/regen is not there, expected the program: build it, or set REGEN_BIN\n"


def test_the_python_reference_is_what_docstrings_say():
    for framework in ("torch", "transformers", "lightning"):  # of which the classes of regen.integrations are made
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    done = run_check("python_reference.py")
    assert done.returncode == 0, done.stderr
