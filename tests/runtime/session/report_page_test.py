"""`step.report()` and `model.regen.report()`: the data of the page is the plan's, measured stands beside predicted, and nothing changes in the run."""

import json
import re

import pytest
import torch
from torch import nn

import regen


def small_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)), nn.Tanh(), nn.Linear(64, 10))


BATCH = torch.randn(128, 64), torch.randint(10, (128,))


@pytest.fixture
def step():
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters())
    return regen.step(model, nn.functional.cross_entropy, optimizer, BATCH, budget=0.9, cache=False, improve=False)


def data_in(page):
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_the_page_of_a_step_says_what_its_plan_says(step, tmp_path):
    step(*BATCH)
    page = step.report(tmp_path / "report.html")
    (plan,), summary = page.data["plans"], page.data["plans"][0]["summary"]
    known = step.plan.session.report
    assert summary["predicted_bytes"] == step.plan.predicted_peak and summary["cost"] == step.plan.predicted_seconds
    assert summary["steps"] == known.steps and summary["lower_bound"] == known.lower_bound
    assert summary["budget_bytes"] == step.plan.session.gross_budget and summary["fits"]
    assert plan["layout"]["of_plan"], "a plan that runs has addresses"
    assert data_in((tmp_path / "report.html").read_text()) == page.data


def test_measured_stands_beside_predicted(step):
    before = step.report().data["plans"][0]["summary"]
    assert before["measured_bytes"] is None and before["measured_seconds"] is None
    step(*BATCH)
    after = step.report().data["plans"][0]["summary"]
    assert after["measured_bytes"] == step.plan.measured_peak > 0
    assert after["measured_seconds"] == step.plan.measured_seconds > 0
    assert {**after, "measured_bytes": None, "measured_seconds": None} == before


def test_modules_and_lines_are_the_users(step):
    graph = step.report().data["graph"]
    paths, ops = graph["modules"]["path"], graph["ops"]
    assert {"", "0", "0.0", "0.1", "0.2", "1", "2"} <= set(paths)
    of = {name: paths[module] for name, module in zip(ops["name"], ops["module"])}
    assert of["relu"] == "0.1" and of["threshold_backward"] == "0.1" and of["tanh"] == "1"
    weights = {name: paths[module] for name, module in zip(graph["tensors"]["name"], graph["tensors"]["module"])}
    assert weights["0.0.weight"] == "0.0" and weights["2.bias.exp_avg"] == "2"


class OwnForward(nn.Module):
    """Its line is in this file."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        return self.layer(x).sin().sum()


def test_a_wrapped_module_has_a_report_with_lines():
    model = regen.wrap(OwnForward(), (torch.randn(8, 64),), budget="1GiB", cache=False, improve=False)
    model(torch.randn(8, 64)).backward()
    graph = model.regen.report().data["graph"]
    at = graph["ops"]["name"].index("sin")
    assert graph["ops"]["texts"][graph["ops"]["source"][at]].startswith("report_page_test.py:")
    assert graph["modules"]["path"][graph["ops"]["module"][at]] == ""


def test_a_report_changes_nothing(step):
    plain = small_model()
    optimizer = torch.optim.Adam(plain.parameters())
    for _ in range(3):
        loss = step(*BATCH)
        step.report()
        optimizer.zero_grad()
        expected = nn.functional.cross_entropy(plain(BATCH[0]), BATCH[1])
        expected.backward()
        optimizer.step()
        assert torch.equal(loss, expected.detach())
    assert all(torch.equal(a, b) for a, b in zip(step.model.parameters(), plain.parameters()))


def test_a_notebook_shows_it_in_a_frame(step):
    page = step.report()
    frame = page._repr_html_()
    assert frame.startswith("<iframe ") and 'sandbox="allow-scripts"' in frame and frame.count("<iframe") == 1
    assert "peak" in repr(page)


def test_another_plan_beside_it(step, tmp_path):
    step.save_plan(tmp_path / "plan.json")
    data = step.report(beside=tmp_path / "plan.json").data
    assert [plan["title"] for plan in data["plans"]][1].endswith("plan.json")
    one, other = data["plans"]
    assert one["steps"] == other["steps"]


def test_bad_input_is_an_error_of_regen_and_leaves_nothing(step, tmp_path):
    with pytest.raises(regen.Error, match="no/folder"):
        step.report(tmp_path / "no/folder/report.html")
    (tmp_path / "damaged.json").write_text('{"format": "regen-plan", "version": 1, "steps": ["c0", "c99999"]}')
    with pytest.raises(regen.Error, match="damaged.json"):
        step.report(tmp_path / "report.html", beside=tmp_path / "damaged.json")
    with pytest.raises(regen.Error, match="missing.json"):
        step.report(beside=tmp_path / "missing.json")
    assert [path.name for path in tmp_path.iterdir()] == ["damaged.json"]
    step(*BATCH)


def test_inference_has_a_report():
    model = regen.share.infer(small_model().eval(), (BATCH[0],), cache=False)
    model(BATCH[0])
    data = model.report().data
    assert data["plans"][0]["summary"]["predicted_bytes"] > 0
    assert set(data["graph"]["ops"]["phase"]) == {0}, "all of it is the forward pass"


def test_without_a_plan_there_is_no_report():
    with pytest.raises(regen.errors.UsageError, match="no plan is in use, expected a step that succeeds first"):
        regen.wrap(small_model(), budget="1GiB").regen.report()


def island(x):
    return x * 2 if x.sum().item() > 0 else x * 3


class WithIsland(nn.Module):
    """Reads what it computes."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.decides = Decides()

    def forward(self, x):
        return self.decides(self.layer(x)).sum()


class Decides(nn.Module):
    """A part that cannot be captured."""

    def forward(self, x):
        return island(x)


def test_islands_are_listed_with_the_reason():
    model = regen.wrap(WithIsland(), (torch.randn(8, 64),), budget="1GiB", cache=False, improve=False)
    model(torch.randn(8, 64)).backward()
    page = model.regen.report().data["plans"][0]
    text = str(model.regen.plan)
    assert len(page["islands"]) == sum(line.startswith("island ") for line in text.splitlines()) == 1
    row = page["islands"][0]
    assert row["name"] in text and row["reason"] in text and row["seconds"] >= 0


def test_a_result_that_takes_the_place_of_an_input_is_kept_once():
    torch.manual_seed(1)
    model = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(64, 64), nn.ReLU(inplace=True))), nn.Linear(64, 10))
    step = regen.step(model, nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), 0.1), BATCH, budget="1GiB", cache=False, improve=False)
    shown = step.report().data["plans"][0]
    assert shown["modules"]["kept_bytes"][0] == step.plan.session.report.kept_bytes


def test_the_lines_of_python_itself_are_nobodys(step):
    graph = step.report().data["graph"]
    assert not [text for text in graph["ops"]["texts"] if text.startswith("contextlib.py")]
