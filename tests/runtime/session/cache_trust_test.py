"""A cache makes a start faster and does nothing else: damaged, full or strange, it is one warning, and the numbers stay."""

import json
import os
import warnings

import pytest
import torch

import regen
from examples.models import build


def losses(cache, name="mlp"):
    """Two steps of a small training: the bits of the losses and parameters, and what was warned of."""
    torch.manual_seed(0)
    model, args, loss_fn = build(name, tiny=True)
    model.train()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step = regen.step(model, loss_fn, torch.optim.SGD(model.parameters(), lr=0.1), args, 1.0, cache=cache, work_limit=500)
        values = [step(*args) for _ in range(2)]
    bits = [tensor.detach().clone() for tensor in [*values, *model.state_dict().values()]]
    return bits, [str(w.message) for w in caught if str(w.message).startswith("regen: cache")]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def files(folder, kind):
    return [path for path in folder.iterdir() if path.name.startswith(kind)]


@pytest.fixture(scope="module")
def plain():
    return losses(False)[0]


def damage(record):
    """Every lie that the form of a record allows, each in a record of its own."""
    first = record["results"][0] if record["results"] else None
    if first and len(first["sizes"]) == 2:
        yield "strides", lambda r: r["results"][0].update(strides=list(reversed(first["strides"])))
        yield "sizes", lambda r: r["results"][0].update(sizes=list(reversed(first["sizes"])))
    if first and first["source"] == 1:
        yield "view", lambda r: r["results"][0].update(source=2, index=0)
        yield "dtype", lambda r: r["results"][0].update(dtype="int32")
        yield "index", lambda r: r["results"][0].update(index=10**9)
        yield "offset", lambda r: r["results"][0].update(offset=1)
        yield "overwritable", lambda r: r.update(overwritable=[0])
        yield "shorter", lambda r: r.update(shorter_seconds=1e-9)
        yield "deaths", lambda r: r.update(allocations=[[b, birth, birth + 1] for b, birth, _ in r["allocations"]])


def test_an_edited_profile_changes_no_number(tmp_path, plain):
    assert same(losses(tmp_path)[0], plain)
    [path] = files(tmp_path, "profile-")
    good = json.loads(path.read_text())
    kinds = {}
    for key, record in good["calls"].items():
        for name, change in damage(record):
            kinds.setdefault((name, key.split("(")[0]), (key, change))
    assert len(kinds) > 20
    failed = []
    for (name, _), (key, change) in kinds.items():
        edited = json.loads(json.dumps(good))
        change(edited["calls"][key])
        path.write_text(json.dumps(edited))
        for plan in files(tmp_path, "plan-"):
            plan.unlink()
        try:
            assert same(losses(tmp_path)[0], plain), (name, key)
        except regen.Error as error:
            # Found out behind the first update of the step: never silently, and only once.
            assert "as its measurement says" in str(error) and "updates" in str(error), (name, key)
            failed.append(name)
            assert same(losses(tmp_path)[0], plain), (name, key)
    assert len(failed) < len(kinds) / 4


def test_a_profile_of_lies_is_one_warning_and_replaced(tmp_path, plain):
    losses(tmp_path)
    [path] = files(tmp_path, "profile-")
    edited = json.loads(path.read_text())
    for record in edited["calls"].values():
        for result in record["results"]:
            result["index"] = 10**9
    path.write_text(json.dumps(edited))
    bits, said = losses(tmp_path)
    assert same(bits, plain) and len(said) == 1
    assert losses(tmp_path)[1] == []


@pytest.mark.parametrize("content", ["", "{", "[]", "\0" * 100], ids=["empty", "truncated", "list", "zeros"])
def test_a_damaged_cache_is_one_warning(content, tmp_path, plain):
    losses(tmp_path)
    for path in tmp_path.iterdir():
        path.write_text(content)
    bits, said = losses(tmp_path)
    assert same(bits, plain) and len(said) == 1, said
    assert losses(tmp_path)[1] == []


def test_a_cache_that_is_no_folder_is_one_warning(tmp_path, plain):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", "/proc/regen"):
        bits, said = losses(folder)
        assert same(bits, plain) and len(said) == 1, said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a folder away")
def test_a_strangers_cache_is_not_used(tmp_path, plain):
    folder = tmp_path / "cache"
    losses(folder)
    os.chown(folder, 65534, 65534)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    bits, said = losses(folder)
    assert same(bits, plain) and len(said) == 1 and "belongs to user 65534" in said[0]
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_lie_about_the_backward_pass_does_not_outlive_its_step(tmp_path):
    """There the forward pass is done already: the step fails, with nothing changed, and the next start is right."""
    def passes():
        torch.manual_seed(0)
        model, args, loss_fn = build("mlp", tiny=True)
        wrapped = regen.wrap(model.train(), args[:-1], 1.0, reserve=0, cache=tmp_path, work_limit=500)
        loss_fn(wrapped(*args[:-1]), args[-1]).backward()
        return [p.grad.clone() for p in model.parameters()]

    expected = passes()
    [path] = files(tmp_path, "profile-")
    good = json.loads(path.read_text())
    lied = 0
    for key, record in good["calls"].items():
        if "backward" not in key.split("(")[0]:
            continue
        for name, change in damage(record):
            if name != "strides":
                continue
            edited = json.loads(json.dumps(good))
            change(edited["calls"][key])
            path.write_text(json.dumps(edited))
            for plan in files(tmp_path, "plan-"):
                plan.unlink()
            lied += 1
            try:
                assert same(passes(), expected)
            except regen.Error as error:
                assert "measurement" in str(error) or "laid out" in str(error)
            assert same(passes(), expected)
            path.write_text(json.dumps(good))
    assert lied > 0
