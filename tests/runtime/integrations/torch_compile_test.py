"""`torch.compile(model, backend="regen")`."""

import copy
import os
import pathlib
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

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


class Breaks(nn.Module):
    """Reads a number between parts: its graphs have all parameters, none, or buffers as inputs."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 1)

    def forward(self, x):
        h = self.norm(torch.tanh(self.first(x)))
        if h.sum().item() > -1e9:
            h = h * 2
        h = h * float(h.detach().abs().max())
        torch._dynamo.graph_break()
        return self.last(h).square().mean()


class WritesInput(nn.Module):
    """Its second graph changes an input in place through which gradients flow."""

    def __init__(self):
        super().__init__()
        self.first, self.fill, self.last = nn.Linear(8, 16), nn.Parameter(torch.ones(16)), nn.Linear(16, 1)

    def forward(self, x):
        h = torch.tanh(self.first(x)) * 2
        torch._dynamo.graph_break()
        h[1] = self.fill
        torch._dynamo.graph_break()
        return self.last(h).square().mean()


def steps_of(model, parameters):
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    losses = []
    for number in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8, generator=torch.Generator().manual_seed(number)))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


@pytest.mark.parametrize("kind, warned", [(Breaks, 0), (WritesInput, 1)])
def test_graph_breaks(kind, warned):
    torch.manual_seed(0)
    model = kind()
    plain = copy.deepcopy(model)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        compiled = torch.compile(model, backend="regen", options={"budget": "64MiB", "work_limit": 20_000, "cache": False})
        ours = steps_of(compiled, list(model.parameters()))
    theirs = steps_of(plain, list(plain.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert_same(plain, model)
    assert len([w for w in said if "runs without a plan" in str(w.message)]) == warned


ROOT = pathlib.Path(__file__).resolve().parents[3]
ALONE = """
import sys
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
assert "regen" not in sys.modules
planned = torch.compile(model, backend="regen", options={"budget": "1MiB", "work_limit": 20000})
planned(torch.ones(4, 8)).sum().backward()
found = [p.grad.clone() for p in model.parameters()]
model.zero_grad()
model(torch.ones(4, 8)).sum().backward()
assert all(torch.equal(a, p.grad) for a, p in zip(found, model.parameters()))
print(sys.modules["regen"].__name__)
"""
BESIDE = """
import torch
assert "regen" in torch.compiler.list_backends()
import regen
from torch._dynamo.backends.registry import lookup_backend
print(lookup_backend("regen").__name__)
"""


@pytest.mark.parametrize("program", [ALONE, BESIDE], ids=["alone", "beside import regen"])
def test_the_backend_is_found_by_its_entry_point(program, tmp_path):
    """The metadata of an installed package, made from pyproject.toml, on the path of a process."""
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["torch_dynamo_backends"]
    metadata = tmp_path / "regen-0.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: regen\nVersion: 0.0\n")
    (metadata / "entry_points.txt").write_text("[torch_dynamo_backends]\n" + "".join(f"{name} = {place}\n" for name, place in entries.items()))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "python")]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout == "regen\n", done.stderr
