"""The experiments on shared input run on a CPU, and write what they print."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PNG = b"\x89PNG\r\n\x1a\n"


def run(script, *arguments):
    return subprocess.run([sys.executable, ROOT / "experiments" / script, *map(str, arguments)], capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("name, jobs", [("switchflow_fig8", {"2"}), ("switchflow_fig9", {"2", "3"})])
def test_rows_table_and_plot(tmp_path, name, jobs):
    done = run(f"{name}.py", "--out", tmp_path, "--tiny", "--cores", 3)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    with open(tmp_path / f"{name}.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 and {row["jobs"] for row in rows} == jobs
    for row in rows:
        separate, shared = float(row["separate"]), float(row["shared"])
        assert separate > 0 and shared > 0
        assert abs(float(row["gain_percent"]) - 100 * (shared / separate - 1)) < 1
        assert f"| {row['models']} | {row['kind']} | {row['batch']} | {row['separate']} | {row['shared']} |" in done.stdout
    assert (tmp_path / f"{name}.png").read_bytes().startswith(PNG)


def test_what_the_time_does_not_allow_is_named(tmp_path):
    done = run("switchflow_fig8.py", "--out", tmp_path, "--tiny", "--cores", 3, "--bound", 0)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Left out, 0 s are over: vgg16+vgg16") == 2
    assert "| resnet50+resnet50 | training | 4 |" in done.stdout


def test_full_models_on_a_cpu_are_refused(tmp_path):
    done = run("switchflow_fig9.py", "--out", tmp_path)
    assert done.returncode == 2 and "expected --device cuda, or --tiny" in done.stderr
