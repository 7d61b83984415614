"""Errors are text, whatever the user has written and wherever it was cut."""

import pytest

import regen
from examples.models import build


@pytest.mark.parametrize("before", ["", "x", "xy", "xyz"])
@pytest.mark.parametrize("character", ["é", "€", "😀"])
def test_a_message_is_cut_between_characters(before, character):
    model, args, _ = build("mlp", tiny=True)
    for options in ({"budget": before + character * 60}, {"budget": 1.0, "planner": before + character * 60}):
        with pytest.raises(regen.Error) as caught:
            regen.wrap(model.train(), args[:-1], cache=False, reserve=0, **options)
        assert "expected" in str(caught.value)
