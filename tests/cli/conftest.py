"""The regen binary, and a plan that it wrote."""

import pytest

from regen_program import regen  # noqa: F401, a fixture


@pytest.fixture
def plan(regen):  # noqa: F811  the fixture
    """A plan for zoo:vgg19@4, written by the binary itself."""
    regen.ok("plan", "zoo:vgg19@4", "--planner", "chen_sqrt", "-o", "plan.json")
    return "plan.json"
