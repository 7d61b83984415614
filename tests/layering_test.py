"""A folder under regen/ includes only folders to its left in the flow, and base."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent

# folder -> folders it may include besides itself (docs/architecture.md).
ALLOWED = {
    "base": set(),
    "graph": {"base"},
    "models": {"base", "graph"},
    "cost": {"base", "graph"},
    "plan": {"base", "graph", "cost"},
    "simulate": {"base", "graph", "cost", "plan"},
    "planners": {"base", "graph", "cost", "plan", "simulate"},
    "execute": {"base", "graph", "cost", "plan", "simulate"},
    "share": {"base", "graph", "cost", "plan", "simulate", "execute"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"](regen/([a-z_]+)/[^>"]+|[^>"]+)[>"]', re.MULTILINE)
TORCH = re.compile(r"^(torch|ATen|c10)/")


def sources():
    for path in sorted((ROOT / "regen").rglob("*")):
        if path.suffix in {".h", ".cpp", ".cu"}:
            yield path


def violations(folder, text):
    """The includes in `text`, a source of `folder`, that are not allowed there."""
    found = []
    for include, target in INCLUDE.findall(text):
        if target and target != folder and target not in ALLOWED[folder]:
            found.append(include)
        if TORCH.match(include) and folder != "execute":
            found.append(include)
    return found


def test_every_folder_is_known():
    folders = {p.name for p in (ROOT / "regen").iterdir() if p.is_dir()}
    assert folders <= set(ALLOWED), f"unknown folders {folders - set(ALLOWED)}: add them to ALLOWED"


def test_no_folder_includes_one_it_may_not():
    bad = []
    count = 0
    for path in sources():
        folder = path.relative_to(ROOT / "regen").parts[0]
        count += 1
        bad += [f"{path.relative_to(ROOT)} includes {i}" for i in violations(folder, path.read_text())]
    assert count > 20
    assert not bad, "\n".join(bad)


def test_the_check_sees_a_violation():
    assert violations("graph", '#include "regen/plan/plan.h"\n') == ["regen/plan/plan.h"]
    assert violations("plan", "#include <ATen/ATen.h>\n") == ["ATen/ATen.h"]
    assert violations("plan", '#include "regen/graph/graph.h"\n#include <vector>\n') == []


def test_files_stay_readable():
    # A file that grows past this wants to be split along a concept.
    long = [f"{p.relative_to(ROOT)}" for p in sources() if len(p.read_text().splitlines()) > 700]
    assert not long, long
