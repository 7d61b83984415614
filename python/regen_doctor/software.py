"""Python, torch, regen's own parts, and the libraries that some uses need."""

import importlib.metadata
import json
import os
import shutil
import sys
import tempfile

from regen_doctor.check import Check, Status
from regen_doctor.child import run, run_python

OLDEST_PYTHON = (3, 10)
TESTED_TORCH = ("2.11", "2.13")
OPTIONAL = {
    "transformers": "training with regen.integrations.hugging_face",
    "accelerate": "transformers' Trainer",
    "lightning": "the callback of regen.integrations.lightning",
    "matplotlib": "`regen draw` and pictures of `regen sweep`",
}

# A step that cannot keep everything, against plain PyTorch.
TRIAL = """
import torch, regen
torch.manual_seed(0)
model = torch.nn.Sequential(*(part for _ in range(8) for part in (torch.nn.Linear(64, 64), torch.nn.GELU())))
regen.check(model, torch.randn(1024, 64), 0.7, reserve=0, cache=False, work_limit=1000)
"""

# What older compilers do not know.
MODERN = """#include <compare>
#include <concepts>
#include <span>
template <std::integral T> T sum(std::span<const T> all) { T s{}; for (T one : all) s += one; return s; }
struct Pair { int a, b; auto operator<=>(const Pair&) const = default; };
int main() { const int all[]{1, 2}; return sum(std::span<const int>(all)) + (Pair{1, 2} < Pair{1, 3}); }
"""

TORCH = """
import json, torch
devices = []
if torch.cuda.is_available():
    for i in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(i)
        devices.append({"name": torch.cuda.get_device_name(i), "free": free, "total": total})
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "devices": devices}))
"""


def python() -> Check:
    """The interpreter."""
    found = f"{sys.version.split()[0]}, {sys.executable}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Check("python", Status.PROBLEM, found, f"install Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer")
    return Check("python", Status.OK, found)


def ask_torch() -> tuple[dict | None, str]:
    """(version, CUDA and devices as torch sees them, or None; why not)."""
    output, reason = run_python(TORCH)
    if output is None:
        return None, reason
    try:
        return json.loads(output.strip().splitlines()[-1]), ""
    except (ValueError, IndexError):
        return None, "torch printed no answer"


def torch(answer: dict | None, reason: str) -> Check:
    """The library, and whether regen is tested with its version."""
    if answer is None:
        return Check("torch", Status.PROBLEM, reason, f"install torch for {sys.executable}, or name the right interpreter in REGEN_PYTHON")
    version = answer["version"]
    release = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    oldest, newest = (tuple(int(part) for part in text.split(".")) for text in TESTED_TORCH)
    if release < oldest:
        return Check("torch", Status.PROBLEM, version, f"regen needs torch {TESTED_TORCH[0]} or newer: pip install -U torch")
    if release > newest:
        return Check("torch", Status.WARNING, version, f"tested up to torch {TESTED_TORCH[1]}; `regen.check(model, sample)` compares your own step")
    return Check("torch", Status.OK, version)


def runtime() -> Check:
    """The package with its compiled module."""
    output, reason = run_python("import regen; print(regen.__version__, regen.__file__)")
    if output is None:
        return Check("runtime", Status.PROBLEM, reason, "build it for this torch: `make runtime` in a checkout, else `pip install --force-reinstall .`")
    version, _, path = output.strip().splitlines()[-1].partition(" ")
    return Check("runtime", Status.OK, f"{version}, {os.path.dirname(path)}")


def same_release(package: Check, program: dict) -> Check:
    """The package and the program must be of one release: they share files and messages."""
    version = package.found.split(",")[0]
    found = f"regen {program.get('version', 'unknown')}, {program.get('path', '?')}"
    if package.status is Status.OK and program.get("version") not in (None, version):
        return Check("program", Status.PROBLEM, f"{found}, but the package is {version}", "install both from one release: `pip install --force-reinstall .`")
    if program.get("path") and not program.get("runtime"):
        advice = "build it with torch: `make` in a checkout"
        return Check("program", Status.WARNING, f"{found}, without regen-runtime: no `profile`, `run` and `bench`", advice)
    return Check("program", Status.OK, found)


def trial(package: Check) -> Check:
    """A small step under a budget has plain PyTorch's bits."""
    if package.status is not Status.OK:
        return Check("trial", Status.PROBLEM, "not tried, since the runtime cannot be loaded", "see `runtime` above")
    output, reason = run_python(TRIAL)
    if output is None:
        return Check("trial", Status.PROBLEM, reason, "report this with the output of `regen doctor --json`")
    return Check("trial", Status.OK, "a planned step has plain PyTorch's gradients, bit for bit")


def compiler() -> Check:
    """Needed to build regen, and by torch.compile on the CPU."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path:
            return compiler_at(path)
    return Check("compiler", Status.ABSENT, "no C++ compiler", "only to build regen and for torch.compile: apt-get install g++")


def compiler_at(path: str) -> Check:
    """One that is there; whether it knows the C++ that regen is written in."""
    output, reason = run([path, "--version"])
    if not output:
        return Check("compiler", Status.WARNING, f"{path}: {reason or 'it says no version'}", "install another one, or name it in CXX: apt-get install g++")
    name = output.splitlines()[0]
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "trial.cpp")
        with open(source, "w") as file:
            file.write(MODERN)
        done, reason = run([path, "-std=c++20", "-fsyntax-only", source])
    if done is None:
        return Check("compiler", Status.WARNING, f"{name}: {reason}", "only to build regen: it needs g++ 12 or newer, or name another in CXX")
    return Check("compiler", Status.OK, name)


def libraries() -> list[Check]:
    """What single uses need."""
    checks = []
    for name, use in OPTIONAL.items():
        try:
            checks.append(Check(name, Status.OK, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            checks.append(Check(name, Status.ABSENT, "not installed", f"only for {use}: pip install {name}"))
    return checks
