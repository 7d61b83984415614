"""Runs the regen binary named by REGEN_BIN (default build/regen) as a user would."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("REGEN_BIN", ROOT / "build" / "regen")).resolve()


class Regen:
    """Calls of the binary in a folder of their own, with what a call must look like."""

    def __init__(self, folder: Path):
        self.folder = folder

    def run(self, *arguments, env=None, stdin=None, timeout=120):
        return subprocess.run(
            [str(BINARY), *map(str, arguments)],
            cwd=self.folder,
            env={**os.environ, **(env or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def ok(self, *arguments, **options) -> str:
        """Standard output of a call that must succeed in silence."""
        done = self.run(*arguments, **options)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    def json(self, *arguments, **options):
        return json.loads(self.ok(*arguments, "--json", **options))

    def fails(self, status: int, *arguments, **options) -> str:
        """The one line on standard error of a call that must fail with `status`."""
        before = files(self.folder)
        done = self.run(*arguments, **options)
        assert done.returncode == status, (done.returncode, done.stderr)
        assert done.stderr.startswith("regen: "), done.stderr
        assert done.stderr.count("\n") == 1 and done.stderr.endswith("\n"), done.stderr
        assert len(done.stderr) < 2000
        assert files(self.folder) == before, "a failed call left something behind"
        return done.stderr

    def write(self, name: str, content) -> str:
        text = content if isinstance(content, str) else json.dumps(content)
        (self.folder / name).write_text(text)
        return name

    def bytes_of(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()


def files(folder: Path) -> dict:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def regen(tmp_path):
    if not BINARY.exists():
        pytest.fail(f"no binary at {BINARY}; build it or set REGEN_BIN")
    return Regen(tmp_path)
