"""The tools that write references: docstrings to markdown, blocks of help in a page."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import command_line_reference as helps
import python_reference as docs

DOC = """Does it.

    call(1)

    call(2)
Then more.

Args:
    first: the first
        goes on here.
    *rest: others: with a colon.

Returns:
    A number
    of things.

Raises:
    ValueError: never.
"""


def test_a_docstring_becomes_markdown():
    assert docs.described(DOC).splitlines() == [
        "Does it.", "", "```python", "call(1)", "", "call(2)", "```", "", "Then more.", "",
        "Arguments:", "", "- `first`: the first goes on here.", "- `*rest`: others: with a colon.", "",
        "Returns: A number of things.", "",
        "Raises:", "", "- `ValueError`: never."]


def test_a_signature_is_python():
    def function(a: int, *, b: "str | None" = None, **more: float) -> bool:
        return bool((a, b, more))

    assert docs.signature("f", function) == "f(a: int, *, b: str | None = None, **more: float) -> bool"


def test_a_wide_signature_has_a_line_for_each_parameter():
    def function(a=1, b=2):
        return a + b

    assert docs.signature("x" * 105, function) == "x" * 105 + "(\n    a=1,\n    b=2,\n)"


HELP = """Does things.
Usage: regen [OPTIONS] VERB ...

Subcommands:
  zoo                         List
  max-batch                   The largest

Example:
  regen zoo
"""


def test_verbs_are_those_of_the_list():
    assert helps.verbs_in(HELP) == ["zoo", "max-batch"]
    assert helps.verbs_in("Options:\n  --help  Print") == []


def test_blocks_are_renewed_and_missing_verbs_added():
    first, second = helps.PAGES
    pages = {first: "# A\n" + helps.block("zoo", "old") + "\nkept\n", second: helps.block("run", "stays") + "\n" + helps.block("gone", "?")}
    wanted, gone = helps.renew_all(pages, {"zoo": "new", "run": None, "pack": "added"})
    assert wanted[first] == "# A\n" + helps.block("zoo", "new") + "\nkept\n\n## pack\n" + helps.block("pack", "added") + "\n"
    assert wanted[second] == pages[second]
    assert gone == ["gone"]
