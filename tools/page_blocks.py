"""Reads the blocks of code in README.md and docs/, and the comments that say how each is tested.

A page is a script: its blocks run in their order, in one folder, in one shell and one interpreter (tests/docs/pages_test.py). Comments that readers do
not see say the rest, each right above its block:

    <!-- hidden python                 runs here and is not shown: what a block needs, or what must hold after it
    ... -->
    <!-- fixture: NAME -->             runs tests/docs/fixtures/NAME here
    <!-- fixture before each block: NAME -->    the same before every block of that language, which then stands alone
    <!-- tested by: FILE::TEST, .. -->    the block does not run here, these tests run what it says
    <!-- not run: REASON -->           the block cannot run in CI; the reasons are in NOT_RUN
    <!-- varies: WHAT, .. -->          what differs between machines in the output; VARYING has what may vary

A `text` block right after a block is its output, as the lines under `$ command` of a `console` block are. `...` stands for any text. A command whose
output ends with `regen: ...` or `SomeError: ...` fails; so does one whose comment says `(status N)`. A block `LANGUAGE file=NAME` is a file for later
blocks; a block `diff file=NAME` changes it.
"""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests" / "docs" / "fixtures"
SHELLS = ("sh", "bash", "console")
COMMANDS = (*SHELLS, "python")

NOT_RUN = {
    "cluster": "needs several machines or a cluster manager",
    "gpu": "needs a GPU",
    "root": "needs rights of the system's administrator",
    "set-up": "installs or builds regen itself, as .ci/run does",
}
# What is replaced on both sides before the output is compared.
VARYING = {
    "times": r"[-+]?\d[\d.]*(?:e[-+]?\d+)? (?:s|ms|us|ns)\b",
    "sizes": r"\d[\d.]* (?:B|KiB|MiB|GiB)\b",
    "numbers": r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?",
    "checksums": r"\b[0-9a-f]{16}\b",
}

PART = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$"
    r"|^ *<!-- (?P<comment>.*?)-->[ ]*$",
    re.MULTILINE | re.DOTALL)
# Comments of other tools.
OTHERS = re.compile(r"help: |end of help|table: |end of table|generated |rows ")


@dataclasses.dataclass
class Block:
    """A block of code, or a hidden one."""

    page: str
    line: int
    language: str
    text: str
    file: str = ""
    hidden: bool = False
    signature: bool = False
    tested_by: list[str] = dataclasses.field(default_factory=list)
    not_run: str = ""
    is_help: bool = False
    varies: list[str] = dataclasses.field(default_factory=list)
    output: str | None = None

    @property
    def place(self) -> str:
        """Where it stands, for messages."""
        return f"{self.page}:{self.line}"

    @property
    def runs_here(self) -> bool:
        """In its page's session: a command or a hidden block, or a file for one."""
        needed = self.hidden or self.file or self.language in COMMANDS
        return bool(needed) and not (self.signature or self.tested_by or self.not_run)

    @property
    def is_command(self) -> bool:
        """A block that a reader may run."""
        return self.language in COMMANDS and not self.hidden and not self.signature


@dataclasses.dataclass
class Page:
    """The blocks of a page in their order."""

    name: str
    blocks: list[Block]
    before_each: list[Block]


def pages() -> list[pathlib.Path]:
    """README.md and all pages of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def names(text: str) -> list[str]:
    """The words of a list with commas."""
    return [word.strip() for word in text.split(",")]


def hidden(name: str, line: int, comment: str) -> Block | None:
    """A block that readers do not see; None: the comment is none."""
    found = re.match(r"hidden (python|sh)\n(.*)\Z", comment, re.DOTALL)
    if found is not None:
        return Block(name, line, found[1], found[2], hidden=True)
    found = re.match(r"fixture(?: before each block)?: (\w+\.(py|sh))\Z", comment)
    if found is not None:
        return Block(name, line, "python" if found[2] == "py" else "sh", (FIXTURES / found[1]).read_text(), hidden=True)
    return None


def visible(name: str, line: int, found: re.Match[str]) -> Block:
    """A block of the page."""
    language, *more = found["info"].split() or [""]
    file = next((word[len("file="):] for word in more if word.startswith("file=")), "")
    unknown = [word for word in more if word != "signature" and not word.startswith("file=")]
    if unknown:
        raise ValueError(f"{name}:{line}: '{unknown[0]}' after ```{language}; expected file=NAME or signature")
    text = re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE)
    return Block(name, line, language, text, file=file, signature="signature" in more)


class Reader:
    """Goes through a page and puts together blocks, comments above them and output below them."""

    def __init__(self, name: str, source: str) -> None:
        self.source, self.page = source, Page(name, [], [])
        self.notes: list[tuple[int, str]] = []  # comments about the next block, with their lines
        self.above: Block | None = None  # the command right above
        self.comment = ""  # the last comment
        self.end = 0  # of the last part

    def read(self) -> Page:
        for found in PART.finditer(self.source):
            line = self.source.count("\n", 0, found.start()) + 1
            if self.notes and self.source[self.end:found.start()].strip():
                self.refuse_notes()
            if found["comment"] is None:
                self.take_block(visible(self.page.name, line, found), found.start())
                self.end = found.end()
            else:
                self.take_comment(line, found["comment"].rstrip())
                self.end = found.end() if self.notes else self.end
        if self.notes:
            self.refuse_notes()
        return self.page

    def refuse_notes(self) -> None:
        line, comment = self.notes[0]
        raise ValueError(f"{self.page.name}:{line}: '{comment}' stands above no block")

    def take_comment(self, line: int, comment: str) -> None:
        secret = hidden(self.page.name, line, comment)
        if secret is not None:
            (self.page.before_each if " before each block" in comment else self.page.blocks).append(secret)
        elif re.match(r"(tested by|not run|varies): ", comment):
            self.notes.append((line, comment))
        elif not OTHERS.match(comment):
            raise ValueError(f"{self.page.name}:{line}: comment '{comment.splitlines()[0]}'; expected one of those in tools/page_blocks.py")
        self.comment = comment

    def take_block(self, block: Block, start: int) -> None:
        if block.language == "text" and self.above is not None and self.source[self.end:start] == "\n":
            self.above.output = block.text
        for line, comment in self.notes:
            self.take_note(block, line, comment)
        block.is_help = self.comment.startswith("help: ")
        self.page.blocks.append(block)
        self.notes, self.comment, self.above = [], "", block if block.is_command else None

    def take_note(self, block: Block, line: int, comment: str) -> None:
        key, _, value = comment.partition(":")
        if key == "tested by":
            block.tested_by = names(value)
        elif key == "not run":
            block.not_run = value.strip()
        else:
            block.varies = names(value)
            if not set(block.varies) <= set(VARYING):
                raise ValueError(f"{block.page}:{line}: varies:{value}; expected some of {', '.join(VARYING)}")


def read(path: pathlib.Path) -> Page:
    """The page's blocks; a comment that says nothing known, or stands above no block, is an error."""
    return Reader(str(path.relative_to(ROOT)), path.read_text()).read()


@dataclasses.dataclass
class Command:
    """A line of a console block with what it prints."""

    text: str
    output: str | None

    @property
    def fails(self) -> bool:
        """A refusal is shown."""
        return self.output is not None and bool(re.match(r"(regen|\w+Error): ", self.output.rstrip("\n").splitlines()[-1]))


def console(text: str) -> list[Command]:
    """The commands of a console block; one without shown output is not compared."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    if parts[0].strip():
        raise ValueError(f"a console block begins with '{parts[0].splitlines()[0]}', expected '$ '")
    commands = []
    for part in parts[1:]:
        command, _, output = part.partition("\n")
        commands.append(Command(command + "\n", output or None))
    return commands


def changed(text: str, difference: str) -> str:
    """The text after a change whose parts, between lines `@@`, each fit one place of it."""
    for part in re.split(r"^@@.*\n", difference, flags=re.MULTILINE):
        lines = [line or " " for line in part.splitlines()]
        before, after = ("".join(line[1:] + "\n" for line in lines if line[0] in kept) for kept in (" -", " +"))
        if text.count(before) != 1:
            raise ValueError(f"the change fits {text.count(before)} places, expected one:\n{before}")
        text = text.replace(before, after)
    return text


def masked(text: str, varies: list[str]) -> str:
    """The text without what differs between machines."""
    for what in sorted(varies, key=list(VARYING).index):
        text = re.sub(VARYING[what], f"<{what}>", text)
    return text
