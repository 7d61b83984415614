"""`regen share simulate` and `regen share trace` as a user runs them."""

import csv
import io
import json

POLICIES = ["priority", "fair", "deadline", "shortest", "fcfs"]


def test_a_generated_trace_is_replayed_under_every_policy(regen):
    regen.ok("share", "trace", "--jobs", "40", "--devices", "3", "--seed", "1", "--load", "1.5", "-o", "t.json")
    report = regen.json("share", "simulate", "t.json")
    assert (report["jobs"], report["devices"], report["device_bytes"]) == (40, 3, 80 * 2**30), "from the trace"
    assert [policy["policy"] for policy in report["policies"]] == POLICIES
    for policy in report["policies"]:
        assert 0 < policy["utilisation"] <= 1 and 0 < policy["fairness"] <= 1
        completion = policy["completion_seconds"]
        assert completion["p50"] <= completion["p95"] <= completion["p99"] <= completion["max"]
        assert policy["request_seconds"]["count"] > 0
    assert regen.json("share", "simulate", "t.json") == report, "the same again"
    assert regen.ok("share", "trace", "--jobs", "40", "--devices", "3", "--seed", "1", "--load", "1.5").encode() == regen.bytes_of("t.json")


def test_tables_for_people_and_for_programs(regen):
    regen.write("t.csv", "name,arrival,seconds,priority\nlong,0,10,0\nurgent,2,1,1\n")
    text = regen.ok("share", "simulate", "t.csv", "--policies", "priority,fcfs")
    lines = text.splitlines()
    assert lines[0] == "2 jobs on 1 device of 80.0 GiB"
    assert lines[1].split()[:5] == ["policy", "completion", "p50", "p95", "p99"]
    assert [line.split()[0] for line in lines[2:]] == ["priority", "fcfs"]
    rows = list(csv.DictReader(io.StringIO(regen.ok("share", "simulate", "t.csv", "--csv"))))
    assert [row["policy"] for row in rows] == POLICIES
    # The urgent job takes 1 s under priorities; behind the long one it takes 9.
    assert [float(rows[i]["completion_seconds_mean"]) for i in (0, 4)] == [6, 9.5]
    assert [row["preemptions"] for row in rows] == ["1", "1", "0", "1", "0"]
    assert rows[0]["request_seconds_mean"] == ""


def test_options_win_over_the_trace(regen):
    regen.ok("share", "trace", "--jobs", "5", "--devices", "4", "-o", "t.json")
    report = regen.json("share", "simulate", "t.json", "--devices", "2", "--device-memory", "90GiB", "--turn", "5", "--quantum", "0.5")
    assert (report["devices"], report["device_bytes"]) == (2, 90 * 2**30)
    assert (report["turn_seconds"], report["quantum_seconds"]) == (5, 0.5)


def test_bad_input_is_one_line(regen):
    good = regen.write("good.csv", "arrival,seconds,memory\n0,1,2GiB\n")
    for problem, status, arguments in [
        ("found nothing, expected one of serve, status, top, run, set, simulate, trace", 2, []),
        ("TRACE", 2, ["simulate"]),
        ("nothing.json", 2, ["simulate", "nothing.json"]),
        ("line 1 has the column 'a'", 2, ["simulate", regen.write("bad.csv", "a,b\n1,2\n")]),
        ("jobs", 2, ["simulate", regen.write("bad.json", {"format": "regen-trace", "version": 1})]),
        ("version", 2, ["simulate", regen.write("new.json", {"format": "regen-trace", "version": 2, "jobs": []})]),
        ("unknown value 'best', expected priority", 2, ["simulate", good, "--policies", "best"]),
        ("--turn", 2, ["simulate", good, "--turn", "0"]),
        ("--quantum", 2, ["simulate", good, "--quantum", "-1"]),
        ("--devices", 2, ["simulate", good, "--devices", "0"]),
        ("--csv", 2, ["simulate", good, "--csv", "--json"]),
        ("needs at least 2,147,483,648 bytes, expected at most the 1,073,741,824", 1, ["simulate", good, "--device-memory", "1GiB"]),
        ("--jobs", 2, ["trace", "--jobs", "0"]),
        ("bad tail '1'", 2, ["trace", "--tail", "1"]),
        ("--load", 2, ["trace", "--load", "nan"]),
    ]:
        assert problem in regen.fails(status, "share", *arguments)


def test_a_thousand_jobs_on_a_hundred_devices(regen):
    regen.ok("share", "trace", "--jobs", "1000", "--devices", "100", "--seed", "1", "--load", "3", "-o", "t.json")
    assert len(json.loads(regen.bytes_of("t.json"))["jobs"]) == 1000
    report = regen.json("share", "simulate", "t.json", timeout=60)
    means = {policy["policy"]: policy["completion_seconds"]["mean"] for policy in report["policies"]}
    assert means["shortest"] == min(means.values())
