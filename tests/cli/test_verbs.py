"""Every verb does what its help says."""

import csv
import itertools
import json
import os

import pytest

VERBS = [
    "zoo", "convert", "plan", "simulate", "validate", "explain", "report", "draw", "pack", "sweep", "advise",
    "max-batch", "doctor", "completion",
]
PNG = b"\x89PNG\r\n\x1a\n"

THREE_LIFETIMES = "id,lower,upper,size\na,0,4,2\nb,0,6,2\nc,4,6,2\n"


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example(regen, verb):
    text = regen.ok(verb, "--help")
    assert "Example:" in text and f"regen {verb}" in text.split("Example:")[1]


def test_help_and_version(regen):
    text = regen.ok("--help")
    assert all(verb in text for verb in VERBS)
    assert regen.ok("--version").startswith("regen 0.")


# --- zoo and convert


def test_zoo_lists_models(regen):
    text = regen.ok("zoo")
    assert "VGG19" in text and "143,667,240" in text and "chain:N" in text
    models = {model["name"]: model for model in regen.json("zoo")}
    assert len(models) >= 80
    assert models["VGG16"]["parameters"] == 138357544


def test_zoo_shows_one_model(regen):
    model = regen.json("zoo", "vgg19")
    assert model["name"] == "VGG19" and model["nodes"] == 51 and model["edges"] == 99
    assert model["parameters"] == 143667240 and model["layers"] == 25
    assert model["forward_cost"] == 19632062464 and model["base_cost"] == 58896187392
    assert model["activation_bytes"] == 65666976 and model["fixed_bytes"] == 1149337920
    assert model["batch"] == 1 and model["backward"] == "checkmate"
    assert "143,667,240" in regen.ok("zoo", "VGG19")


def test_zoo_batch_scales_and_can_be_written_two_ways(regen):
    assert regen.json("zoo", "vgg19", "--batch", 3)["activation_bytes"] == 3 * 65666976
    assert regen.json("zoo", "vgg19@3") == regen.json("zoo", "zoo:VGG19", "--batch", 3)


@pytest.mark.parametrize("target,beginning", [("g.json", "{"), ("g.dot", "digraph"), ("g.txt", "")])
def test_zoo_writes_the_format_of_the_extension(regen, target, beginning):
    regen.ok("zoo", "linear4", "-o", target)
    assert regen.bytes_of(target).decode().lstrip().startswith(beginning)


def test_convert_gives_the_same_graph_back(regen):
    regen.ok("convert", "zoo:vgg16@2", "-o", "a.json")
    regen.ok("convert", "a.json", "-o", "b.json")
    assert regen.bytes_of("a.json") == regen.bytes_of("b.json")
    piped = regen.ok("convert", "-", "-o", "-", "--to", "regen",
                     stdin=regen.bytes_of("a.json").decode())
    assert piped.encode() == regen.bytes_of("a.json")


def test_a_graph_file_plans_like_the_zoo(regen):
    regen.ok("zoo", "vgg19", "-o", "g.json")
    from_file, from_zoo = regen.json("plan", "g.json"), regen.json("plan", "zoo:vgg19")
    for field in ("cost", "peak_bytes", "fixed_bytes", "steps"):
        assert from_file[field] == from_zoo[field]


# --- plan


FIELDS = [
    "planner", "status", "cost", "base_cost", "cost_unit", "overhead", "peak_bytes", "fixed_bytes", "activation_peak_bytes", "budget_bytes",
    "lower_bound", "bound_kind", "gap", "seconds", "work", "steps", "recomputed", "offloaded_bytes", "stall", "host_peak_bytes", "note",
    "structural_bound_bytes", "accounting"]


def test_plan_prints_every_field(regen):
    plan = regen.json("plan", "zoo:vgg19@2", "--budget", "1.3e9")
    assert set(FIELDS) <= set(plan)
    assert plan["planner"] == "auto" and plan["status"] in ("feasible", "optimal")
    assert plan["budget_bytes"] == 1300000000 >= plan["peak_bytes"]
    assert plan["peak_bytes"] == plan["fixed_bytes"] + plan["activation_peak_bytes"]
    assert plan["overhead"] == pytest.approx(plan["cost"] / plan["base_cost"] - 1)
    assert regen.json("plan", "zoo:vgg19")["budget_bytes"] is None


def test_plan_writes_whole_numbers_as_such(regen):
    text = regen.ok("plan", "zoo:vgg19", "--planner", "keep_all", "--json")
    assert '"cost": 58896187392,' in text


CHECKMATE = [
    (["--planner", "keep_all"], 58896187392, 81723296),
    (["--planner", "keep_all_ap"], 58896187392, 81723296),
    (["--planner", "chen_sqrt"], 72512667648, 69447584),
    (["--planner", "chen_sqrt_noap"], 72512667648, 69447584),
    (["--planner", "chen_greedy", "--activation-budget", "51380224"], 71005863936, 51380224),
    (["--planner", "chen_greedy_noap", "--activation-budget", "51380224"], 71005863936, 51380224),
    (["--planner", "last_node"], 389852987392, 51380224),
]


@pytest.mark.parametrize("options,cost,peak", CHECKMATE)
def test_plan_reproduces_checkmate_on_vgg19(regen, options, cost, peak):
    plan = regen.json("plan", "zoo:vgg19@1", "--accounting", "checkmate", *options)
    assert (plan["cost"], plan["activation_peak_bytes"]) == (cost, peak)


def test_griewank_takes_slots(regen):
    plan = regen.json("plan", "zoo:vgg19@1", "--accounting", "checkmate", "--planner", "griewank",
                      "--slots", 5)
    assert plan["cost"] <= 108266881024 and plan["activation_peak_bytes"] <= 51380224


def test_budgets_count_all_bytes_or_activations(regen):
    fixed = 1149337920
    by_total = regen.json("plan", "zoo:vgg19", "--budget", fixed + 60_000_000)
    by_activations = regen.json("plan", "zoo:vgg19", "--activation-budget", "60MB")
    assert by_total["budget_bytes"] == by_activations["budget_bytes"] == fixed + 60_000_000
    assert by_total["cost"] == by_activations["cost"]


def test_device_gives_seconds_and_its_memory_on_request(regen):
    plan = regen.json("plan", "zoo:vgg19@32", "--device", "v100-16", "--budget", "device")
    assert plan["cost_unit"] == "second" and 0 < plan["cost"] < 10
    assert 15e9 < plan["budget_bytes"] < 18e9
    flop = regen.json("plan", "zoo:vgg19@32", "--device", "v100-16", "--cost", "flop")
    assert flop["cost_unit"] == "flop" and flop["budget_bytes"] is None


def test_exact_backward_with_an_optimizer(regen):
    plan = regen.json("plan", "zoo:resnet50@2", "--backward", "exact", "--optimizer", "adam")
    assert plan["status"] == "feasible"


def test_plan_with_addresses_says_what_packing_costs(regen):
    plan = regen.json("plan", "zoo:vgg19@2", "--addresses", "-o", "plan.json")
    assert 1 <= plan["packed_ratio"] < 1.3
    assert plan["activation_peak_bytes"] == plan["packed_bytes"]
    assert "addresses" in json.loads(regen.bytes_of("plan.json"))
    assert regen.json("validate", "zoo:vgg19@2", "plan.json")["peak_bytes"] == plan["peak_bytes"]


def test_plan_for_people(regen):
    text = regen.ok("plan", "zoo:vgg19@2", "--budget", "1.3e9")
    for word in ("planner", "cost", "memory", "budget", "steps"):
        assert word in text


def test_same_work_same_plan(regen):
    for name in ("a.json", "b.json"):
        regen.ok("plan", "zoo:resnet50@8", "--budget", "50%", "--seed", 7,
                 "--work-limit", 200000, "-o", name)
    first, second = (json.loads(regen.bytes_of(name)) for name in ("a.json", "b.json"))
    assert first["steps"] == second["steps"]


# --- simulate, validate, explain


def test_judges_agree_with_the_plan(regen, plan):
    planned = regen.json("plan", "zoo:vgg19@4", "--planner", "chen_sqrt")
    simulated = regen.json("simulate", "zoo:vgg19@4", plan)
    validated = regen.json("validate", "zoo:vgg19@4", plan, "--budget", "16e9")
    explained = regen.json("explain", "zoo:vgg19@4", plan)
    assert simulated["cost"] == planned["cost"]
    assert validated["valid"] is True
    peaks = {x["peak_bytes"] for x in (planned, simulated, validated, explained)}
    assert len(peaks) == 1
    assert "valid" in regen.ok("validate", "zoo:vgg19@4", plan)
    assert "peak" in regen.ok("explain", "zoo:vgg19@4", plan)
    assert "memory" in regen.ok("simulate", "zoo:vgg19@4", plan)


def test_simulate_writes_a_trace(regen, plan):
    regen.ok("simulate", "zoo:vgg19@4", plan, "--device", "v100-16", "--trace", "trace.json")
    trace = json.loads(regen.bytes_of("trace.json"))
    assert len(trace["traceEvents"]) > 51


def test_explain_without_a_plan_explains_the_bound(regen):
    assert "bytes" in regen.ok("explain", "zoo:vgg19")
    bound = regen.json("explain", "zoo:vgg19", "--activation-budget", "60MB")
    assert bound["infeasible"] is False
    line = regen.fails(1, "explain", "zoo:vgg19", "--budget", "1KiB")
    assert "1,024" in line


SWAPS = {
    "format": "regen-graph",
    "version": 1,
    "name": "swaps",
    "cost_unit": "second",
    "tensors": [{"name": n, "bytes": 1_000_000_000} for n in "abc"]
    + [{"name": "y", "bytes": 4, "kind": "output"}],
    "ops": [
        {"name": "a", "outputs": [0], "variants": [{"cost": 1}]},
        {"name": "b", "inputs": [0], "outputs": [1], "variants": [{"cost": 1}]},
        {"name": "c", "inputs": [1], "outputs": [2], "variants": [{"cost": 1}]},
        {"name": "y", "inputs": [0, 2], "outputs": [3], "variants": [{"cost": 1}]},
    ],
}
# a waits on the host while c is computed, so two of the three large tensors are enough.
SWAP_PLAN = {
    "format": "regen-plan",
    "version": 1,
    "steps": ["c0", "o0", "c1", "r0", "c2", "r1", "f0", "c3", "r0", "r2"],
}


def test_plans_that_move_tensors(regen):
    regen.write("g.json", SWAPS)
    regen.write("plan.json", SWAP_PLAN)
    simulated = regen.json("simulate", "g.json", "plan.json", "--device", "v100-16", "--cost", "graph")
    assert simulated["peak_bytes"] == 2_000_000_004
    assert simulated["offloaded_bytes"] == simulated["fetched_bytes"] == 1_000_000_000
    assert simulated["host_peak_bytes"] == 1_000_000_000 and simulated["stall"] > 0
    assert regen.json("validate", "g.json", "plan.json", "--host-budget", "1GB")["valid"]
    regen.fails(2, "validate", "g.json", "plan.json", "--host-budget", "0.9GB")
    regen.ok("draw", "g.json", "plan.json", "--device", "v100-16", "--cost", "graph", "-o", "p.svg")
    picture = regen.bytes_of("p.svg")
    assert b"copy begins" in picture and b"on the host" in picture


# --- draw


@pytest.mark.parametrize("name,magic", [("g.svg", b"<?xml"), ("g.png", PNG), ("g.pdf", b"%PDF")])
def test_draw_a_graph(regen, name, magic):
    regen.ok("draw", "zoo:linear4", "-o", name)
    assert regen.bytes_of(name).startswith(magic) and len(regen.bytes_of(name)) > 1000


@pytest.mark.parametrize("name,magic", [("p.svg", b"<?xml"), ("p.png", PNG), ("p.pdf", b"%PDF")])
def test_draw_a_plan(regen, plan, name, magic):
    regen.ok("draw", "zoo:vgg19@4", plan, "--budget", "2GB", "-o", name)
    assert regen.bytes_of(name).startswith(magic) and len(regen.bytes_of(name)) > 5000


def test_draw_a_large_plan(regen):
    regen.ok("plan", "zoo:chain:3000", "--planner", "chen_sqrt", "-o", "plan.json")
    regen.ok("draw", "zoo:chain:3000", "plan.json", "-o", "plan.png")
    assert regen.bytes_of("plan.png").startswith(PNG)


def test_draw_says_when_the_library_is_missing(regen, plan):
    regen.write("python", "#!/bin/sh\necho 'the Python library matplotlib is not installed' >&2\nexit 3\n")
    os.chmod(regen.folder / "python", 0o755)
    line = regen.fails(2, "draw", "zoo:vgg19@4", plan, "-o", "p.png",
                       env={"REGEN_PYTHON": str(regen.folder / "python")})
    assert "matplotlib" in line
    line = regen.fails(2, "draw", "zoo:vgg19@4", plan, "-o", "p.png",
                       env={"REGEN_PYTHON": "/nowhere/python"})
    assert "/nowhere/python" in line


def test_draw_says_when_dot_is_missing(regen):
    line = regen.fails(2, "draw", "zoo:linear4", "-o", "g.svg", env={"PATH": "/nowhere"})
    assert "dot" in line and "Graphviz" in line


# --- pack


def test_pack(regen):
    regen.write("in.csv", THREE_LIFETIMES)
    packed = regen.json("pack", "in.csv", "--capacity", 4, "-o", "out.csv")
    assert packed["status"] == "packed" and packed["items"] == 3
    assert packed["height"] == packed["max_load"] == packed["capacity"] == 4
    assert packed["ratio"] == 1 and {"seconds", "work"} <= set(packed)
    rows = list(csv.DictReader(regen.bytes_of("out.csv").decode().splitlines()))
    assert [row["id"] for row in rows] == ["a", "b", "c"]
    assert all(int(row["offset"]) + int(row["size"]) <= 4 for row in rows)
    assert "max load" in regen.ok("pack", "in.csv")


def test_pack_that_cannot_fit(regen):
    regen.write("in.csv", THREE_LIFETIMES)
    assert "3" in regen.fails(1, "pack", "in.csv", "--capacity", 3, "-o", "out.csv")
    done = regen.run("pack", "in.csv", "--capacity", 3, "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["status"] == "infeasible"


# --- sweep


COLUMNS = (
    "planner,budget_bytes,status,cost,overhead,peak_bytes,activation_peak_bytes,seconds,recomputed,"
    "lower_bound,gap,bound_kind"
)


def test_sweep_writes_csv_in_order(regen):
    regen.ok("sweep", "zoo:vgg19@8", "--planners", "keep_all,chen_sqrt,chen_greedy",
             "--budgets", "1.2e9:2e9:9", "-o", "sweep.csv")
    text = regen.bytes_of("sweep.csv").decode()
    assert text.splitlines()[0] == COLUMNS
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["planner"] for row in rows] == ["keep_all"] * 9 + ["chen_sqrt"] * 9 + ["chen_greedy"] * 9
    assert [int(row["budget_bytes"]) for row in rows[:9]] == [1_200_000_000 + i * 100_000_000 for i in range(9)]
    for row in rows:
        if row["status"] == "feasible":
            assert int(row["peak_bytes"]) <= int(row["budget_bytes"])
        else:
            assert row["cost"] == "" and row["status"] in ("infeasible", "unknown")
    assert any(row["status"] == "infeasible" for row in rows)
    assert any(row["status"] == "feasible" for row in rows)


def test_sweep_does_not_depend_on_threads(regen):
    def rows(threads):
        text = regen.ok("sweep", "zoo:vgg16", "--budgets", "auto:6", "--threads", threads)
        return [[v for k, v in row.items() if k != "seconds"]
                for row in csv.DictReader(text.splitlines())]

    assert rows(1) == rows(4)
    assert len(rows(2)) == 18


def test_sweep_by_activations(regen):
    points = regen.json("sweep", "zoo:vgg19", "--planners", "chen_greedy",
                        "--activation-budgets", "51380224:90e6:3")
    assert [p["budget_bytes"] - 1149337920 for p in points] == [51380224, 70690112, 90000000]


@pytest.mark.parametrize("name,magic", [("s.png", PNG), ("s.svg", b"<?xml"), ("s.html", b"<!doctype html>")])
def test_sweep_draws(regen, name, magic):
    regen.ok("sweep", "zoo:vgg19@8", "--budgets", "auto:5", "--device", "v100-16",
             "-o", "s.csv", "--plot", name)
    content = regen.bytes_of(name)
    assert content.lower().startswith(magic.lower()) and len(content) > 5000
    if not name.endswith("png"):
        assert b"chen_greedy" in content and b"keep everything" in content and b"v100-16" in content


def test_sweep_keeps_the_csv_when_it_cannot_draw(regen):
    done = regen.run("sweep", "zoo:vgg19", "--budgets", "auto:3", "-o", "s.csv", "--plot", "s.png",
                     env={"REGEN_PYTHON": "/nowhere/python"})
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert regen.bytes_of("s.csv").startswith(b"planner,")
    assert not (regen.folder / "s.png").exists()


# --- max-batch


def batches(answer):
    return {result["planner"]: result["max_batch"] for result in answer["results"]}


@pytest.mark.parametrize("grid,expected", [
    ([], {"keep_all": 167, "chen_sqrt": 197, "chen_greedy": 266}),
    (["--grid", "4:8"], {"keep_all": 164, "chen_sqrt": 196, "chen_greedy": 260}),
])
def test_max_batch_reproduces_checkmate(regen, grid, expected):
    answer = regen.json("max-batch", "zoo:vgg19", "--memory", "16e9", "--accounting", "checkmate",
                        "--planners", "keep_all,chen_sqrt,chen_greedy,last_node", *grid)
    assert batches(answer) == expected
    assert answer["model"].lower() == "vgg19" and answer["memory_bytes"] == 16000000000
    assert answer["accounting"] == "checkmate"
    assert [x["planner"] for x in answer["excluded"]] == ["last_node"]
    assert answer["excluded"][0]["limited_by"] == "compute_cap"
    for result in answer["results"]:
        assert {"peak_bytes", "cost", "overhead", "limited_by"} <= set(result)


def test_max_batch_in_plain_accounting(regen):
    found = batches(regen.json("max-batch", "zoo:vgg19", "--memory", "16e9"))
    assert found["keep_all"] >= 222 and found["chen_sqrt"] >= 272 and found["chen_greedy"] >= 289


def test_max_batch_of_nothing(regen):
    line = regen.fails(1, "max-batch", "zoo:vgg19", "--memory", "1MiB")
    assert "1,048,576" in line


# --- schedules of the lower-set solvers

LOWER_SETS = """3 4
0 8 0
1 16 _
2 4 _
forward
1 1
0 _
1
Conv
{"rank": 0}
forward
1 1
1 _
2
ReLU
{"rank": 1}
backward
2 1
1 gradient
0 input
0
Conv
{"rank": 0}
backward
2 1
2 gradient
2 output
1
ReLU
{"rank": 1}
"""


def test_a_plan_becomes_a_schedule_and_is_judged_as_one(regen):
    regen.write("g.txt", LOWER_SETS)
    plan = regen.json("plan", "g.txt", "--planner", "lower_sets", "--write-schedule", "s.txt")
    assert plan["status"] == "optimal" and plan["overhead"] == 0
    assert regen.bytes_of("s.txt").decode().startswith("compute 0\ncompute 1\n")
    run = regen.json("simulate", "g.txt", "s.txt")
    assert run["peak_bytes"] == plan["activation_peak_bytes"] and run["overhead_cost"] == 0
    assert run["base_cost"] == 11
    assert "re-run of 11" in regen.ok("simulate", "g.txt", "s.txt")


def test_a_schedule_of_a_converted_network_is_judged(regen):
    """Its first block reads the network's input, which gets no gradient: the backward block makes nothing."""
    regen.ok("convert", "zoo:vgg_unet", "-o", "unet.txt")
    plan = regen.json("plan", "unet.txt", "--planner", "lower_sets", "--activation-budget", "400MB", "--write-schedule", "unet.sch")
    run = regen.json("simulate", "unet.txt", "unet.sch")
    assert run["recomputed"] > 0 and run["overhead_cost"] == plan["cost"] - plan["base_cost"]


def test_a_bad_schedule_is_refused_with_its_line(regen):
    regen.write("g.txt", LOWER_SETS)
    regen.write("s.txt", "compute 0\nforget 2 forward\n")
    line = regen.fails(2, "simulate", "g.txt", "s.txt")
    assert "s.txt: line 2: the value of variable 2 is not there" in line
    assert "VGG19" in regen.fails(2, "simulate", "zoo:vgg19", "s.txt")
    assert "'VGG19'" in regen.fails(2, "plan", "zoo:vgg19", "--write-schedule", "s2.txt")


# --- advise


def test_advise_prices_memory(regen):
    rows = regen.json("advise", "zoo:vgg19@16", "--points", 5, "--work-limit", 200000)
    assert len(rows) == 5 and rows[0]["budget_bytes"] < rows[-1]["budget_bytes"]
    costs = [row["cost"] for row in rows if row["cost"] is not None]
    assert costs == sorted(costs, reverse=True) and rows[-1]["overhead"] == 0
    for row, following in itertools.pairwise(rows):
        if row["cost"] is not None:
            assert row["peak_bytes"] <= row["budget_bytes"] and row["lower_bound"] <= row["cost"] * (1 + 1e-9)
            gib = (following["budget_bytes"] - row["budget_bytes"]) / 2**30
            assert row["saved_per_gib"] == pytest.approx((row["cost"] - following["cost"]) / gib)
    assert "one more GiB saves" in regen.ok("advise", "zoo:vgg19@16", "--points", 3, "--work-limit", 100000)


@pytest.mark.parametrize("points", ["1", "0", "1001", "x"])
def test_advise_refuses_points(regen, points):
    assert "--points" in regen.fails(2, "advise", "zoo:vgg19", "--points", points)
