"""What set-up downloads: named with fixed versions and hashes, and listed in the bill of materials."""

import importlib.metadata
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import bill_of_materials as bill
import python_lock as lock

LOCKS = ("python", "docs")
SETUP = (ROOT / "tools" / "setup.sh").read_text()


def as_locked():
    """The licences are those that the installed packages state."""
    installed = {lock.plain_name(d.metadata["Name"]): d.version.split("+")[0] for d in importlib.metadata.distributions()}
    return all(installed.get(name) == version for kind in LOCKS for name, version, _ in bill.locked(kind))


@pytest.mark.skipif(not as_locked(), reason="other packages are installed than tools/python.lock and tools/docs.lock name (tools/setup.sh docs)")
def test_the_page_is_what_the_tool_writes():
    assert bill.PAGE.read_text() == bill.page()


@pytest.mark.parametrize("kind", LOCKS)
def test_every_named_package_is_locked_at_its_version(kind):
    locked = {name: version for name, version, _ in bill.locked(kind)}
    for package in lock.named_packages(SETUP, kind):
        name, version = re.match(r"([\w.-]+)(?:\[\w+\])?==(.+)", package).groups()
        assert locked[lock.plain_name(name)] == version


def test_every_locked_package_but_torch_has_a_hash():
    assert len(bill.locked()) > 50
    for name, _, digest in [*bill.locked(), *bill.locked("docs")]:
        assert (name in lock.WITHOUT_HASH) != bool(re.fullmatch(r"[0-9a-f]{64}", digest)), name


def test_the_site_needs_nothing_that_the_rest_has_at_another_version():
    """So that `make docs` changes no package that is there."""
    assert not {name for name, _, _ in bill.locked()} & {name for name, _, _ in bill.locked("docs")}


def test_set_up_refuses_another_archive_of_highs(tmp_path):
    """The check of tools/setup.sh, with an archive that was changed."""
    check = re.search(r'echo "\$highs_sha256 .*?exit 1; }', SETUP, re.DOTALL).group(0)
    (tmp_path / "third_party" / "highs-work").mkdir(parents=True)
    (tmp_path / "third_party" / "highs-work" / "highspy-1.15.1.tar.gz").write_bytes(b"something else")
    names = f"highs_version={bill.setting('highs_version')} highs_sha256={bill.setting('highs_sha256')}\n"
    done = subprocess.run(["bash", "-c", names + check], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "the archive of HiGHS is not the one expected" in done.stderr
