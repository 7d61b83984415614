"""The verbs of `regen share` and the protocol, against the real daemon."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import uuid

import pytest

import wire
from eventually import eventually
from regen_program import BINARY
from share_daemon import Daemon

GIB = 2**30


def status(regen, daemon):
    return regen.json("share", "status", "--socket", daemon.socket)


def test_serve_says_where_and_stops_cleanly(tmp_path, daemon):
    assert daemon.greeting == f"serving gpu0 16.0 GiB, gpu1 1000 B at {daemon.socket}\n"
    assert stat.S_IMODE(os.stat(daemon.socket).st_mode) == 0o600
    assert daemon.stop(signal.SIGINT) == 0
    assert not os.path.exists(daemon.socket)
    assert daemon.process.stderr.read() == "stopping with 0 jobs\n"


def test_a_second_daemon_is_refused_and_a_stale_socket_replaced(regen, daemon, tmp_path):
    line = regen.fails(2, "share", "serve", "--socket", daemon.socket)
    assert f"a daemon serves there already (process {daemon.process.pid})" in line
    daemon.stop(signal.SIGKILL)
    assert os.path.exists(daemon.socket)
    again = Daemon(tmp_path)
    assert again.stop() == 0


def test_priorities_words_and_counts(regen, daemon):
    low, high = wire.Wire(daemon.socket), wire.Wire(daemon.socket)
    low.register("low", memory=GIB)
    high.register("high", priority=1, memory=GIB)
    low.send(wire.ACQUIRE)
    assert low.receive() == (wire.GRANTED, {})
    assert low.keep_going() and not high.keep_going()
    high.send(wire.ACQUIRE)
    assert eventually(lambda: not low.keep_going())
    low.send(wire.YIELD)
    assert high.receive() == (wire.GRANTED, {})
    assert high.keep_going()
    gpu0 = status(regen, daemon)["devices"][0]
    assert gpu0["used_bytes"] == 2 * GIB
    jobs = {job["name"]: job for job in gpu0["jobs"]}
    assert (jobs["low"]["state"], jobs["high"]["state"]) == ("waiting", "holding")
    assert jobs["low"]["preemptions"] == 1 and jobs["low"]["process"] == os.getpid()
    high.close()
    assert low.receive() == (wire.GRANTED, {})
    assert low.keep_going()


def test_the_word_says_whether_somebody_waits(daemon):
    holder, other = wire.Wire(daemon.socket), wire.Wire(daemon.socket)
    holder.register("a")
    other.register("b")
    holder.send(wire.ACQUIRE)
    holder.receive()
    assert eventually(holder.nobody_waits)
    other.send(wire.ACQUIRE)
    assert eventually(lambda: not holder.nobody_waits())
    other.close()
    assert eventually(holder.nobody_waits)


def test_the_page_says_whether_somebody_could_interrupt(daemon):
    holder, equal, urgent = (wire.Wire(daemon.socket) for _ in range(3))
    holder.register("a")
    holder.send(wire.ACQUIRE)
    holder.receive()
    assert eventually(holder.outranks_all)
    equal.register("b")
    assert holder.outranks_all()
    urgent.register("c", priority=1)
    assert eventually(lambda: not holder.outranks_all()), "before it asks for the device"
    urgent.close()
    assert eventually(holder.outranks_all)


def test_a_job_stays_while_others_come_and_go(daemon):
    """What ends one connection is never taken for the end of another, or of a process that lives."""
    over = threading.Event()

    def look():
        while not over.is_set():
            asking = wire.Wire(daemon.socket)
            asking.send(wire.STATUS)
            asking.receive()
            asking.close()

    looking = [threading.Thread(target=look) for _ in range(2)]
    for thread in looking:
        thread.start()
    try:
        for _ in range(300):
            job = wire.Wire(daemon.socket)
            job.register("job", memory=10, identity=str(uuid.uuid4()))
            job.send(wire.ACQUIRE)
            assert job.receive() == (wire.GRANTED, {})
            job.send(wire.IDLE)
            job.close()
    finally:
        over.set()
        for thread in looking:
            thread.join()


def test_a_client_cannot_write_its_word(daemon):
    client = wire.Wire(daemon.socket)
    client.register("a")
    with pytest.raises(TypeError):
        client.page[0] = 1


def test_the_words_change_when_the_daemon_is_killed(daemon):
    client = wire.Wire(daemon.socket)
    client.register("a")
    client.send(wire.ACQUIRE)
    client.receive()
    assert client.keep_going()
    daemon.stop(signal.SIGKILL)
    assert not client.keep_going()


def test_status_for_people_and_machines(regen, daemon):
    client = wire.Wire(daemon.socket)
    client.register("train", weight=2.5, memory=8 * GIB)
    text = regen.ok("share", "status", "--socket", daemon.socket)
    assert "8.00 GiB of 16.0 GiB admitted" in text
    assert text.splitlines()[1].split()[:5] == ["job", "process", "state", "priority", "weight"]
    assert text.splitlines()[2].split()[:5] == ["train", str(os.getpid()), "idle", "0", "2.5"]
    metrics = regen.ok("share", "status", "--socket", daemon.socket, "--prometheus")
    line = 'regen_share_job_memory_bytes{device="gpu0",job="train",identity="train"} 8589934592'
    assert line in metrics.splitlines()
    assert metrics.count("# TYPE") == metrics.count("# HELP") == 27


def test_a_job_shrinks_for_a_newcomer_by_the_text_of_the_protocol(daemon):
    job, other = wire.Wire(daemon.socket), wire.Wire(daemon.socket)
    job.register("train", device="gpu1", memory=900, points=[[900, 0.1], [500, 0.2]])
    assert job.limit()[:2] == (900, "pause")
    other.send(wire.REGISTER, name="other", identity="other", device="gpu1", memory=500)
    assert job.receive() == (wire.LIMIT, {})
    size, _, generation = job.limit()
    assert size == 500
    job.send(wire.CONFIRM, generation=generation, used_bytes=480)
    kind, body = other.receive()
    assert kind == wire.REGISTERED and body["device"] == 1
    other.close()
    assert job.receive() == (wire.LIMIT, {})
    assert job.limit()[0] == 900


def test_jobs_take_turns_by_the_text_of_the_protocol(regen, daemon):
    jobs = [wire.Wire(daemon.socket), wire.Wire(daemon.socket)]
    for name, job in zip("ab", jobs):
        job.register(name, device="gpu1", memory=800, persistent_bytes=100, deepest="spill")
        job.send(wire.ACQUIRE)
    assert jobs[0].receive() == (wire.GRANTED, {}) or jobs[0].receive() == (wire.GRANTED, {})
    assert eventually(lambda: not jobs[0].keep_going())  # its turn is over
    assert status(regen, daemon)["devices"][1]["in_turns"]
    jobs[0].send(wire.YIELD)
    while (answer := jobs[0].receive())[0] == wire.LIMIT:
        pass
    assert answer == (wire.MAKE_ROOM, {"depth": "spill"})
    jobs[0].send(wire.MADE_ROOM, left_bytes=100)
    while (answer := jobs[1].receive())[0] == wire.LIMIT:
        pass
    assert answer == (wire.GRANTED, {})
    jobs[1].send(wire.MADE_ROOM, left_bytes=100)
    kind, body = jobs[1].receive()
    assert kind == wire.ERROR and "made room without being asked" in body["message"]


def test_set_changes_a_job_that_runs(regen, daemon):
    job = wire.Wire(daemon.socket)
    job.register("train", identity="one", device="gpu1", memory=900, points=[[900, 0.1], [500, 0.2]])

    def change(*options):
        return ["share", "set", "--socket", daemon.socket, *options]

    assert regen.ok(*change("train", "--priority", "3", "--weight", "2", "--memory", "600")) == ""
    shown = status(regen, daemon)["devices"][1]["jobs"][0]
    assert (shown["priority"], shown["weight"], shown["memory_bytes"], shown["limit_bytes"]) == (3, 2, 600, 500)
    assert "unknown job 'nobody', expected one of train" in regen.fails(2, *change("nobody", "--weight", "2"))
    line = regen.fails(1, *change("train", "--memory", "499"))
    assert "may use 499 bytes, expected at least the 500 that it says it needs" in line
    twin = wire.Wire(daemon.socket)
    twin.register("train", identity="twin")
    assert "2 jobs have the name 'train', expected an identity" in regen.fails(2, *change("train", "--weight", "2"))
    assert regen.ok(*change("twin", "--weight", "2")) == ""


def test_events_are_logged_one_line_each(daemon):
    job = wire.Wire(daemon.socket)
    job.register("train", memory=1)
    job.close()
    bad = wire.Wire(daemon.socket)
    bad.send(wire.REGISTER, name="big", identity="big", device="gpu1", memory=1001)
    assert bad.receive()[0] == wire.ERROR
    daemon.stop()
    me = f"job 'train' (process {os.getpid()})"
    lines = daemon.process.stderr.read().splitlines()
    assert lines[:2] == [f"{me} admitted", f"{me} left"]
    assert lines[2].startswith("refused: job 'big' asks for 1,001 bytes") and lines[3:] == ["stopping with 0 jobs"]


def test_a_log_that_nobody_reads_does_not_stop_the_daemon(daemon):
    for number in range(1500):  # more lines than a pipe holds
        job = wire.Wire(daemon.socket)
        job.register("a job with a long name " * 4, identity=str(number))
        job.close()
    assert daemon.stop() == 0


def hears_ctrl_c():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_watch_shows_again_until_ctrl_c(daemon):
    command = [str(BINARY), "share", "status", "--socket", daemon.socket, "--watch", "--interval", "0.05"]
    # A shell that runs the tests in the background ignores it, which programs inherit.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=hears_ctrl_c) as watch:
        for _ in range(4):  # two devices, twice
            assert "admitted" in watch.stdout.readline()
        watch.send_signal(signal.SIGINT)
        assert watch.wait(30) == 0


def test_metrics_by_http(daemon):
    with socket.socket(socket.AF_UNIX) as http:
        http.connect(daemon.socket)
        http.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert http.makefile().read().startswith("HTTP/1.1 200 OK")


# --- run

PRINT = "import os; print(*(f'{k}={v}' for k, v in sorted(os.environ.items()) if k.startswith('REGEN_SHARE')))"


def run(daemon, *words):
    return ["share", "run", "--socket", daemon.socket, *words]


def test_run_tells_the_program_which_job_it_is(regen, daemon):
    options = ["--priority", "2", "--weight", "1.5", "--memory", "8GiB", "--device", "gpu0", "--deadline", "0.01", "--deepest", "leave"]
    out = regen.ok(*run(daemon, *options, "--", sys.executable, "-c", PRINT)).split()
    assert out == [
        "REGEN_SHARE_DEADLINE=0.01",
        "REGEN_SHARE_DEEPEST=leave",
        "REGEN_SHARE_DEVICE=gpu0",
        f"REGEN_SHARE_MEMORY={8 * GIB}",
        f"REGEN_SHARE_NAME={os.path.basename(sys.executable)}",
        "REGEN_SHARE_PRIORITY=2",
        f"REGEN_SHARE_SOCKET={daemon.socket}",
        "REGEN_SHARE_WEIGHT=1.5",
    ]


def test_run_passes_exit_status_and_signals_on(regen, daemon):
    assert regen.run(*run(daemon, "--memory", "1", "--", "sh", "-c", "exit 7")).returncode == 7
    command = [str(BINARY), *run(daemon, "--memory", "1", "--", "sh", "-c", "echo up; exec sleep 60")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout.readline() == "up\n"
        job.send_signal(signal.SIGTERM)
        assert job.wait(30) == -signal.SIGTERM


def test_run_refuses_before_anything_starts(regen, daemon):
    line = regen.fails(1, *run(daemon, "--memory", "1001", "--device", "gpu1", "--", "touch", "started"))
    assert "asks for 1,001 bytes on device 'gpu1', expected at most 1,000" in line
    assert "'gpu7', expected one of gpu0, gpu1" in regen.fails(
        2, *run(daemon, "--memory", "1", "--device", "gpu7", "--", "true")
    )
    assert "cannot start 'no-such-program'" in regen.fails(2, *run(daemon, "--memory", "1", "--", "no-such-program"))


BAD = [
    (["share"], "found nothing, expected one of serve, status, top, run, set, simulate, trace"),
    (["share", "frobnicate"], "frobnicate"),
    (["share", "status", "extra"], "extra"),
    (["share", "status", "--socket", "nowhere"], "no daemon at 'nowhere'"),
    (["share", "status", "--socket", "x" * 200], "expected 1 to 107"),
    (["share", "serve", "--socket", "s", "--device", "gpu0"], "expected NAME:BYTES"),
    (["share", "serve", "--socket", "s", "--device", "a:1", "--device", "a:2"], "'a' is given twice"),
    (["share", "serve", "--socket", "s", "--mode", "9"], "expected octal"),
    (["share", "serve", "--socket", "s", "--turn", "0"], "0.0001"),
    (["share", "serve", "--socket", "no/such/folder/s"], "no/such/folder/s"),
    (["share", "serve", "--socket", "s", "--patience", "0"], "0.01"),
    (["share", "serve", "--socket", "s", "--page", "0.0.0.0:80"], "expected 127.0.0.1:PORT"),
    (["share", "serve", "--socket", "s", "--page", "localhost:80"], "expected 127.0.0.1:PORT"),
    (["share", "serve", "--socket", "s", "--page", "unix:no/such/folder/p"], "no/such/folder/p"),
    (["share", "top", "--socket", "nowhere"], "no daemon at 'nowhere'"),
    (["share", "top", "--socket", "nowhere", "--once"], "no daemon at 'nowhere'"),
    (["share", "top", "--interval", "0"], "0.05"),
    (["share", "set", "--priority", "1"], "JOB"),
    (["share", "set", "train"], "expected --priority, --weight or --memory"),
    (["share", "set", "train", "--priority", "1000001"], "0 to 1000000"),
    (["share", "run", "--", "true"], "--memory"),
    (["share", "run", "--memory", "1"], "COMMAND"),
    (["share", "run", "--memory", "1", "--priority", "-1", "--", "true"], "0 to 1000000"),
    (["share", "run", "--memory", "1", "--weight", "0", "--", "true"], "0.001"),
    (["share", "run", "--memory", "lots", "--", "true"], "lots"),
    (["share", "run", "--memory", "1", "--socket", "nowhere", "--", "true"], "regen share serve"),
]


@pytest.mark.parametrize("arguments, expected", BAD, ids=lambda v: " ".join(v)[:60] if isinstance(v, list) else "")
def test_bad_usage(regen, arguments, expected):
    assert expected in regen.fails(2, *arguments)
