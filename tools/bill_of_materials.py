"""Writes docs/reference/third-party.md: every piece that regen is built, run or tested with, its version, licence and hash.

    .venv/bin/python tools/bill_of_materials.py     after tools/setup.sh docs
"""

import importlib.metadata
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "third-party.md"

HEAD = """# Third-party pieces

*For packagers and auditors: what is in a build.* `tools/bill_of_materials.py` writes this page; a test compares it with what
`tools/setup.sh` downloads. [Trust](../explanation/trust.md#what-set-up-downloads) says what is checked.

## In the programs and the Python module
| piece | version | licence | comes from |
| --- | --- | --- | --- |
"""
# What is compiled in, or linked to. Versions of packages of the distribution are those that are known to work at least.
BUILT_IN = [
    ("HiGHS", None, "MIT", "source archive of `highspy` on PyPI, sha256 `{highs}`"),
    ("nlohmann/json", "3.11 or later", "MIT", "`nlohmann-json3-dev`, apt"),
    ("CLI11", "2.1 or later", "BSD-3-Clause", "`libcli11-dev`, apt"),
    ("Asio", "1.22 or later", "BSL-1.0", "`libasio-dev`, apt"),
    ("PyTorch and what it contains", "2.11 or later", "BSD-3-Clause and others", "the Python environment; it is not copied"),
]
TOOLS = [
    ("GoogleTest and GoogleMock", "1.12 or later", "BSD-3-Clause", "`libgtest-dev`, `libgmock-dev`, apt"),
    ("Google Benchmark", "1.7 or later", "Apache-2.0", "`libbenchmark-dev`, apt"),
    ("GCC, ccache", "of the distribution", "GPL-3.0-or-later", "apt; no part of a build"),
    ("CMake", "3.25 or later", "BSD-3-Clause", "apt; no part of a build"),
    ("Ninja", "of the distribution", "Apache-2.0", "apt; no part of a build"),
    ("mold", "of the distribution", "MIT", "apt; no part of a build"),
    ("Graphviz", "of the distribution", "EPL-1.0", "apt; no part of a build"),
    ("Chromium", "of the distribution", "BSD-3-Clause and others", "apt; opens reports in a test; no part of a build"),
    ("axe-core, the JavaScript inside axe-core-python", "with the package", "MPL-2.0", "pip; run in a test's browser; no part of a build"),
    ("Clang 14: compiler for fuzzing, clang-format, clang-tidy", "14", "Apache-2.0 with LLVM exception", "apt; no part of a build"),
]
DOCS_PACKAGES = """
## Python packages for the site of the documents
By pip, for `make docs` alone ([docs.lock](../../tools/docs.lock)).

"""
PACKAGES = """
## Python packages for development
By pip into `.venv`; the package `regen` itself needs torch alone. The hash is of the file for CPython 3.11 on Linux x86-64
([python.lock](../../tools/python.lock)).

"""
CLASSIFIERS = {
    "BSD License": "BSD", "MIT License": "MIT", "Apache Software License": "Apache-2.0", "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0", "ISC License (ISCL)": "ISC",
}


def setting(name: str) -> str:
    """What tools/setup.sh gives a name."""
    found = re.search(rf"^{name}=(\S+)", (ROOT / "tools" / "setup.sh").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"tools/setup.sh: no {name}")
    return found.group(1)


def locked(name: str = "python") -> list[tuple[str, str, str]]:
    """Name, version and hash of each Python package of a lock; the hash may be empty."""
    lines = (ROOT / "tools" / f"{name}.lock").read_text().splitlines()
    words = [re.match(r"(\S+)==(\S+)(?: --hash=sha256:(\S+))?$", line) for line in lines if not line.startswith("#")]
    return [(word[1], word[2], word[3] or "") for word in words if word]


def licence(name: str) -> str:
    """As the installed package says."""
    about = importlib.metadata.metadata(name)
    stated = about.get("License-Expression")
    if stated:
        return stated
    kinds = [line.split("::")[-1].strip() for line in about.get_all("Classifier") or [] if line.startswith("License ::")]
    return " and ".join(CLASSIFIERS.get(kind, kind) for kind in kinds) or (about.get("License") or "not stated").splitlines()[0]


def page() -> str:
    """The whole page."""
    text = HEAD
    for name, version, terms, source in BUILT_IN:
        source = source.format(highs=setting("highs_sha256"))
        text += f"| {name} | {version or setting('highs_version')} | {terms} | {source} |\n"
    text += "\n## For building and testing\n| piece | version | licence | comes from |\n| --- | --- | --- | --- |\n"
    for row in TOOLS:
        text += "| " + " | ".join(row) + " |\n"
    return text + PACKAGES + package_table("python") + DOCS_PACKAGES + package_table("docs")


def package_table(lock: str) -> str:
    """The packages of a lock."""
    text = "| package | version | licence | sha256 |\n| --- | --- | --- | --- |\n"
    for name, version, digest in locked(lock):
        text += f"| {name} | {version} | {licence(name)} | {f'`{digest[:16]}`…' if digest else 'a build for each kind of device'} |\n"
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
