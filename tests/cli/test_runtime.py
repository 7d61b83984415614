"""regen profile, run and bench: a captured step without Python."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from regen_program import BINARY, ROOT, Regen

RUNTIME = BINARY.with_name("regen-runtime")
pytestmark = pytest.mark.skipif(not RUNTIME.exists(), reason="built without torch")


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """Captured in another process, which has torch's memory to itself."""
    folder = tmp_path_factory.mktemp("programs")
    paths = os.pathsep.join([str(ROOT / "python"), str(ROOT / "tests" / "cli")])
    code = "import programs, sys; programs.save_wrapped(sys.argv[1] + '/block'); programs.save_step(sys.argv[1] + '/step')"
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, env={**os.environ, "PYTHONPATH": paths})
    return folder


@pytest.fixture
def runtime(tmp_path, programs):
    for name in ("block", "step"):
        shutil.copytree(programs / name, tmp_path / name)
    return Regen(tmp_path)


@pytest.fixture(scope="session")
def profile_cache(tmp_path_factory, programs):
    """Measurements shared by the tests, so that each op is measured once."""
    return tmp_path_factory.mktemp("cache") / "profile.json"


@pytest.fixture
def measured(profile_cache):
    return ["--repeats", "1", "--cache", profile_cache]


@pytest.fixture
def fast(measured):
    return [*measured, "--work-limit", "20000"]


@pytest.mark.parametrize("verb", ["profile", "run", "bench"])
def test_help_has_an_example(runtime, verb):
    text = runtime.ok(verb, "--help")
    assert f"regen {verb}" in text.split("Example:")[1]
    assert verb in runtime.ok("--help")


# --- profile


def test_profile_counts_and_times_every_op(runtime, measured):
    answer = runtime.json("profile", "block", *measured)
    assert answer["program"] == "block"
    types = {row["type"]: row for row in answer["types"]}
    assert types["convolution"]["count"] == 5 and types["convolution_backward"]["count"] == 5
    assert sum(row["count"] for row in answer["types"]) == answer["total"]["count"]
    assert sum(row["share"] for row in answer["types"]) == pytest.approx(1)
    assert answer["total"]["seconds"] > 0 and answer["total"]["output_bytes"] > 0
    link = answer["link"]
    assert max(link["to_host"], link["to_device"]) <= link["both"] <= link["to_host"] + link["to_device"]
    text = runtime.ok("profile", "block", *measured)
    assert "total" in text and "both at once" in text


def test_a_profile_is_a_graph_that_plans(runtime, fast, measured):
    runtime.ok("profile", "block", *measured, "-o", "graph.json")
    graph = json.loads((runtime.folder / "graph.json").read_text())
    assert graph["attributes"]["device"] and graph["attributes"]["link"]["to_host"] > 0
    kept = runtime.json("plan", "graph.json", "--planner", "keep_all", "-o", "plan.json")
    assert kept["cost_unit"] == "second"
    # The measured link travels with the graph, so that plans may move tensors.
    moved = runtime.json("plan", "graph.json", "--planner", "vdnn", "--budget", int(kept["peak_bytes"] * 0.8))
    assert moved["offloaded_bytes"] > 0
    answer = runtime.json("run", "block", "plan.json", *fast)
    assert answer["planner"] == "keep_all" and answer["status"] == "given"
    assert answer["predicted_peak_bytes"] >= answer["measured_peak_bytes"]


# --- run


@pytest.mark.parametrize("program", ["block", "step"])
def test_every_plan_gives_the_same_checksums(runtime, fast, program):
    kept = runtime.json("run", program, *fast, "--steps", 3)
    assert kept["planner"] == "keep_all" and len(kept["step_seconds"]) == 3
    for options in (["--planner", "checkmate"], ["--planner", "vdnn"], []):
        answer = runtime.json("run", program, *fast, "--steps", 3, "--budget", "75%", "--debug", *options)
        assert answer["checksum"] == kept["checksum"], options
        assert answer["left"] == kept["left"]
        assert answer["measured_peak_bytes"] <= answer["predicted_peak_bytes"] <= answer["budget_bytes"]
        assert answer["measured_peak_bytes"] >= 0.97 * answer["predicted_peak_bytes"]
        assert answer["unforeseen"] == 0 and answer["deviations"] == []
        assert answer["recomputed"] > 0 or answer["offloaded_bytes"] > 0


def test_results_are_named_and_seeds_matter(runtime, fast):
    first = runtime.json("run", "block", *fast, "--seed", 1, "--steps", 1)
    names = {(row["kind"], row["name"]) for row in first["left"]}
    assert ("output", "0") in names and ("gradient", "head.weight") in names
    assert ("buffer", "layers.2.running_mean") in names
    assert runtime.json("run", "block", *fast, "--seed", 1, "--steps", 1)["checksum"] == first["checksum"]
    assert runtime.json("run", "block", *fast, "--seed", 2, "--steps", 1)["checksum"] != first["checksum"]
    text = runtime.ok("run", "block", *fast, "--steps", 1)
    assert "head.weight" in text and "predicted" in text and "measured" in text


def test_the_trace_is_the_real_timeline(runtime, fast):
    answer = runtime.json("run", "block", *fast, "--planner", "vdnn", "--budget", "80%", "--trace", "trace.json",
                          "-o", "plan.json")
    events = json.loads((runtime.folder / "trace.json").read_text())["traceEvents"]
    timed = [e for e in events if e["ph"] == "X"]
    plan = json.loads((runtime.folder / "plan.json").read_text())
    computes = [e for e in timed if e["tid"] == 1 and e["name"] != "wait"]
    assert len(computes) == sum(step.startswith("c") for step in plan["steps"])
    assert sum(e["tid"] == 2 for e in timed) == sum(step.startswith("o") for step in plan["steps"]) > 0
    assert sum(e["tid"] == 3 for e in timed) == sum(step.startswith("f") for step in plan["steps"]) > 0
    end = max(e["ts"] + e["dur"] for e in timed)
    assert end * 1e-6 < 50 * max(answer["step_seconds"])
    # The plan that was written is the one that ran.
    again = runtime.json("run", "block", "plan.json", *fast)
    assert again["checksum"] == answer["checksum"] and again["arena_bytes"] == answer["arena_bytes"]


# --- bench


def test_bench_compares(runtime, fast):
    answer = runtime.json("bench", "block", *fast, "--budget", "75%", "--steps", 3, "--warm-up", 1)
    assert answer["keep_all"]["time_ratio"] == 1
    assert answer["plan"]["peak_ratio"] < 1
    assert answer["direct"]["seconds"] > 0 and answer["dispatch_microseconds"] > 0
    assert "per op" in runtime.ok("bench", "block", *fast, "--steps", 2)


@pytest.mark.parametrize("program", ["block", "step"])
def test_check_diff(runtime, fast, program):
    for planner in ("checkmate", "vdnn"):
        answer = runtime.json("bench", program, *fast, "--budget", "75%", "--planner", planner, "--check-diff")
        assert answer["equal"] and answer["compared"] > 10
    assert runtime.ok("bench", program, *fast, "--check-diff").startswith("equal: ")
    answer = runtime.json("bench", program, *fast, "--algorithms", "any", "--budget", "75%", "--check-diff")
    assert answer["equal"] and not answer["other_algorithms"]  # no operator here can do with less


def test_check_runtime(runtime, fast):
    answer = runtime.json("bench", "block", *fast, "--check-runtime")
    assert answer["iterations"] == 20 and answer["warm_up"] == 10
    assert answer["least_seconds"] <= answer["median_seconds"] <= answer["most_seconds"]
    assert answer["peak_bytes"] <= answer["predicted_peak_bytes"]


# --- bad input


def damage(runtime, name, change):
    path = runtime.folder / "block" / "program.json"
    program = json.loads(path.read_text())
    change(program)
    path.write_text(json.dumps(program))


USAGE = [
    (["run"], "PROGRAM"),
    (["run", "nowhere"], "nowhere/program.json"),
    (["profile", "block", "--device", "abacus"], "abacus"),
    (["run", "block", "--device", "cuda:9999"], "cuda"),
    (["run", "block", "--planner", "magic"], "magic"),
    (["profile", "block", "--algorithms", "fast"], "unknown algorithms 'fast', expected default or any"),
    (["run", "block", "--steps", "0"], "--steps"),
    (["run", "block", "--budget", "8GX"], "GX"),
    (["run", "block", "--budget", "x%"], "x%"),
    (["run", "block", "nowhere.json"], "nowhere.json"),
    (["run", "block", "plan.json", "extra"], "extra"),
    (["run", "block", "--frobnicate"], "--frobnicate"),
    (["bench", "block", "--check-diff", "--check-runtime"], "--check-"),
]


@pytest.mark.parametrize("arguments,word", USAGE, ids=lambda x: " ".join(x) if isinstance(x, list) else "")
def test_usage(runtime, arguments, word):
    assert word in runtime.fails(2, *arguments)


def test_broken_programs(runtime):
    for text in ("", "{", "[1]", '{"format": "regen-plan", "version": 1}'):
        (runtime.folder / "block" / "program.json").write_text(text)
        assert "block/program.json" in runtime.fails(2, "run", "block")


def test_contents_that_no_machine_holds(runtime):
    def grow(program):
        program["storages"][0]["bytes"] = 2**50
        program["data"][0]["bytes"] = 2**50

    damage(runtime, "block", grow)
    assert runtime.fails(2, "run", "block")


def test_missing_data(runtime):
    (runtime.folder / "block" / "data.bin").unlink()
    assert "data.bin" in runtime.fails(2, "run", "block")
    damage(runtime, "block", lambda program: program.update(data=[]))
    assert "data" in runtime.fails(2, "run", "block")
    # Planning needs no contents.
    assert runtime.json("profile", "block", "--repeats", 1)["total"]["count"] > 10


def test_operators_that_are_not_there(runtime):
    def rename(program):
        program["nodes"][0]["op"] = "aten::no_such_thing"

    damage(runtime, "block", rename)
    assert "aten::no_such_thing" in runtime.fails(2, "run", "block")


def test_a_device_without_a_kernel(runtime):
    def rename(program):
        program["nodes"][0].update(op="aten::_cudnn_init_dropout_state", args=[0.5, True, 1], kwargs={})

    damage(runtime, "block", rename)
    line = runtime.fails(2, "run", "block")
    assert "node 0" in line


def test_plans_for_another_graph(runtime, fast):
    runtime.ok("run", "step", *fast, "-o", "plan.json")
    line = runtime.fails(2, "run", "block", "plan.json", *fast)
    assert "another graph" in line and "plan.json" in line
    assert "another graph" in runtime.fails(2, "bench", "block", "plan.json", *fast)


def test_plans_over_the_budget_and_misaligned(runtime, fast):
    answer = runtime.json("run", "block", *fast, "-o", "plan.json")
    line = runtime.fails(2, "run", "block", "plan.json", "--budget", answer["predicted_peak_bytes"] - 1, *fast)
    assert "plan.json" in line and "budget" in line
    plan = json.loads((runtime.folder / "plan.json").read_text())
    plan["addresses"] = [address + 8 for address in plan["addresses"]]
    runtime.write("odd.json", plan)
    assert "multiple of 64" in runtime.fails(2, "run", "block", "odd.json", *fast)
    del plan["addresses"]
    runtime.write("bare.json", plan)
    assert runtime.json("run", "block", "bare.json", *fast)["checksum"] == answer["checksum"]


def test_a_budget_below_the_bound(runtime, fast):
    line = runtime.fails(1, "run", "block", "--budget", "1%", *fast)
    assert "no plan fits" in line and "least budget found to work is" in line
    least = int(line.split("found to work is ")[1].split(" bytes")[0].replace(",", ""))
    answer = runtime.json("run", "block", "--budget", least, *fast)
    assert answer["measured_peak_bytes"] <= least


@pytest.mark.parametrize("program", ["block", "step"])
def test_budgets_raised_until_one_works(runtime, fast, program):
    """Every refusal names the op, tensors and the least budget; it is infeasible (1) where proven, else a limit (3)."""
    message = r"regen: no plan .*op \d+ '\S+' needs at least .* fixed, .* workspace, tensor \d+ '.*least budget found to work is ([\d,]+) bytes"
    first = re.match(message, runtime.fails(1, "run", program, "--budget", 1, *fast))
    named = [int(first.group(1).replace(",", ""))]
    for share in (0.3, 0.6, 0.9, 0.99):
        budget = int(share * named[0])
        done = runtime.run("run", program, "--budget", budget, *fast)
        assert done.returncode in (1, 3) and done.stderr.count("\n") == 1, done
        named.append(int(re.match(message, done.stderr).group(1).replace(",", "")))
        assert budget < named[-1] <= named[0]  # the search may know more, closer to what works
    for least in {min(named), named[0]}:
        answer = runtime.json("run", program, "--budget", least, *fast)
        assert answer["measured_peak_bytes"] <= least


def test_a_program_alone_says_what_is_missing(runtime):
    """Without the other program beside it."""
    alone = runtime.folder / "bin" / "regen"
    alone.parent.mkdir()
    shutil.copy(BINARY, alone)
    done = subprocess.run([str(alone), "run", "block"], capture_output=True, text=True)
    assert done.returncode == 2 and "REGEN_TORCH" in done.stderr and done.stderr.count("\n") == 1


# --- programs and profiles of strangers


def edit_program(runtime, folder, change):
    path = runtime.folder / folder / "program.json"
    program = json.loads(path.read_text())
    change(program)
    path.write_text(json.dumps(program))


def node_calling(program, op, args):
    node = program["nodes"][0]
    return {**node, "name": "strange", "op": op, "overload": "", "args": args, "kwargs": {}, "outputs": [None], "random": False}


def test_a_program_from_a_file_runs_no_operator_that_writes_files(runtime, measured):
    target = runtime.folder / "written"
    edit_program(runtime, "block", lambda p: p["nodes"].insert(0, node_calling(p, "aten::from_file", [str(target), True, 64])))
    for verb in ("profile", "run", "bench"):
        message = runtime.fails(2, verb, "block")
        assert "node 0 aten::from_file 'strange'" in message and "--allow-op aten::from_file" in message
        assert not target.exists()
    runtime.ok("profile", "block", "--allow-op", "aten::from_file", *measured)
    assert target.exists()  # the user who names it answers for it


def test_a_view_beyond_its_memory_is_refused(runtime):
    def reach(program):
        wide = [{"value": program["nodes"][0]["args"][0]["value"]}, [1 << 20], [1], 0]
        program["nodes"].insert(0, node_calling(program, "aten::as_strided", wide))

    edit_program(runtime, "block", reach)
    assert "node 0 aten::as_strided" in runtime.fails(2, "run", "block")


def test_an_argument_with_a_second_key_is_refused(runtime):
    edit_program(runtime, "block", lambda p: p["nodes"][0]["args"].__setitem__(0, {"value": 10**9, "scalar": 0}))
    assert "nodes[0].args[0]" in runtime.fails(2, "profile", "block")


def test_a_profile_that_lies_is_one_warning(runtime, tmp_path):
    plain = runtime.ok("run", "block", "--repeats", "1")
    runtime.ok("profile", "block", "--repeats", "1", "--cache", "p.json")
    profile = json.loads((runtime.folder / "p.json").read_text())
    for record in profile["calls"].values():
        for result in record["results"]:
            result["index"] = 10**9
    (runtime.folder / "p.json").write_text(json.dumps(profile))
    done = runtime.run("run", "block", "--repeats", "1", "--cache", "p.json")
    assert done.returncode == 0 and done.stderr.count("\n") == 1 and "is not used" in done.stderr, done.stderr
    assert checksums(done.stdout) == checksums(plain)


def checksums(text):
    return re.findall(r"\b[0-9a-f]{16}\b", text)
