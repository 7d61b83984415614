"""Every command of README.md and docs/ runs here, or its page says which test runs it, or why none can (tools/page_blocks.py)."""

import collections
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import page_blocks
import page_outputs

from devtools import Browser, chromium
from page_session import REGEN, Session, differs

PAGES = {str(path.relative_to(ROOT)): page_blocks.read(path) for path in page_blocks.pages()}
COMMANDS = [block for page in PAGES.values() for block in page.blocks if block.is_command]
HERE = [name for name, page in PAGES.items() if any(block.is_command and block.runs_here for block in page.blocks)]
PACKAGES = ("torch", "regen", "transformers", "accelerate", "peft", "diffusers", "lightning")


def needs(page):
    """The packages that the page's Python imports, and whether its commands need the program that is linked with torch."""
    blocks = [*page.before_each, *(block for block in page.blocks if block.runs_here)]
    python, shell = ("\n".join(block.text for block in blocks if (block.language == "python") == wanted) for wanted in (True, False))
    packages = [name for name in PACKAGES if re.search(rf"^(?:import|from) {name}\b", python, re.MULTILINE)]
    return packages, bool(re.search(r"\bregen (?:profile|run|bench|doctor)\b", shell))


@pytest.mark.skipif(not REGEN.exists(), reason="needs the program build/regen")
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in HERE])
def test_the_blocks_of_a_page_run(name, tmp_path):
    page = PAGES[name]
    packages, runtime = needs(page)
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is not installed")
    if runtime and not REGEN.with_name("regen-runtime").exists():
        pytest.skip("needs the program regen-runtime")
    with Session(tmp_path) as session:
        session.run(page)
    for report in tmp_path.glob("*.html"):
        check_report(report)


def check_report(path):
    """The page opens in a browser without errors, and its first line gives the answer."""
    assert '"regen-report"' in path.read_text()
    if chromium() is None:
        return
    with Browser() as browser:
        opened = browser.open(f"file://{path}")
        opened.wait_for("document.documentElement.dataset.ready === 'yes'")
        assert opened.evaluate("document.querySelector('.verdict').textContent")
        assert opened.problems() == []


def test_every_command_is_accounted_for(capsys):
    """Each block runs here, in a test that is named, or cannot run, for one of a few reasons. `pytest -s` prints how many of each there are."""
    counts = collections.Counter()
    for block in COMMANDS:
        assert not (block.tested_by and block.not_run), f"{block.place}: both tested and not run"
        if block.not_run:
            assert block.not_run in page_blocks.NOT_RUN, f"{block.place}: not run: {block.not_run}; expected one of {', '.join(page_blocks.NOT_RUN)}"
        counts["runs in another test" if block.tested_by else f"not run: {block.not_run}" if block.not_run else "runs here"] += 1
    with capsys.disabled():
        print("\ncommands of the documents: " + ", ".join(f"{count} {what}" for what, count in counts.most_common()))
    assert counts.total() == len(COMMANDS) > 80
    assert sum(count for what, count in counts.items() if what.startswith("not run")) <= 8


@pytest.mark.parametrize("test", sorted({test for block in COMMANDS for test in block.tested_by}))
def test_a_test_that_a_page_names_is_there(test):
    path, _, name = test.partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), f"{test} is not there"


def test_a_file_of_a_page_is_used():
    """By a later command that runs."""
    for page in PAGES.values():
        for number, block in enumerate(page.blocks):
            if block.file and block.language != "diff":
                assert any(block.file in later.text for later in page.blocks[number + 1:] if later.runs_here), block.place


def test_no_command_hides_in_a_block_of_text():
    """A block of text is the output of the block above it, or help that is generated."""
    hidden = [
        block.place for page in PAGES.values() for block in page.blocks
        if block.language in ("", "text") and not block.is_help and re.search(r"^ *(?:\$ |regen |make |pip |python |git )", block.text, re.MULTILINE)]
    assert not hidden, f"commands in blocks of text: {', '.join(hidden)}"


def test_the_first_hour_adds_the_two_lines_of_the_readme():
    code = next(block for block in PAGES["README.md"].blocks if block.language == "python").text
    change = next(block for block in PAGES["docs/tutorials/first-hour.md"].blocks if block.language == "diff").text
    lines = [re.sub(r"\s+#.*", "", line) for line in code.splitlines() if line]
    added = [line[1:] for line in change.splitlines() if line.startswith("+") and line != "+"]
    assert lines == ["import regen", 'model = regen.wrap(model, budget="6GiB")']
    assert added == ["import regen", 'model = regen.wrap(model, budget="400MiB", host_budget=0)']


# What reads and compares.

PAGE = """# A page
<!-- fixture: jobs.sh -->
<!-- varies: times -->
```console
$ echo took 12 ms
took 3 ms
$ false
regen: it failed
```
<!-- tested by: tests/a_test.py::test_a, tests/b_test.py::test_b -->
```sh
a
```
```text
output
```
- in a list:
  ```python
  if True:
      pass
  ```
```python signature
f(x) -> int
```
"""


def read(tmp_path, text, monkeypatch):
    monkeypatch.setattr(page_blocks, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(text)
    return page_blocks.read(tmp_path / "page.md")


def test_blocks_are_read_with_what_comments_say(tmp_path, monkeypatch):
    fixture, console, shell, output, python, signature = read(tmp_path, PAGE, monkeypatch).blocks
    assert fixture.hidden and fixture.language == "sh" and "train.py" in fixture.text
    assert console.varies == ["times"]
    commands = page_blocks.console(console.text)
    assert [(c.text, c.output, c.fails) for c in commands] == [("echo took 12 ms\n", "took 3 ms\n", False), ("false\n", "regen: it failed\n", True)]
    assert shell.tested_by == ["tests/a_test.py::test_a", "tests/b_test.py::test_b"] and shell.output == "output\n" and not shell.runs_here
    assert output.language == "text"
    assert python.text == "if True:\n    pass\n" and python.place == "page.md:18"
    assert signature.signature and not signature.is_command


@pytest.mark.parametrize("text, said", [
    ("<!-- not run: gpu -->\ntext\n```sh\na\n```\n", "page.md:1: 'not run: gpu' stands above no block"),
    ("<!-- varies: times -->\n", "page.md:1: 'varies: times' stands above no block"),
    ("\n<!-- notrun: gpu -->\n", "page.md:2: comment 'notrun: gpu'"),
    ("<!-- varies: weather -->\n```sh\na\n```\n", "page.md:1: varies: weather; expected some of times, sizes, numbers, checksums"),
    ("```sh fil=a\na\n```\n", "page.md:1: 'fil=a' after ```sh"),
])
def test_a_comment_that_means_nothing_is_an_error(tmp_path, monkeypatch, text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        read(tmp_path, text, monkeypatch)


def test_output_is_compared_but_for_what_varies():
    assert differs("a 3 ms\n", "a 40 us\n", ["times"]) is None
    assert differs("a 3 ms\n", "a 4 ms\n", []) == "--- shown\n+++ printed\n@@ -1 +1 @@\n-a 3 ms\n+a 4 ms\n"
    assert differs("a    3 ms  b\n", "a 3.14 ms b\n", ["times"]) is None
    assert differs("a    3 b\n", "a 3 b\n", []) is not None
    assert differs("a\n...\nb\n", "a\nb\n", []) is None
    assert differs("a\n  ...\nb\n", "a\n1\n2\nb\n", []) is None
    assert differs("a ... c\n", "a b\nc\n", []) is not None
    assert differs("(12,345 bytes) 1.5 KiB\n", "(9 bytes) 3 MiB\n", ["numbers", "sizes"]) is None
    assert differs("sum 0123456789abcdef\n", "sum fedcba9876543210\n", ["checksums"]) is None


def test_shown_output_is_renewed():
    shown = "a   1 ms\n...\nbytes 2\n  ...\nend\n"
    assert page_outputs.renewed(shown, "a   5 ms\nx\ny\nbytes 7\nend\n\n") == "a   5 ms\n...\nbytes 7\n  ...\nend\n"
    assert page_outputs.renewed("a\nb\n", "c\n\n") == "c\n"


def test_a_change_fits_one_place():
    assert page_blocks.changed("a\nb\nc\n", " a\n-b\n+B\n@@\n c\n+d\n") == "a\nB\nc\nd\n"
    with pytest.raises(ValueError, match="fits 2 places"):
        page_blocks.changed("a\na\n", " a\n+b\n")


@pytest.mark.parametrize("text, said", [
    ("```sh\nfalse\n```\n", "fails, or does not fail as shown"),
    ("```console\n$ true\nregen: refused\n```\n", "fails, or does not fail as shown"),
    ("```sh\necho a\n```\n```text\nb\n```\n", "the output is not the one that the page shows"),
    ("```sh\nfalse   # (status 2)\n```\n", "status 1, expected 2: false"),
    ("```python\nassert 1 == 2\n```\n", "AssertionError"),
])
def test_a_page_that_is_wrong_fails(tmp_path, monkeypatch, text, said):
    page = read(tmp_path, text, monkeypatch)
    with Session(tmp_path) as session, pytest.raises(AssertionError, match=said):
        session.run(page)


def test_blocks_share_a_shell_and_an_interpreter(tmp_path, monkeypatch):
    page = read(tmp_path, "```sh\nx=5\ncat > f.txt <<END\n1\nEND\nfalse  # (status 1)\n```\n```python\ny = open('f.txt').read()\n```\n"
                "```python\nprint(y, end='')\n```\n```text\n1\n```\n```sh\necho $x\n```\n```text\n5\n```\n", monkeypatch)
    with Session(tmp_path) as session:
        session.run(page)
    assert session.printed == "1\n5\n"
