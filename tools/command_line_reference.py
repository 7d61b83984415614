"""Puts what `regen VERB --help` prints into docs/reference/command-line.md and command-line-running.md.

    tools/command_line_reference.py            writes the blocks of help anew
    tools/command_line_reference.py --check    exits with 1 when a page is not what the program prints

The pages are written by hand, except for their blocks of help: each stands between `<!-- help: VERB -->` and `<!-- end of help -->`. A verb
without a block gets a section at the end of the first page. The program is REGEN_BIN, else build/regen. Verbs that need torch are done by
regen-runtime, which lies beside it; where that is missing, their blocks stay as they are and one line says so.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / "docs" / "reference" / name for name in ("command-line.md", "command-line-running.md")]
BLOCK = re.compile(r"<!-- help: (?P<verb>[a-z -]+) -->\n.*?<!-- end of help -->", re.DOTALL)


def program():
    path = pathlib.Path(os.environ.get("REGEN_BIN", ROOT / "build" / "regen"))
    if not path.exists():
        sys.exit(f"{path} is not there, expected the program: build it, or set REGEN_BIN")
    return path.resolve()


def help_of(regen, verb):
    """The help of a verb; None where the program that does it is not installed."""
    done = subprocess.run([regen, *verb.split(), "--help"], capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "120"})
    if done.returncode == 2 and "regen-runtime" in done.stderr:
        return None
    if done.returncode != 0:
        sys.exit(f"regen {verb} --help failed: {done.stderr.strip()}")
    lines = [line.rstrip() for line in done.stdout.strip("\n").splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def verbs_in(text):
    """The names under `Subcommands:`."""
    _, _, listed = text.partition("Subcommands:\n")
    return re.findall(r"^  ([a-z][a-z-]*) ", listed.split("\n\n")[0], re.MULTILINE)


def all_helps(regen):
    """verb -> help, in the order of the program; `share run` stands for a verb of a verb."""
    helps = {}
    for verb in verbs_in(help_of(regen, "")):
        helps[verb] = help_of(regen, verb)
        for inner in verbs_in(helps[verb] or ""):
            helps[f"{verb} {inner}"] = help_of(regen, f"{verb} {inner}")
    return helps


def block(verb, text):
    return f"<!-- help: {verb} -->\n```text\n{text}\n```\n<!-- end of help -->"


def renewed(page, helps):
    """The page with every block as the program prints it."""

    def replace(found):
        text = helps.get(found["verb"])
        return found[0] if text is None else block(found["verb"], text)

    return BLOCK.sub(replace, page)


def renew_all(pages, helps):
    """path -> text as it should be, from path -> text as it is; verbs without a block go to the first page."""
    wanted = {path: renewed(text, helps) for path, text in pages.items()}
    present = {found["verb"] for text in pages.values() for found in BLOCK.finditer(text)}
    for verb, text in helps.items():
        if verb not in present and text is not None:
            wanted[PAGES[0]] = wanted[PAGES[0]].rstrip("\n") + f"\n\n## {verb}\n{block(verb, text)}\n"
    return wanted, sorted(present - set(helps))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    helps = all_helps(program())
    unknown = [verb for verb, text in helps.items() if text is None]
    if unknown:
        print(f"not compared, because regen-runtime is not there: {', '.join(unknown)}", file=sys.stderr)
    pages = {path: path.read_text() for path in PAGES}
    wanted, gone = renew_all(pages, helps)
    stale = [path for path in PAGES if wanted[path] != pages[path]]
    for verb in gone:
        print(f"docs/reference has help of '{verb}', which the program does not have", file=sys.stderr)
    for path in stale:
        if arguments.check:
            print(f"docs/reference/{path.name} is not what regen prints: run tools/command_line_reference.py", file=sys.stderr)
        else:
            path.write_text(wanted[path])
            print(f"wrote docs/reference/{path.name}")
    sys.exit(1 if gone or (arguments.check and stale) else 0)


if __name__ == "__main__":
    main()
