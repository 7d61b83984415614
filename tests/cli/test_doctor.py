"""`regen doctor`: what it finds here, and what it says of installations that are not whole."""

import os
import pathlib
import socket
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


# --- What depends on hardware and on other releases.


def test_devices(tmp_path: pathlib.Path) -> None:
    driver = tmp_path / "version"
    none = {"version": "2.11.0", "cuda": None, "devices": []}
    assert machine.cuda(none, driver).status is Status.ABSENT
    driver.touch()
    assert "without CUDA" in machine.cuda(none, driver).found
    assert "finds no device" in machine.cuda({**none, "cuda": "13.0"}, driver).found
    found = machine.cuda({**none, "cuda": "13.0", "devices": [{"name": "H200", "free": 1 << 30, "total": 3 << 30}]}, driver)
    assert found.status is Status.OK and found.found == "CUDA 13.0: H200, 1.0 GiB of 3.0 GiB free"


@pytest.mark.parametrize(("version", "status"), [
    ("2.10.1", Status.PROBLEM), ("2.11.0+cu130", Status.OK), ("2.13.0+cpu", Status.OK), ("2.14.0a0+git", Status.WARNING), ("3.0.0", Status.WARNING)])
def test_versions_of_torch(version: str, status: Status) -> None:
    assert software.torch({"version": version}, "").status is status


def test_package_and_program_of_two_releases() -> None:
    package = Check("runtime", Status.OK, "0.2.0, /somewhere")
    assert software.same_release(package, {"version": "0.1.0", "path": "/usr/bin/regen", "runtime": True}).status is Status.PROBLEM
    assert software.same_release(package, {"version": "0.2.0", "path": "/usr/bin/regen", "runtime": False}).status is Status.WARNING
    assert software.same_release(package, {"version": "0.2.0", "path": "/usr/bin/regen", "runtime": True}).status is Status.OK
