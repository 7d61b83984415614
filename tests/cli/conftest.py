"""The regen binary, and a plan that it wrote."""

import pytest

from regen_program import BINARY, Regen


@pytest.fixture
def regen(tmp_path):
    if not BINARY.exists():
        pytest.fail(f"no binary at {BINARY}; build it or set REGEN_BIN")
    return Regen(tmp_path)


@pytest.fixture
def plan(regen):
    """A plan for zoo:vgg19@4, written by the binary itself."""
    regen.ok("plan", "zoo:vgg19@4", "--planner", "chen_sqrt", "-o", "plan.json")
    return "plan.json"
