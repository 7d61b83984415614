"""The folders of regen/ keep to one list, cmake/layers.txt, which CMake reads and the architecture page shows.

Folders and files of the whole tree stay small enough to be read.
"""

import pathlib
import re
from collections import Counter
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / "docs/explanation/architecture.md", ROOT / "docs/explanation/architecture.md"]

TREES = ("regen", "cli", "python", "tests", "benchmarks", "experiments", "examples", "tools", "cmake")
SOURCES = {".h", ".cpp", ".cu", ".py", ".pyi", ".js", ".sh", ".cmake"}
MOST_LINES = 700  # of one file
MOST_SOURCES = 30  # directly in one folder
MOST_WITHOUT_README = 10

# What does not comply yet. The list only shrinks: an entry that complies fails the test.
FOLDERS_WITHOUT_README_LEFT: set[str] = set()

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
# How the headers of a library from outside begin.
LIBRARY_HEADERS = {
    "torch": re.compile(r"(torch|ATen|c10)/"),
    "highs": re.compile(r"(highs/|Highs\.h|lp_data/|mip/)"),
    "asio": re.compile(r"asio(\.hpp|/)"),
    "json": re.compile(r"nlohmann/"),
}


class Layer(NamedTuple):
    """One line of the list: the folders named in it, all that follow from them, and the libraries from outside."""

    direct: tuple
    below: frozenset
    libraries: frozenset


def read_layers(text):
    layers = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        folder, _, rest = line.partition(":")
        folders, _, libraries = rest.partition("+")
        direct = tuple(folders.split())
        below = frozenset(direct).union(*(layers[name].below for name in direct))
        layers[folder] = Layer(direct, below, frozenset(libraries.split()))
    return layers


LAYERS = read_layers((ROOT / "cmake/layers.txt").read_text())


def sources(top="regen", suffixes=frozenset({".h", ".cpp", ".cu"})):
    for path in sorted((ROOT / top).rglob("*")):
        if path.suffix in suffixes:
            yield path


def every_source():
    return [path for top in TREES for path in sources(top, SOURCES)]


def violations(folder, text):
    """The includes in `text`, a source of `folder`, that are not allowed there."""
    return [include for include in INCLUDE.findall(text) if not allowed(folder, include)]


def allowed(folder, include):
    layer = LAYERS[folder]
    if include.startswith("regen/"):
        target = include.split("/")[1]
        return target == folder or target in layer.below
    return all(name in layer.libraries for name, headers in LIBRARY_HEADERS.items() if headers.match(include))


def sources_by_folder():
    return Counter(str(path.parent.relative_to(ROOT)) for path in every_source())


def table_of_the_page(text):
    """Folder -> folders it may include, from the rows `| `NAME/` | ... | NAMES |`. A file named in the last cell is an exception, not a folder."""
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        name = re.fullmatch(r"`([a-z_]+)/`", cells[0])
        if name and len(cells) == 3:
            words = re.findall(r"[a-z_]+", re.sub(r"`[^`]*\.h`", "", cells[2]))
            rows[name[1]] = set(words) - {"and", "nothing"}
    return rows


def test_the_list_names_every_folder():
    folders = {p.name for p in (ROOT / "regen").iterdir() if p.is_dir()}
    assert folders == set(LAYERS), "cmake/layers.txt and the folders of regen/ differ"


def test_no_folder_includes_one_it_may_not():
    bad = set()
    count = 0
    for path in sources():
        folder = path.relative_to(ROOT / "regen").parts[0]
        count += 1
        bad |= {(folder, include) for include in violations(folder, path.read_text())}
    assert count > 20
    assert not bad, sorted(bad)


def test_the_check_sees_a_violation():
    assert violations("graph", '#include "regen/plan/plan.h"\n') == ["regen/plan/plan.h"]
    assert violations("plan", "#include <ATen/ATen.h>\n") == ["ATen/ATen.h"]
    assert violations("plan", '#include "regen/graph/graph.h"\n#include <vector>\n') == []
    assert violations("simulate", '#include "regen/base/result.h"\n') == []


def test_the_architecture_page_shows_the_list():
    page = next(path for path in PAGES if path.exists())
    shown = table_of_the_page(page.read_text())
    assert shown == {folder: set(layer.direct) for folder, layer in LAYERS.items()}, page.relative_to(ROOT)


def test_files_stay_readable():
    # A longer file has more than one concept; each gets a file of its own.
    long = [f"{p.relative_to(ROOT)}" for p in every_source() if len(p.read_text().splitlines()) > MOST_LINES]
    assert not long, long


def test_folders_stay_readable():
    crowded = {folder for folder, count in sources_by_folder().items() if count > MOST_SOURCES}
    assert not crowded, sorted(crowded)


def test_large_folders_have_a_readme():
    large = {folder for folder, count in sources_by_folder().items() if count > MOST_WITHOUT_README}
    without = {folder for folder in large if not (ROOT / folder / "README.md").exists()}
    assert without == FOLDERS_WITHOUT_README_LEFT
