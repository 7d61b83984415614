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
    """A session that renews the text of its page in place of failing."""

    text = ""

    def check(self, block: page_blocks.Block, text: str, printed: str, as_expected: bool, output: str | None) -> None:
        """As in a test, but for output that differs."""
        if not as_expected:
            super().check(block, text, printed, as_expected, None)
        if output is None or not differs(output, printed, block.varies):
            return
        if block.text not in self.text:
            sys.exit(f"{block.place}: an indented block is changed by hand:\n{printed}")
        place = self.text.index(block.text)
        place = self.text.index(output, self.text.index(text, place) if text in block.text else place)
        self.text = self.text[:place] + renewed(output, printed) + self.text[place + len(output):]
        print(f"{block.place}: {text.splitlines()[0]}")


def main() -> None:
    """Renews the pages that are named."""
    for name in sys.argv[1:]:
        path = ROOT / name
        with tempfile.TemporaryDirectory() as folder, Renewal(pathlib.Path(folder)) as session:
            session.text = path.read_text()
            session.run(page_blocks.read(path))
        path.write_text(session.text)


if __name__ == "__main__":
    main()
