"""Which sources tools/unities.py puts together."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import unities


@pytest.fixture
def grouped(tmp_path, monkeypatch):
    monkeypatch.setattr(unities, "ROOT", tmp_path)

    def group(files, lines=1000):
        for name, code in files.items():
            (tmp_path / name).write_text(code)
        sources = [unities.read(name, tmp_path) for name in files if name.endswith(".cpp")]
        return [[source.path for source in unity] for unity in unities.group(sources, lines)]

    return group


def in_anonymous_namespace(code):
    return f"namespace {{\n\n{code}\n\n}}  // namespace\n"


def test_sources_with_different_names_stand_together(grouped):
    assert grouped({"a.cpp": "static int one() { return 1; }\n", "b.cpp": "static int two() { return 2; }\n"}) == [["a.cpp", "b.cpp"]]


def test_a_unity_has_so_many_lines_at_most(grouped):
    assert grouped({"a.cpp": "int a();\n" * 6, "b.cpp": "int b();\n" * 6, "c.cpp": "int c();\n" * 4}, 10) == [["a.cpp", "c.cpp"], ["b.cpp"]]


@pytest.mark.parametrize("local", ["static int one() { return 1; }\n", in_anonymous_namespace("int one() {\n  return 1;\n}"),
                                   in_anonymous_namespace("constexpr int one = 1;")])
def test_the_same_local_name_keeps_sources_apart(grouped, local):
    assert grouped({"a.cpp": local, "b.cpp": local}) == [["a.cpp"], ["b.cpp"]]


def test_a_local_name_that_another_source_calls_keeps_them_apart(grouped):
    assert grouped({"a.cpp": in_anonymous_namespace("void act() {}"), "b.cpp": "void f() {\n  act();\n}\n"}) == [["a.cpp"], ["b.cpp"]]


def test_a_local_name_in_a_header_of_the_other_keeps_them_apart(grouped):
    header = {"part.h": "enum class Part { kA };\n", "outer.h": '#include "part.h"\n'}
    local = in_anonymous_namespace("struct Part {};")
    assert grouped(header | {"a.cpp": local, "b.cpp": '#include "outer.h"\nint b();\n'}) == [["a.cpp"], ["b.cpp"]]


def test_a_name_in_a_header_that_its_own_source_includes_does_no_harm(grouped):
    header = {"call.h": "void one(int);\n"}
    local = '#include "call.h"\n' + in_anonymous_namespace("void one() {}")
    assert grouped(header | {"a.cpp": local, "b.cpp": '#include "call.h"\nint b();\n'}) == [["a.cpp", "b.cpp"]]


def test_a_name_in_a_comment_or_a_text_does_no_harm(grouped):
    other = '// calls act() in turn\nconst char* b = "act()";\n'
    assert grouped({"a.cpp": in_anonymous_namespace("void act() {}"), "b.cpp": other}) == [["a.cpp", "b.cpp"]]
