"""A process that starts from the cache of others has the same program, plan and bits as one that measures and plans everything itself."""

import json
import pathlib
import subprocess
import sys

import pytest

import regen
from examples.models import build

WORKER = pathlib.Path(__file__).parent / "cached_start_worker.py"


def start(kind, cache):
    return subprocess.Popen([sys.executable, str(WORKER), kind, str(cache)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process):
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


@pytest.mark.parametrize("kind", ["wrap", "step"])
def test_processes_share_a_cache(kind, tmp_path):
    first, beside = map(result, [start(kind, tmp_path), start(kind, tmp_path)])  # at the same time
    again, uncached = map(result, [start(kind, tmp_path), start(kind, "")])
    later = result(start(kind, tmp_path))
    assert first["program"] == beside["program"] == again["program"] == later["program"]
    # Two that measure at the same time: times and link of the first writer stay in the files, and are what the other plans with as
    # well. All of them run the same calls, and a search of counted work makes the same plan of the same numbers: so all have one plan.
    assert first["plan"] == beside["plan"] == again["plan"] == later["plan"]
    assert first["bits"] == beside["bits"] == again["bits"] == later["bits"] == uncached["bits"]
    assert not list(tmp_path.glob(".*"))


def test_without_a_cache_the_disk_stays_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("REGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    model, args, _ = build("mlp", tiny=True)
    regen.wrap(model.train(), args[:-1], 1.0, reserve=0, cache=False)
    regen.will_it_fit(model, args[:-1], 1.0, cache=False)
    assert not list(tmp_path.iterdir())
