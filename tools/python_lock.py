"""Writes tools/python.lock: what pip would install for the packages that tools/setup.sh names, with hashes.

    .venv/bin/python tools/python_lock.py

Asks pip's index, and installs nothing. Run it with the Python that .venv is made for.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOCK = ROOT / "tools" / "python.lock"
SETUP = ROOT / "tools" / "setup.sh"
# A build for each kind of device has the same version and another hash.
WITHOUT_HASH = {"torch"}


def named_packages(script: str) -> list[str]:
    """The packages of the list `python_packages` of set-up."""
    found = re.search(r"python_packages=\((.*?)\)", script, re.DOTALL)
    if found is None:
        raise SystemExit(f"{SETUP}: no list python_packages")
    return [word.strip("'") for word in found.group(1).split()]


def plain_name(name: str) -> str:
    """The name as indices write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def resolved(packages: list[str]) -> dict[str, tuple[str, str]]:
    """By name: the version and hash of what pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--report", str(report), *packages]
        subprocess.run(command, check=True)
        entries = json.loads(report.read_text())["install"]
    return {plain_name(e["metadata"]["name"]): (e["metadata"]["version"], e["download_info"]["archive_info"]["hashes"]["sha256"]) for e in entries}


def line(name: str, version: str, digest: str) -> str:
    if name in WITHOUT_HASH:
        return f"{name}=={version.split('+')[0]}"
    return f"{name}=={version} --hash=sha256:{digest}"


def main() -> None:
    head = [text for text in LOCK.read_text().splitlines() if text.startswith("#")]
    found = resolved(named_packages(SETUP.read_text()))
    lines = [line(name, *found[name]) for name in sorted(found)]
    LOCK.write_text("\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    main()
