"""`import regen` finds the package, also where the C++ folder `regen/` of the repository is nearer."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = "import regen; print(regen.step.__module__, regen.__file__)"


def imported(folder, **environment):
    """What a Python program that is started in `folder` gets."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", CODE], cwd=folder, env={**inherited, **environment}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    module, file = done.stdout.split()
    assert module == "regen._step"
    return pathlib.Path(file).resolve()


def test_the_package_is_nearer_than_the_folder_of_the_sources():
    """A namespace package, as which Python sees `regen/`, never hides a package, wherever both are in the path."""
    assert imported(ROOT, PYTHONPATH=str(ROOT / "python")) == ROOT / "python" / "regen" / "__init__.py"


def test_programs_of_the_virtual_environment_find_the_package():
    """tools/setup.sh names the package's folder in the environment's site-packages."""
    if pathlib.Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
        return  # another environment has the package installed, or PYTHONPATH
    for folder in (ROOT, ROOT / "tests"):
        assert imported(folder) == ROOT / "python" / "regen" / "__init__.py"


FRAMEWORKS = ("transformers", "lightning", "pytorch_lightning", "accelerate", "peft", "diffusers", "trl", "datasets")
MISSING = f"""
import sys
import regen
assert not [name for name in {FRAMEWORKS} if name in sys.modules]
sys.modules.update(dict.fromkeys({FRAMEWORKS}))
for name in ("hugging_face", "lightning"):
    try:
        getattr(regen.integrations, name)
    except regen.MissingPackageError as error:
        assert isinstance(error, ImportError)
        print(error)
"""


def test_frameworks_are_imported_when_their_integration_is_asked_for():
    """And one that is missing is named in one line."""
    done = subprocess.run(
        [sys.executable, "-c", MISSING], env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "regen.integrations.hugging_face needs transformers, which is not installed: pip install transformers",
        "regen.integrations.lightning needs lightning, which is not installed: pip install lightning"]


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import torch
import regen
from regen.share._random_state import decode, encode

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1))
batch = torch.randn(4, 8), torch.randn(4, 1)
step = regen.step(model, torch.nn.functional.mse_loss, torch.optim.AdamW(model.parameters()), batch, budget="8MiB", cache=False)
assert torch.isfinite(step(*batch))
state = torch.get_rng_state()
assert torch.equal(decode(encode(state)), state)
"""


def test_numpy_need_not_be_installed():
    """torch does without."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT_NUMPY], env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True,
        timeout=120)
    assert done.returncode == 0, done.stderr
