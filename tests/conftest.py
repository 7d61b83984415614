"""Makes the package, the example models and the helpers of the tests importable without installing anything."""

import os
import pathlib
import sys

import pytest

# Some virtual machines announce matrix units (AMX) that they do not let a process use; oneDNN would try them for bfloat16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

ROOT = pathlib.Path(__file__).resolve().parent.parent
for folder in (ROOT, ROOT / "python", ROOT / "tests" / "support"):
    sys.path.insert(0, str(folder))


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    """With `--dist loadgroup` a worker takes a whole file, as with `loadfile`, but for tests that are in a group of their own."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
