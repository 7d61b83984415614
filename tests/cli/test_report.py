"""`regen report`: the JSON says what the judge says, the page holds the same JSON, and bad input is one line."""

import io
import json
import pickle
import pickletools
import re

import pytest

from regen_program import Regen

GRAPH = ("zoo:resnet50@4", "--backward", "exact", "--optimizer", "momentum", "--device", "v100-16")


@pytest.fixture(scope="module")
def moving_text(tmp_path_factory):
    program = Regen(tmp_path_factory.mktemp("plan"))
    return program.ok("plan", *GRAPH, "--budget", "70%", "--work-limit", "100000", "-o", "-")


@pytest.fixture
def moving(regen, moving_text):
    """A plan that recomputes and moves."""
    return regen.write("moving.json", moving_text)


def document_in(page: str):
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_the_json_says_what_the_judge_says(regen, moving):
    document = regen.json("report", *GRAPH, moving)
    judged = regen.json("simulate", *GRAPH, moving)
    assert (document["format"], document["version"]) == ("regen-report", 1)
    (plan,) = document["plans"]
    bytes_of = ("peak_bytes", "activation_peak_bytes", "host_peak_bytes", "offloaded_bytes", "fetched_bytes")
    for key in (*bytes_of, "cost", "overhead", "peak_step", "steps", "recomputed"):
        assert plan["summary"][key] == judged[key], key
    assert plan["summary"]["budget_bytes"] is None and plan["summary"]["fits"] is None
    assert document["graph"]["fixed_bytes"] == judged["fixed_bytes"] and document["graph"]["base_cost"] == judged["base_cost"]
    assert plan["summary"]["recomputed"] + plan["summary"]["offloaded_bytes"] > 0, "the test needs a plan that does something"


def test_the_peak_is_the_one_that_explain_explains(regen, moving):
    peak = regen.json("report", *GRAPH, moving)["plans"][0]["peak"]
    why = regen.json("explain", *GRAPH, moving, "--work-limit", "1")
    assert peak["bytes"] == why["peak_bytes"] and len(peak["live"]) == len(why["live"])
    assert [row["bytes"] for row in peak["live"]] == [row["bytes"] for row in why["live"]]


def test_the_boxes_add_up_in_every_step(regen, moving):
    document = regen.json("report", *GRAPH, moving)
    (plan,), boxes = document["plans"], document["plans"][0]["boxes"]
    count = plan["summary"]["steps"]
    change = [0] * (count + 1)
    for begin, end, size in zip(boxes["from"], boxes["to"], boxes["bytes"]):
        change[begin] += size
        change[end] -= size
    live = document["graph"]["fixed_bytes"]
    for step in range(count):
        live += change[step]
        assert plan["steps"]["device_bytes"][step] == live, step


def test_the_modules_of_the_whole_network_are_the_whole_step(regen, moving):
    document = regen.json("report", *GRAPH, moving)
    plan = document["plans"][0]
    modules, summary = plan["modules"], plan["summary"]
    assert modules["recomputed"][0] == summary["recomputed"]
    assert modules["moved_bytes"][0] == summary["offloaded_bytes"] + summary["fetched_bytes"]
    assert modules["added_cost"][0] == pytest.approx(summary["cost"] - document["graph"]["base_cost"])
    parents = document["graph"]["modules"]["parent"]
    children = [m for m, parent in enumerate(parents) if parent == 0]
    assert sum(modules["cost"][m] for m in children) == pytest.approx(modules["cost"][0])


def test_the_page_holds_the_json_and_needs_nothing_else(regen, moving):
    printed = regen.json("report", *GRAPH, moving, "-o", "report.html")
    page = regen.bytes_of("report.html").decode()
    assert document_in(page) == printed
    assert "http://" not in page and "https://" not in page and "src=" not in page.split('id="report"')[0]
    assert len(page) < 3_000_000
    assert regen.ok("report", *GRAPH, moving, "-o", "-") == page


def test_the_budget_decides_whether_it_fits(regen, moving):
    peak = regen.json("report", *GRAPH, moving)["plans"][0]["summary"]["peak_bytes"]
    for budget, fits in ((peak, True), (peak - 1, False)):
        summary = regen.json("report", *GRAPH, moving, "--budget", budget)["plans"][0]["summary"]
        assert summary["fits"] is fits and summary["budget_bytes"] == budget


def test_two_plans_beside_each_other(regen, moving):
    regen.ok("plan", *GRAPH, "--planner", "keep_all", "-o", "kept.json")
    document = regen.json("report", *GRAPH, moving, "kept.json")
    assert [plan["title"] for plan in document["plans"]] == [moving, "kept.json"]
    assert document["plans"][1] == {**regen.json("report", *GRAPH, "kept.json")["plans"][0]}


HOSTILE = ["</script><script>alert(1)</script>", "<!--<script>", "x" * 10_000_000, "a\u2028b", "\x1b[31m\u0000"]


def test_hostile_names_stay_inside_of_their_strings(regen):
    tensors = [{"name": name, "bytes": 8} for name in HOSTILE]
    ops = [{"name": name, "outputs": [i], "attributes": {"module": name, "source": name}} for i, name in enumerate(HOSTILE)]
    regen.write("g.json", {"format": "regen-graph", "version": 1, "name": HOSTILE[0], "tensors": tensors, "ops": ops})
    regen.write("p.json", {"format": "regen-plan", "version": 1, "planner": HOSTILE[1], "steps": [f"c{i}" for i in range(len(HOSTILE))]})
    regen.ok("report", "g.json", "p.json", "-o", "report.html")
    page = regen.bytes_of("report.html").decode()
    assert len(page) < 200_000 and page.count("<script") == 2
    document = document_in(page)
    assert document["title"] == HOSTILE[0]
    assert all(len(name) <= 123 for name in document["graph"]["tensors"]["name"])


@pytest.mark.parametrize("arguments,words", [
    ((*GRAPH, "moving.json"), "-o"),
    ((*GRAPH, "missing.json", "-o", "r.html"), "missing.json"),
    ((*GRAPH, "moving.json", "missing.json", "-o", "r.html"), "missing.json"),
    (("zoo:vgg16@4", "moving.json", "-o", "r.html"), "moving.json"),
    ((*GRAPH, "moving.json", "-o", "no/such/folder/r.html"), "no/such/folder"),
    ((*GRAPH, "moving.json", "-o", "."), "."),
    ((*GRAPH, "moving.json", "--budget", "much", "-o", "r.html"), "much"),
    ((*GRAPH, "-o", "r.html"), "PLAN"),
])
def test_bad_input_is_one_line(regen, moving, arguments, words):
    assert words in regen.fails(2, "report", *arguments)


DAMAGES = [
    lambda text: text[:-40],
    lambda text: text.replace('"c0"', '"q0"'),
    lambda text: text.replace('"c1",', '"c9999999",'),
    lambda text: "",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_plan_is_one_line(regen, moving, damage):
    regen.write("damaged.json", damage(regen.bytes_of(moving).decode()))
    assert "damaged.json" in regen.fails(2, "report", *GRAPH, "damaged.json", "-o", "r.html")


def test_moves_without_a_device_are_one_line(regen, moving):
    """No speed of copies is given."""
    if "f" not in regen.json("report", *GRAPH, moving)["plans"][0]["steps"]["kind"]:
        pytest.fail("the test needs a plan that moves")
    assert "--device" in regen.fails(2, "report", *GRAPH[:5], "moving.json", "-o", "r.html")


# --- the curve

ROWS = [{"budget_bytes": 900, "cost": 2.0, "lower_bound": 1.0, "knee": False}, {"budget_bytes": 300, "cost": None, "lower_bound": 1.5}]


def test_a_curve_from_a_file_is_ascending_in_bytes(regen, moving):
    regen.write("curve.json", ROWS)
    curve = regen.json("report", *GRAPH, moving, "--curve-file", "curve.json")["plans"][0]["curve"]
    assert curve == [{"bytes": 300, "cost": None, "lower_bound": 1.5}, {"bytes": 900, "cost": 2.0, "lower_bound": 1.0}]


def test_what_advise_prints_is_a_curve(regen):
    regen.ok("plan", "zoo:linear16", "-o", "p.json")
    rows = regen.json("advise", "zoo:linear16", "--points", "4", "--work-limit", "1000")
    regen.write("rows.json", rows)
    curve = regen.json("report", "zoo:linear16", "p.json", "--curve-file", "rows.json")["plans"][0]["curve"]
    assert [point["bytes"] for point in curve] == [row["budget_bytes"] for row in rows]
    assert [point["cost"] for point in curve] == [row["cost"] for row in rows]


def test_a_computed_curve_goes_down(regen):
    regen.ok("plan", "zoo:linear16", "-o", "p.json")
    document = regen.json("report", "zoo:linear16", "p.json", "--curve", "--work-limit", "2000")
    curve = document["plans"][0]["curve"]
    costs, sizes = [point["cost"] for point in curve], [point["bytes"] for point in curve]
    assert len(curve) >= 3 and costs == sorted(costs, reverse=True) and sizes == sorted(sizes)
    assert costs[-1] == document["graph"]["base_cost"]
    assert all(point["lower_bound"] <= point["cost"] * (1 + 1e-9) for point in curve)


@pytest.mark.parametrize("content,words", [
    ("{}", "array"), ('[{"cost": 1}]', "budget_bytes"), ('[{"budget_bytes": -1}]', "-1"), ('[{"budget_bytes": 1, "cost": "x"}]', "cost"), ("[", "curve.json")])
def test_a_damaged_curve_is_one_line(regen, moving, content, words):
    regen.write("curve.json", content)
    assert words in regen.fails(2, "report", *GRAPH, moving, "--curve-file", "curve.json", "-o", "r.html")


def test_what_a_run_has_measured_stands_beside_the_prediction(regen, moving):
    regen.write("run.json", {"measured_peak_bytes": 123456, "measured_seconds": 0.25, "other": []})
    regen.ok("plan", *GRAPH, "--planner", "keep_all", "-o", "kept.json")
    plans = regen.json("report", *GRAPH, moving, "kept.json", "--measured", "run.json")["plans"]
    assert [plan["summary"]["measured_bytes"] for plan in plans] == [123456, None]
    assert [plan["summary"]["measured_seconds"] for plan in plans] == [0.25, None]


@pytest.mark.parametrize("content,words", [("[]", "object"), ("{}", "regen run --json"), ('{"measured_seconds": -1}', "measured_seconds")])
def test_a_damaged_measurement_is_one_line(regen, moving, content, words):
    regen.write("run.json", content)
    assert words in regen.fails(2, "report", *GRAPH, moving, "--measured", "run.json", "-o", "r.html")


def test_options_without_their_purpose_are_refused(regen, moving):
    assert "--curve" in regen.fails(2, "report", *GRAPH, moving, "--time-limit", "1", "-o", "r.html")
    assert "--json" in regen.fails(2, "report", *GRAPH, moving, "--json", "-o", "-")
    assert "--trace" in regen.fails(2, "report", *GRAPH, moving, moving, "--trace", "t.json", "-o", "r.html")
    assert "--snapshot" in regen.fails(2, "report", *GRAPH, moving, moving, "--snapshot", "t.pickle", "-o", "r.html")
    assert "--curve" in regen.fails(2, "report", *GRAPH, moving, "--curve", "--curve-file", "c.json", "-o", "r.html")


# --- the timeline


def test_the_timeline_names_modules_and_the_memory_by_kind(regen, moving):
    document = regen.json("report", *GRAPH, moving, "--trace", "trace.json")
    events = json.loads(regen.bytes_of("trace.json"))["traceEvents"]
    runs = [event for event in events if event["ph"] == "X" and "module" in event["args"]]
    assert len(runs) == document["plans"][0]["steps"]["kind"].count("c")
    paths, ops = document["graph"]["modules"]["path"], document["graph"]["ops"]
    assert all(run["args"]["module"] == paths[ops["module"][run["args"]["op"]]] for run in runs)
    counters = [event["args"] for event in events if event["ph"] == "C" and event["name"] == "device bytes by kind"]
    assert max(sum(counter.values()) for counter in counters) == max(document["plans"][0]["steps"]["device_bytes"])
    assert {"parameter", "optimizer", "activation", "gradient", "workspace"} <= set(counters[0])


# --- the file for PyTorch's memory viewer


class OnlyData(pickle.Unpickler):
    """A pickle that names a class or function could run something."""

    def find_class(self, module, name):
        raise AssertionError(f"{module}.{name} in a pickle that should hold data only")


def snapshot_of(regen, *arguments):
    regen.ok("report", *arguments, "-o", "r.html", "--snapshot", "snapshot.pickle")
    return OnlyData(io.BytesIO(regen.bytes_of("snapshot.pickle"))).load()


def test_the_snapshot_holds_every_box_once(regen, moving):
    snapshot = snapshot_of(regen, *GRAPH, moving)
    document = regen.json("report", *GRAPH, moving)
    boxes = document["plans"][0]["boxes"]
    (events,) = snapshot["device_traces"]
    allocated = [event["size"] for event in events if event["action"] == "alloc"]
    assert sorted(allocated) == sorted(size for size in boxes["bytes"] if size)
    live, highest = {}, 0
    for event in events:
        if event["action"] == "alloc":
            assert event["addr"] not in live
            live[event["addr"]] = event["size"]
            highest = max(highest, sum(live.values()))
        elif event["action"] == "free_completed":
            assert live.pop(event["addr"]) == event["size"]
    fixed, planned = snapshot["segments"]
    assert fixed["total_size"] == document["graph"]["fixed_bytes"] == sum(block["size"] for block in fixed["blocks"])
    assert fixed["total_size"] + highest == document["plans"][0]["summary"]["peak_bytes"]
    assert sum(block["size"] for block in planned["blocks"]) == planned["total_size"] == document["plans"][0]["layout"]["bytes"]
    assert sum(live.values()) == planned["allocated_size"]


def test_pytorch_reads_the_snapshot(regen, moving):
    viewer = pytest.importorskip("torch.cuda._memory_viz", reason="torch is not installed")
    snapshot = snapshot_of(regen, *GRAPH, moving)
    assert f"segments: {len(snapshot['segments'])}" in viewer.segsum(snapshot)
    events = snapshot["device_traces"][0]
    assert viewer.trace(snapshot).count(" = ") >= sum(event["action"] == "alloc" for event in events)


def test_the_viewer_of_the_browser_knows_every_code(regen, moving):
    """Those that its reader handles; another one ends it."""
    known = {"PROTO", "EMPTY_DICT", "EMPTY_LIST", "MARK", "BINUNICODE", "BININT", "LONG1", "NEWTRUE", "NEWFALSE", "SETITEMS", "APPENDS", "STOP"}
    regen.ok("report", *GRAPH, moving, "-o", "r.html", "--snapshot", "snapshot.pickle")
    assert {code.name for code, _, _ in pickletools.genops(regen.bytes_of("snapshot.pickle"))} <= known
