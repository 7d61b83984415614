"""`regen doctor`: what it finds here, and what it says of installations that are not whole."""

import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import venv
from typing import Any

import pytest

from regen_program import BINARY

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from regen_doctor import machine, software
from regen_doctor.check import Check, Status


def by_name(answer: list[dict[str, str]]) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in answer}


def test_this_installation_is_whole(regen: Any) -> None:
    checks = by_name(regen.json("doctor"))
    assert all(check["status"] in ("ok", "absent", "warning") for check in checks.values()), checks
    for name in ("python", "torch", "runtime", "program", "trial"):
        assert checks[name]["status"] == "ok", checks[name]
    assert all(check["advice"] for check in checks.values() if check["status"] != "ok")
    version = regen.ok("--version").split()[1]
    assert checks["program"]["found"].startswith(f"regen {version}, ")
    assert checks["runtime"]["found"].startswith(f"{version}, ")


def test_without_torch_the_problems_are_named(regen: Any, tmp_path: pathlib.Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    result = regen.run("doctor", env={"REGEN_PYTHON": str(tmp_path / "bare" / "bin" / "python")})
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1 and "found a problem (torch, runtime, trial)" in result.stderr
    lines = result.stdout.splitlines()
    assert any(line.startswith("torch") and "PROBLEM" in line for line in lines)
    assert any("REGEN_PYTHON" in line for line in lines)


def test_an_interpreter_that_is_not_there_is_one_line(regen: Any) -> None:
    message = regen.fails(2, "doctor", env={"REGEN_PYTHON": "/nonexistent/python"})
    assert "/nonexistent/python" in message and "REGEN_PYTHON" in message


# --- The cache folder: what is not used is named, with what to do.


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    (folder / "entry").write_bytes(b"x" * 2048)
    return folder


def test_cache_is_measured(folder: pathlib.Path) -> None:
    check = machine.cache(folder)
    assert check.status is Status.OK and "1 files, 2.0 KiB" in check.found


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_cache_that_others_may_write_to(folder: pathlib.Path, mode: int) -> None:
    folder.chmod(mode)
    check = machine.cache(folder)
    assert check.status is Status.WARNING and f"chmod go-w {folder}" in check.advice


def test_a_cache_of_another_user(folder: pathlib.Path) -> None:
    check = machine.cache(folder, user=os.getuid() + 1)
    assert check.status is Status.WARNING and "belongs to user" in check.found


def test_a_cache_that_is_a_file_or_below_one(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert machine.cache(file).status is Status.WARNING
    assert machine.cache(file / "cache").status is Status.WARNING


def test_a_cache_that_does_not_exist_yet(tmp_path: pathlib.Path) -> None:
    check = machine.cache(tmp_path / "new" / "cache")
    assert check.status is Status.OK and "not made yet" in check.found
    assert not (tmp_path / "new").exists()


# --- The daemon.


def test_no_daemon_is_no_problem(tmp_path: pathlib.Path) -> None:
    assert machine.daemon({"path": "regen", "socket": str(tmp_path / "none.sock")}).status is Status.ABSENT


def test_a_socket_without_a_daemon(regen: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "share.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    check = machine.daemon({"path": str(BINARY), "socket": str(path)})
    assert check.status is Status.WARNING and str(path) in check.advice


def test_a_daemon_and_its_jobs_are_counted(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "share.sock")
    command = [str(BINARY), "share", "serve", "--socket", path, "--settle", "0", "--device", "a:100", "--device", "b:100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as serving:
        assert serving.stdout is not None and serving.stdout.readline()
        jobs = [register(path, name, device) for name, device in (("one", "a"), ("two", "b"), ("three", "b"))]
        check = machine.daemon({"path": str(BINARY), "socket": path})
        jobs.pop().close()
        serving.terminate()
    assert check.status is Status.OK and check.found == f"{path}, 2 devices, 3 jobs"


def register(path: str, name: str, device: str) -> socket.socket:
    """A job, by the protocol of docs/reference/protocol.md. It is known once the daemon has answered."""
    body = json.dumps({"name": name, "identity": name, "device": device, "memory": 10}).encode()
    job = socket.socket(socket.AF_UNIX)
    job.connect(path)
    job.sendall(b"RGSH" + struct.pack("<HHI", 1, 1, len(body)) + body)
    assert job.recv(1 << 16)
    return job


def test_a_socket_in_a_folder_of_others(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    program = {"path": "regen", "socket": str(folder / "share.sock")}
    assert machine.daemon(program).status is Status.ABSENT
    if os.getuid() != 0:  # root's folders are everybody's to use
        assert "belongs to user" in machine.daemon(program, user=os.getuid() + 1).found
    folder.chmod(0o707)
    open_to_all = machine.daemon(program)
    assert open_to_all.status is Status.WARNING and f"others may write to {folder}" in open_to_all.found and "REGEN_SHARE_SOCKET" in open_to_all.advice
    folder.chmod(0o1777)
    assert machine.daemon(program).status is Status.ABSENT, "as /tmp is"


def test_a_socket_that_is_not_for_this_user(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "share.sock"
    path.touch()
    monkeypatch.setattr(os, "access", lambda name, mode: False)
    check = machine.daemon({"path": str(BINARY), "socket": str(path)})
    assert check.status is Status.WARNING and f"no permission for {path}" in check.found and "--mode" in check.advice


# --- The compiler.


def script(path: pathlib.Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_compilers(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = software.compiler()
    assert real.status is Status.OK
    old = script(tmp_path / "old", 'test "$1" = --version && echo "g++ 4.8" && exit 0; echo "error: unrecognized option -std=c++20" >&2; exit 1')
    monkeypatch.setenv("CXX", old)
    check = software.compiler()
    assert check.status is Status.WARNING and check.found == "g++ 4.8: error: unrecognized option -std=c++20" and "g++ 12" in check.advice
    monkeypatch.setenv("CXX", script(tmp_path / "broken", "exit 3"))
    assert "exit status 3" in software.compiler().found
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("CXX", "")
    none = software.compiler()
    assert none.status is Status.ABSENT and "apt-get" in none.advice


# --- What depends on hardware and on other releases.


def test_devices(tmp_path: pathlib.Path) -> None:
    driver = tmp_path / "version"
    none = {"version": "2.11.0", "cuda": None, "devices": []}
    assert machine.cuda(none, driver).status is Status.ABSENT
    driver.touch()
    assert "without CUDA" in machine.cuda(none, driver).found
    assert "finds no device" in machine.cuda({**none, "cuda": "13.0"}, driver, tmp_path).found
    found = machine.cuda({**none, "cuda": "13.0", "devices": [{"name": "H200", "free": 1 << 30, "total": 3 << 30}]}, driver)
    assert found.status is Status.OK and found.found == "CUDA 13.0: H200, 1.0 GiB of 3.0 GiB free"


def test_a_device_that_this_user_may_not_open(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = tmp_path / "version"
    driver.touch()
    answer = {"version": "2.11.0", "cuda": "13.0", "devices": []}
    (tmp_path / "nvidia0").symlink_to("/dev/null")
    monkeypatch.setattr(os, "access", lambda name, mode: False)
    check = machine.cuda(answer, driver, tmp_path)
    assert check.status is Status.WARNING and f"no permission for {tmp_path / 'nvidia0'}" in check.found and "group" in check.advice


@pytest.mark.parametrize(("version", "status"), [
    ("2.10.1", Status.PROBLEM), ("2.11.0+cu130", Status.OK), ("2.13.0+cpu", Status.OK), ("2.14.0a0+git", Status.WARNING), ("3.0.0", Status.WARNING)])
def test_versions_of_torch(version: str, status: Status) -> None:
    assert software.torch({"version": version}, "").status is status


def test_package_and_program_of_two_releases() -> None:
    package = Check("runtime", Status.OK, "0.2.0, /somewhere")
    assert software.same_release(package, {"version": "0.1.0", "path": "/usr/bin/regen", "runtime": True}).status is Status.PROBLEM
    assert software.same_release(package, {"version": "0.2.0", "path": "/usr/bin/regen", "runtime": False}).status is Status.WARNING
    assert software.same_release(package, {"version": "0.2.0", "path": "/usr/bin/regen", "runtime": True}).status is Status.OK
