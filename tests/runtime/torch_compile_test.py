"""`torch.compile(model, backend="regen")`."""

import pytest
import torch

from small_training import assert_same, batch, make, train


def test_torch_compile():
    plain, model = make(), make()
    compiled = torch.compile(model, backend="regen", options={"budget": 0.9, "work_limit": 200_000}, fullgraph=True)
    train(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    train(compiled, torch.optim.SGD(model.parameters(), lr=0.1))
    assert_same(plain, model)
    plain.eval(), compiled.eval()
    with torch.no_grad():
        assert torch.equal(plain(batch()[0]), compiled(batch()[0]))


def test_torch_compile_without_a_budget():
    with pytest.raises(Exception, match="has no budget"):
        torch.compile(make(), backend="regen")(batch()[0])
