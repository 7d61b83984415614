"""Reads the blocks of code in README.md and docs/, and the comments that say how each is tested.

A page is a script: its blocks run in their order, in one folder, in one shell and one interpreter (tests/docs/pages_test.py). Comments that readers do
not see say the rest, each right above its block:

    <!-- hidden python                 runs here and is not shown: what a block needs, or what must hold after it
    ... -->
    <!-- fixture: NAME -->             runs tests/docs/fixtures/NAME here
    <!-- fixture before each block: NAME -->   the same before every block of that language, which then stands alone
    <!-- tested by: FILE::TEST, .. -->   the block does not run here, these tests run what it says
    <!-- not run: REASON -->           the block cannot run in CI; the reasons are in NOT_RUN
    <!-- varies: WHAT, .. -->          parts of the output that differ between machines; what may vary is in VARYING

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
    return [word.strip() for word in text.split(",")]


def note(block: Block, line: int, comment: str) -> None:
    """Puts into a block what a comment above it says."""
    key, _, value = comment.partition(":")
    if key == "tested by":
        block.tested_by = names(value)
    elif key == "not run":
        block.not_run = value.strip()
    else:
        block.varies = names(value)
        if not set(block.varies) <= set(VARYING):
            raise ValueError(f"{block.page}:{line}: varies:{value}; expected some of {', '.join(VARYING)}")


def hidden(name: str, line: int, comment: str) -> Block | None:
    """A block that readers do not see; None: the comment is none."""
    found = re.match(r"hidden (python|sh)\n(.*)\Z", comment, re.DOTALL)
    if found is not None:
        return Block(name, line, found[1], found[2], hidden=True)
    found = re.match(r"fixture(?: before each block)?: (\w+\.(py|sh))\Z", comment)
    if found is not None:
        return Block(name, line, "python" if found[2] == "py" else "sh", (FIXTURES / found[1]).read_text(), hidden=True)
    return None


def visible(name: str, line: int, info: str, indent: str, text: str) -> Block:
    language, *more = info.split() or [""]
    file = next((word[len("file="):] for word in more if word.startswith("file=")), "")
    unknown = [word for word in more if word != "signature" and not word.startswith("file=")]
    if unknown:
        raise ValueError(f"{name}:{line}: '{unknown[0]}' after ```{language}; expected file=NAME or signature")
    text = re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
    return Block(name, line, language, text, file=file, signature="signature" in more)


def read(path: pathlib.Path) -> Page:
    """The page's blocks; a comment that says nothing known, or stands above no block, is an error."""
    name, source = str(path.relative_to(ROOT)), path.read_text()
    page = Page(name, [], [])
    notes: list[tuple[int, str]] = []
    previous, end, before = None, 0, ""
    for found in PART.finditer(source):
        line = source.count("\n", 0, found.start()) + 1
        if notes and source[end:found.start()].strip():
            raise ValueError(f"{name}:{notes[0][0]}: '{notes[0][1]}' stands above no block")
        if found["comment"] is not None:
            comment = before = found["comment"].rstrip()
            secret = hidden(name, line, comment)
            if secret is not None:
                (page.before_each if " before each block" in comment else page.blocks).append(secret)
            elif re.match(r"(tested by|not run|varies): ", comment):
                notes.append((line, comment))
                end = found.end()
            elif not OTHERS.match(comment):
                raise ValueError(f"{name}:{line}: comment '{comment.splitlines()[0]}'; expected one of those in tools/page_blocks.py")
            continue
        block = visible(name, line, found["info"], found["indent"], found["text"])
        if block.language == "text" and previous is not None and source[end:found.start()] == "\n":
            previous.output = block.text
        for at, comment in notes:
            note(block, at, comment)
        block.is_help = before.startswith("help: ")
        notes = []
        page.blocks.append(block)
        previous, end, before = (block if block.is_command else None), found.end(), ""
    if notes:
        raise ValueError(f"{name}:{notes[0][0]}: '{notes[0][1]}' stands above no block")
    return page


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
