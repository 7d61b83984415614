"""The page of `regen share serve --page`: what it says, to whom, and what it does not say."""

import json
import os
import pathlib
import re
import signal
import socket
import stat

import pytest

import wire
from eventually import eventually
from share_daemon import Daemon
from share_page import HOSTILE, Page

GIB = 2**30
ROOT = pathlib.Path(__file__).resolve().parents[3]
DASHBOARD = ROOT / "docs" / "grafana" / "regen-share.json"

@pytest.fixture
def page(tmp_path):
    running = Page(tmp_path)
    yield running
    running.stop()


def without_times(report):
    """A report without what changes while nothing happens."""
    return json.loads(json.dumps(report), object_hook=lambda o: {k: v for k, v in o.items() if k not in TIMES})


TIMES = {"age_seconds", "share", "waited_seconds", "longest_wait_seconds", "used_seconds", "busy_seconds", "connections"}


def test_there_is_none_without_being_asked_for(daemon):
    listening = pathlib.Path("/proc/net/tcp").read_text()
    inodes = {link.stat().st_ino for link in pathlib.Path(f"/proc/{daemon.process.pid}/fd").iterdir() if stat.S_ISSOCK(link.stat().st_mode)}
    assert inodes and not any(line.split()[9] in map(str, inodes) for line in listening.splitlines()[1:])


def test_the_json_is_the_one_of_status(regen, page):
    train, infer, newcomer = (wire.Wire(page.socket) for _ in range(3))
    train.register("train", weight=2.5, memory=8 * GIB)
    infer.register("infer", priority=1, memory=GIB, device="gpu0")
    newcomer.register("small", memory=900, device="gpu1")
    for _ in range(3):
        infer.send(wire.ACQUIRE)
        assert infer.receive() == (wire.GRANTED, {})
        infer.send(wire.IDLE)
    infer.send(wire.REQUESTS, count=3, p50_seconds=0.25, p95_seconds=0.5)
    train.send(wire.ACQUIRE)
    assert train.receive() == (wire.GRANTED, {})

    def status():
        return regen.json("share", "status", "--socket", page.socket)

    assert eventually(lambda: without_times(page.json()) == without_times(status()))
    jobs = {job["name"]: job for job in page.json()["devices"][0]["jobs"]}
    assert (jobs["infer"]["requests"], jobs["infer"]["request_p50_seconds"], jobs["infer"]["request_p95_seconds"]) == (3, 0.25, 0.5)
    assert jobs["infer"]["grants"] == 3 and 0 <= jobs["infer"]["wait_p50_seconds"] <= jobs["infer"]["wait_p95_seconds"] < 60
    assert jobs["train"]["requests"] is None and jobs["train"]["state"] == "holding"
    assert page.json()["devices"][0]["turns"] == 4
    ours, theirs = page.ok("/metrics").decode(), regen.ok("share", "status", "--socket", page.socket, "--prometheus")
    names = re.compile(r"^(regen_share_\w+)", re.MULTILINE)
    assert names.findall(ours) == names.findall(theirs)
    assert 'regen_share_job_request_p95_seconds{device="gpu0",job="infer",identity="infer"} 0.5' in ours.splitlines()
    assert not any(line.startswith("regen_share_job_requests_total") and "train" in line for line in ours.splitlines())


def test_the_history_has_what_happened(page):
    """A holder for the whole time: the first whole step is all its own."""
    job = wire.Wire(page.socket)
    job.register("train", memory=GIB)
    job.send(wire.ACQUIRE)
    assert job.receive() == (wire.GRANTED, {})
    assert eventually(lambda: page.json("/history.json")["last_step"] >= 1)
    history = page.json("/history.json")
    assert history["step_seconds"] == 5
    device, = (d for d in history["devices"] if d["name"] == "gpu0")
    shown, = history["jobs"]
    assert (shown["identity"], shown["device"]) == ("train", "gpu0")
    assert device["utilisation"][1] == shown["fraction"][-1] == pytest.approx(1, abs=1e-3)
    assert device["used_bytes"][1] == shown["held_bytes"][-1] == GIB
    assert page.json("/history.json?after=0")["devices"][0]["from"] == 1
    assert page.json("/history.json?after=99")["devices"][0]["utilisation"] == []


def test_nothing_without_the_token(page):
    job = wire.Wire(page.socket)
    job.register("secret")
    wrong = page.token[:-1] + ("0" if page.token[-1] != "0" else "1")
    for path in ("/", "/status.json", "/history.json", "/metrics", "/favicon.ico", "/etc/passwd", "/..%2f"):
        for query, fields in (("", {}), (f"?token={wrong}", {}), ("", {"Authorization": f"Bearer {wrong}"}), ("", {"Cookie": f"token={page.token}"})):
            for method in ("GET", "POST", "HEAD", "OPTIONS"):
                status, answer, body = page.get(path + query, method, **fields)
                assert (status, body) == (403, b"")
                assert set(answer) == {"Connection", "Content-Length"}
    status, _, body = page.get(f"/?{page.query}", Host="attacker.example:80")
    assert (status, body) == (403, b""), "a name that a stranger's DNS can point here"
    assert page.get(f"/?{page.query}", "POST")[0] == 405


def test_hostile_names_are_data(page):
    jobs = []
    for number, name in enumerate(HOSTILE[:-1]):
        jobs.append(wire.Wire(page.socket))
        jobs[-1].register(name, identity=str(number))
    assert eventually(lambda: len(page.json()["devices"][0]["jobs"]) == len(jobs))
    assert [job["name"] for job in page.json()["devices"][0]["jobs"]] == HOSTILE[:-1]
    line = wire.Wire(page.socket)
    line.send(wire.REGISTER, name=HOSTILE[-1], identity="x")
    assert line.receive()[0] == wire.ERROR, "a name of two lines is refused"
    metrics = page.ok("/metrics").decode()
    pattern = re.compile(r'(# (HELP|TYPE) .*|regen_share_\w+(\{(\w+="(\\.|[^"\\])*",?)+\})? \S+)')
    assert all(pattern.fullmatch(text) for text in metrics.split("\n")[:-1])
    html = page.ok("/").decode()
    assert all(name not in html for name in HOSTILE)


def test_another_token_each_time(tmp_path):
    tokens = set()
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        page = Page(folder)
        tokens.add(page.token)
        page.stop()
    assert len(tokens) == 3


def test_a_port_that_is_taken(regen, page):
    line = regen.fails(2, "share", "serve", "--socket", "other", "--page", f"127.0.0.1:{page.port}")
    assert f"cannot serve the page at '127.0.0.1:{page.port}': bind" in line
    assert not os.path.exists(regen.folder / "other")


def test_at_a_unix_socket(tmp_path):
    path = tmp_path / "page"
    daemon = Daemon(tmp_path, "--page", f"unix:{path}")
    try:
        token = re.fullmatch(rf"page at unix:{re.escape(str(path))} http://localhost/\?token=([0-9a-f]{{64}})\n", daemon.page)[1]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as browser:
            browser.connect(str(path))
            browser.sendall(f"GET /metrics?token={token} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert browser.makefile().read().startswith("HTTP/1.1 200 OK\n")
        assert daemon.stop() == 0
        assert not path.exists()
    finally:
        daemon.stop(signal.SIGKILL)
        daemon.process.stdout.close()
        daemon.process.stderr.close()


def test_strangers_do_not_delay_grants(page):
    """Connections that say nothing, half of something, or nonsense, and do not read: jobs get their turns all the same."""
    jobs = [wire.Wire(page.socket), wire.Wire(page.socket)]
    for name, job in zip("ab", jobs):
        job.register(name)
    crowd = []
    for number in range(100):
        crowd.append(socket.create_connection(("127.0.0.1", page.port)))
        crowd[-1].sendall((b"", b"GET / HTTP/1.1\r\n", b"\0" * 100, f"GET /?{page.query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())[number % 4])
        for job in jobs:
            job.send(wire.ACQUIRE)
            assert job.receive() == (wire.GRANTED, {})
            job.send(wire.IDLE)
    assert page.json()["refused_messages"] == 0
    for connection in crowd:
        connection.close()
    assert eventually(lambda: page.json()["devices"][0]["turns"] == 200)


def queries(value):
    """All expressions of a dashboard."""
    if isinstance(value, dict):
        return [value["expr"], *(q for v in value.values() for q in queries(v))] if "expr" in value else [q for v in value.values() for q in queries(v)]
    return [q for v in value for q in queries(v)] if isinstance(value, list) else []


def test_the_dashboard_asks_for_what_there_is(page):
    job = wire.Wire(page.socket)
    job.register("train")
    job.send(wire.ACQUIRE)
    assert job.receive() == (wire.GRANTED, {})
    job.send(wire.REQUESTS, count=1, p50_seconds=0.25, p95_seconds=0.5)
    assert eventually(lambda: page.json()["devices"][0]["jobs"] and page.json()["devices"][0]["jobs"][0]["requests"] == 1)
    metrics = page.ok("/metrics").decode()
    samples = {match[1]: set(re.findall(r'(\w+)="', match[2] or "")) for match in re.finditer(r"^(regen_share_\w+)(\{.*\})? ", metrics, re.MULTILINE)}
    dashboard = json.loads(DASHBOARD.read_text())
    asked = queries(dashboard)
    assert len(asked) >= 10
    for expression in asked:
        names = re.findall(r"regen_share_\w+", expression)
        assert names, expression
        for name in names:
            assert name in samples, f"{name} of {expression}"
        labels = set(re.findall(r"[{,](\w+)[=!]", expression)) | {w for by in re.findall(r"by \(([\w, ]+)\)", expression) for w in by.split(", ")}
        known = set.union({"instance"}, *(samples[name] for name in names))
        assert labels <= known, f"{labels - known} of {expression}"
        rate = re.findall(r"rate\((\w+)", expression)
        assert all(name.endswith("_total") for name in rate), expression
