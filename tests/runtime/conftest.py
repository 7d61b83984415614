"""One thread, a cache of its own, and the memory meter in place before any tensor is made."""

import gc

import pytest
import torch

from regen import _runtime

_runtime.install_memory_meter()
# What the libraries made at their import is never garbage; looking at it would take most of each collection.
gc.freeze()


@pytest.fixture(autouse=True)
def alone(tmp_path_factory, monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setenv("REGEN_CACHE", str(tmp_path_factory.getbasetemp() / "regen-cache"))
    gc.collect()
    yield
