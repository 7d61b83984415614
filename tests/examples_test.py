"""The example scripts run, in seconds, on a CPU."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
QUICK = ["--device", "cpu", "--work-limit", "20000"]
REGEN = pathlib.Path(os.environ.get("REGEN_BIN", EXAMPLES.parent / "build" / "regen")).resolve()


@pytest.fixture
def run(tmp_path_factory, tmp_path):
    environment = {**os.environ, "REGEN_CACHE": str(tmp_path_factory.getbasetemp() / "cache"), "OMP_NUM_THREADS": "1"}

    def run(script, *arguments, launcher=()):
        ran = subprocess.run(
            [sys.executable, *launcher, str(EXAMPLES / script), *arguments], cwd=tmp_path, env=environment,
            capture_output=True, text=True, timeout=600)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return run


def losses(text):
    return [float(x) for x in re.findall(r"loss ([0-9.]+)", text)]


def test_imagenet(run, tmp_path):
    first = run("imagenet.py", "--steps", "4", "--print-every", "1", "--save-plan", "plan.json", "--save-program", "program", *QUICK)
    assert len(losses(first)) == 4 and "plan by" in first and (tmp_path / "checkpoint.pt").exists()
    assert check(tmp_path, "--check-diff")["equal"]
    measured = check(tmp_path, "--check-runtime")
    assert measured["peak_bytes"] <= measured["predicted_peak_bytes"]
    again = run("imagenet.py", "--steps", "2", "--epochs", "2", "--print-every", "1", "--resume", "checkpoint.pt", "--plan", "plan.json", *QUICK)
    assert "resumed checkpoint.pt at epoch 1" in again and len(losses(again)) == 2 and "epoch 1: accuracy" in again
    assert "accuracy" in run("imagenet.py", "--resume", "checkpoint.pt", "--evaluate", *QUICK)


def check(folder, option):
    """`regen bench` on the plan and the program that an example saved; what ops need depends on the number of threads."""
    ran = subprocess.run([REGEN, "bench", "program", "plan.json", option, "--json"], cwd=folder, capture_output=True, text=True,
                         env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_imagenet_from_a_folder(run, tmp_path):
    pytest.importorskip("torchvision")
    from PIL import Image
    for part in ("train", "val"):
        for kind in ("cat", "dog"):
            folder = tmp_path / "pictures" / part / kind
            folder.mkdir(parents=True)
            for i in range(4):
                Image.new("RGB", (40, 40), (60 * i, 0, 0)).save(folder / f"{i}.png")
    text = run("imagenet.py", str(tmp_path / "pictures"), "-b", "4", "--workers", "0", "--steps", "2", "--budget", "0.98", *QUICK)
    assert "accuracy" in text


def test_segmentation(run):
    text = run("segmentation.py", "--steps", "6", "--budget", "0.8", *QUICK)
    assert losses(text)[-1] < losses(text)[0]


@pytest.mark.parametrize("extra", [[], ["--bf16", "--accumulate", "2"]])
def test_language_model(run, extra):
    text = run("language_model.py", "--steps", "5", "--budget", "0.8", *QUICK, *extra)
    assert losses(text)[-1] < losses(text)[0]


def test_ddp(run):
    text = run("ddp.py", "--steps", "3", *QUICK,
               launcher=["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"])
    assert len(losses(text)) == 3 and "plan by" in text


def test_max_batch(run):
    text = run("max_batch.py", "vit", "--memory", "400kB", "--steps", "8", *QUICK)
    plain, planned = map(int, re.search(r"batch (\d+) keeping everything, (\d+) planned", text).groups())
    assert 0 < plain < planned


def test_fine_tune(run, tmp_path):
    """With a budget, from a checkpoint on, the weights are those of a plain run that was never interrupted."""
    for package in ("transformers", "accelerate"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    small = ["--steps", "4", "--save-every", "2", "--batch", "2", "--length", "16", "--width", "32", "--depth", "2", "--accumulate", "2"]
    run("fine_tune.py", "--out", "plain", *small)
    found = run("fine_tune.py", "--out", "budget", "--budget", "90%", "--resume", "plain/checkpoint-2", *small)
    assert "predicted" in found
    for name in ("model.safetensors", "checkpoint-4/optimizer.pt", "checkpoint-4/scheduler.pt", "checkpoint-4/rng_state.pth"):
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "budget" / name).read_bytes(), name
