"""Writes tools/python.lock and docs.lock: what pip would install for the packages that tools/setup.sh names, with hashes.

    .venv/bin/python tools/python_lock.py [docs]

docs.lock has what the site of the documents needs beyond python.lock, at the versions of that; with `docs` it alone is written. Asks pip's
index, and installs nothing. Run it with the Python that .venv is made for.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOCK = ROOT / "tools" / "python.lock"
DOCS_LOCK = ROOT / "tools" / "docs.lock"
SETUP = ROOT / "tools" / "setup.sh"
# A build for each kind of device has the same version and another hash.
WITHOUT_HASH = {"torch"}


def named_packages(script: str, kind: str = "python") -> list[str]:
    """The packages of the list `python_packages` of set-up, or of another one."""
    found = re.search(rf"^{kind}_packages=\((.*?)\)", script, re.DOTALL | re.MULTILINE)
    if found is None:
        raise SystemExit(f"{SETUP}: no list {kind}_packages")
    return [word.strip("'") for word in found.group(1).split()]


def plain_name(name: str) -> str:
    """The name as indices write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(lock: pathlib.Path) -> list[str]:
    """`name==version` of each line of a lock."""
    return [text.split()[0] for text in lock.read_text().splitlines() if not text.startswith("#")]


def resolved(packages: list[str], constraints: Sequence[str] = ()) -> dict[str, tuple[str, str]]:
    """By name: the version and hash of what pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        report, constraint = pathlib.Path(folder) / "report.json", pathlib.Path(folder) / "constraints.txt"
        constraint.write_text("\n".join(constraints))
        command = [
            sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--report", str(report), "-c", str(constraint),
            *packages]
        subprocess.run(command, check=True)
        entries = json.loads(report.read_text())["install"]
    return {plain_name(e["metadata"]["name"]): (e["metadata"]["version"], e["download_info"]["archive_info"]["hashes"]["sha256"]) for e in entries}


def line(name: str, version: str, digest: str) -> str:
    if name in WITHOUT_HASH:
        return f"{name}=={version.split('+')[0]}"
    return f"{name}=={version} --hash=sha256:{digest}"


def write(lock: pathlib.Path, found: dict[str, tuple[str, str]]) -> None:
    head = [text for text in lock.read_text().splitlines() if text.startswith("#")]
    lines = [line(name, *found[name]) for name in sorted(found)]
    lock.write_text("\n".join([*head, *lines]) + "\n")


def main() -> None:
    script = SETUP.read_text()
    if sys.argv[1:] != ["docs"]:
        write(LOCK, resolved(named_packages(script)))
    present = locked(LOCK)
    needed = resolved(named_packages(script, "docs"), present)
    write(DOCS_LOCK, {name: found for name, found in needed.items() if f"{name}=={found[0]}" not in present})


if __name__ == "__main__":
    main()
