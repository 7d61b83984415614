"""Puts what commands print now into the pages that show it, where it differs by more than may vary.

    tools/page_outputs.py docs/reference/command-line.md ..      read the difference before you commit it

Lines `...` stay: each other line that is shown becomes the one most like it in what is printed.
"""

import difflib
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

import page_blocks

from page_session import Session, differs


def renewed(shown: str, printed: str) -> str:
    """The output as a page should show it."""
    if "..." not in shown:
        return printed.rstrip("\n") + "\n"
    lines, rest = [], printed.splitlines()
    for line in shown.splitlines():
        if "..." not in line and rest:
            best = max(range(len(rest)), key=lambda place: difflib.SequenceMatcher(None, line, rest[place]).ratio())
            line, rest = rest[best], rest[best + 1:]
        lines.append(line)
    return "\n".join(lines) + "\n"


class Renewal(Session):
    """A session that notes what differs in place of failing."""

    changes: list[tuple[page_blocks.Block, str, str, str]]

    def check(self, block: page_blocks.Block, text: str, printed: str, as_expected: bool, output: str | None) -> None:
        """As in a test, but for output that differs."""
        super().check(block, text, printed, as_expected, None)
        if output is not None and differs(output, printed, block.varies):
            self.changes.append((block, text, output, renewed(output, printed)))
            print(f"{block.place}: {text.splitlines()[0]}")


def changed(source: str, changes: list[tuple[page_blocks.Block, str, str, str]]) -> str:
    """The page with all outputs renewed, the last one first."""
    for block, text, output, new in reversed(changes):
        place = sum(len(line) for line in source.splitlines(True)[:block.line])
        if text not in source[place:] or output not in source[place:]:
            sys.exit(f"{block.place}: an indented block is changed by hand:\n{new}")
        place = source.index(output, source.index(text, place) + len(text))
        source = source[:place] + new + source[place + len(output):]
    return source


def main() -> None:
    """Renews the pages that are named."""
    for name in sys.argv[1:]:
        path = ROOT / name
        with tempfile.TemporaryDirectory() as folder, Renewal(pathlib.Path(folder)) as session:
            session.changes = []
            session.run(page_blocks.read(path))
        path.write_text(changed(path.read_text(), session.changes))


if __name__ == "__main__":
    main()
