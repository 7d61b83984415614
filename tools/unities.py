"""Which C++ sources can be compiled as one: a unity includes many sources, so that their headers are read once.

    tools/unities.py LINES FILE ..   one line for each unity of at most so many lines: its files, separated by semicolons

Two sources cannot stand in one unity where a name that is local to one of them (static, or in an anonymous namespace) means
something else in the other, or in a header that only the other includes. Names are looked for in the text, which clang-format
has formatted. tools/tidy.py and cmake/unity.cmake use this.
"""

import functools
import pathlib
import re
import sys
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclass
class Source:
    """A file, its size, the names that are local to it, the other names that it uses, and the headers of ours that it includes."""

    path: str
    lines: int
    local: set[str]
    used: set[str]
    headers: frozenset[pathlib.Path]


def clash(one, other):
    """Whether a name that is local to one source means something else in the other."""
    return bool(one.local & (other.local | other.used) or other.local & one.used or hidden(one, other) or hidden(other, one))


def hidden(one, other):
    """Whether a header that only the other source includes uses a name that is local to the one."""
    return any(one.local & names_in(header) for header in other.headers - one.headers)


def without_text(code):
    """The code without what stands in strings and comments."""
    code = re.sub(r'R"(\w*)\(.*?\)\1"', '""', code, flags=re.DOTALL)
    return re.sub(r'"(?:\\.|[^"\\\n])*"|//[^\n]*', lambda found: '""' if found[0].startswith('"') else "//", code)


def local_names(code):
    """What a source defines as static or in its anonymous namespaces, and main."""
    names = set(re.findall(r'^(?:extern "" )?int (main|LLVM\w+)\(', code, re.MULTILINE))
    anonymous = False
    for line in code.splitlines():
        if line.startswith("namespace {"):
            anonymous = True
        elif line == "}  //":
            anonymous = False
        elif (anonymous or line.startswith("static ")) and (name := defined_name(line)):
            names.add(name)
    return names


def defined_name(line):
    """What a line at the margin defines, or None."""
    if not re.match(r"(?!template|namespace|using ::|static_assert)[a-zA-Z]", line):
        return None
    before = None
    while line != before:
        before, line = line, re.sub(r"<[^<>]*>", "", line)
    found = re.match(r"(?:struct|class|enum class|enum) (\w+)", line) or re.search(r"(?<![\w:])(\w+)\s*[(={;[]", line)
    if not found or re.fullmatch(r"TEST\w*|INSTANTIATE_TEST_SUITE_P|BENCHMARK|const", found[1]):
        return None
    return found[1]


def used_names(code):
    """Calls, types and constants. A variable of a function hides what has its name elsewhere."""
    return set(re.findall(r"(?<![\w.>])(?:[a-z_]\w*(?=\()|[A-Z]\w*|k[A-Z]\w*)", code))


@functools.cache
def names_in(header):
    return used_names(without_text(header.read_text()))


@functools.cache
def headers_of(file):
    """The headers of ours that a file includes, those that they include among them."""
    named = (ROOT / name for name in re.findall(r'^#include "([^"]+)"', file.read_text(), re.MULTILINE))
    direct = [header for header in named if header.exists()]
    return frozenset(direct).union(*(headers_of(header) for header in direct))


def read(path, root="."):
    """A source, by its path from the root."""
    file = pathlib.Path(root) / path
    code = without_text(file.read_text())
    local = local_names(code)
    return Source(path, code.count("\n"), local, used_names(code) - local, headers_of(file))


def group(sources, most_lines, fit=lambda one, other: True):
    """Lists of sources that can be compiled as one, each source in the first list that takes it.

    Args:
        sources: what to group.
        most_lines: the largest sum of lines of a list.
        fit: false for two sources that must not stand together for another reason than their names.
    """
    unities = []
    for source in sources:
        for unity in unities:
            small = sum(other.lines for other in unity) + source.lines <= most_lines
            if small and all(fit(source, other) and not clash(source, other) for other in unity):
                unity.append(source)
                break
        else:
            unities.append([source])
    return unities


if __name__ == "__main__":
    for unity in group([read(path) for path in sys.argv[2:]], int(sys.argv[1])):
        print(*(source.path for source in unity), sep=";")
