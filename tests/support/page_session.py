"""Runs the blocks of a page: one folder, one shell, one interpreter."""

import difflib
import os
import pathlib
import queue
import re
import subprocess
import sys
import threading
import time

from page_blocks import Block, Command, Page, changed, console, masked

ROOT = pathlib.Path(__file__).resolve().parents[2]
REGEN = pathlib.Path(os.environ.get("REGEN_BIN", ROOT / "build" / "regen")).resolve()
MARK = "-- end of block --"
STATUS = re.compile(r"^(?P<command>[^#\n]*[^#\s])\s+#[^\n]*\(status (?P<status>\d+)\)[^\n]*$", re.MULTILINE)
# `expect N COMMAND` is COMMAND, which has to end with status N.
SHELL = """
trap 'kill $(jobs -p) 2> /dev/null' EXIT
expect() {
  local wanted=$1 found=0
  shift
  "$@" || found=$?
  [ "$found" = "$wanted" ] || { echo "status $found, expected $wanted: $*"; return 1; }
}
"""
PYTHON = f"""
import sys, traceback
def run():
    space = {{"__name__": "__page__", "__builtins__": __builtins__}}
    for path in map(str.strip, sys.stdin):
        status = 0
        try:
            exec(compile(open(path).read(), path, "exec"), space)
        except BaseException:
            traceback.print_exc(file=sys.stdout)
            status = 1
        print("\\n{MARK}", status, flush=True)
if __name__ == "__main__":
    run()
"""


class Pipe:
    """A process that runs files, whose names it reads, and prints a mark after each."""

    def __init__(self, command, folder, environment, errors=subprocess.STDOUT):
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, errors="replace")
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def send(self, text, seconds):
        """What is printed until the mark, and the status after it; None: the process has ended."""
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        printed, limit = "", time.monotonic() + seconds
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, limit - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"not done within {seconds} s: {text}\n{printed}") from None
            if line is None:
                return printed, None
            if line.startswith(MARK):
                return printed.removesuffix("\n"), int(line.split()[-1])
            printed += line

    def close(self):
        """Ends the process; the shell ends its jobs."""
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def environment(folder):
    """That of a user in a fresh account: the program and the package are there, settings and caches are not."""
    path = os.pathsep.join([str(folder / "build"), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REGEN_")}
    return {
        **kept,
        "PATH": path, "HOME": str(folder / "home"), "PYTHONPATH": str(ROOT / "python"), "REGEN_CACHE": str(folder / "cache"),
        "REGEN_SHARE_SOCKET": str(folder / "share.sock"), "REGEN_INPUT_FOLDER": str(folder / "input"), "REGEN_PYTHON": sys.executable,
        "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "true", "COLUMNS": "120"}


class Session:
    """The place of a page. `printed` is all that its blocks have printed."""

    def __init__(self, folder, seconds=300):
        self.folder, self.seconds, self.printed, self.number = folder, seconds, "", 0
        (folder / "home").mkdir()
        (folder / "build").mkdir()
        for program in ("regen", "regen-runtime"):
            (folder / "build" / program).symlink_to(REGEN.parent / program)
        self.environment = environment(folder)
        self.shell = self.python = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pipe in (self.shell, self.python):
            if pipe is not None:
                pipe.close()

    def write(self, text, suffix):
        self.number += 1
        path = self.folder / "home" / f"block-{self.number}{suffix}"
        path.write_text(text)
        return path

    def run_shell(self, text, strict):
        """Output and status. Strict: the first command that fails ends the shell, so that the status is None."""
        if self.shell is None:
            self.shell = Pipe(["bash", "--norc", "-m"], self.folder, self.environment)
            self.run_shell(SHELL, strict=False)
        path = self.write(text, ".sh")
        on, off = ("set -e; ", "; set +e") if strict else ("", "")
        return self.shell.send(f"{on}. '{path}' < /dev/null{off}; printf '\\n%s %s\\n' '{MARK}' $?", self.seconds)

    def run_python(self, text):
        if self.python is None:
            with open(self.folder / "home" / "errors", "w") as errors:
                self.python = Pipe([sys.executable, "-u", self.write(PYTHON, ".py")], self.folder, self.environment, errors)
        printed, status = self.python.send(str(self.write(text, ".py")), self.seconds)
        return printed + ((self.folder / "home" / "errors").read_text() if status != 0 else ""), status

    def run(self, page: Page):
        """Every block of the page that runs here."""
        for block in page.blocks:
            if not block.runs_here:
                continue
            for before in page.before_each:
                if block.is_command and (before.language == "python") == (block.language == "python"):
                    self.run_block(before)
            self.run_block(block)

    def run_block(self, block: Block):
        if block.file and block.language == "diff":
            path = self.folder / block.file
            path.write_text(changed(path.read_text(), block.text))
        elif block.file:
            (self.folder / block.file).write_text(block.text)
        elif block.language == "console":
            for command in console(block.text):
                self.run_command(block, command)
        elif block.language == "python":
            printed, status = self.run_python(block.text)
            self.check(block, block.text, printed, status == 0, block.output)
        else:
            printed, status = self.run_shell(STATUS.sub(r"expect \g<status> \g<command>", block.text), strict=True)
            self.check(block, block.text, printed, status == 0, block.output)

    def run_command(self, block: Block, command: Command):
        printed, status = self.run_shell(command.text, strict=False)
        self.check(block, command.text, printed, (status != 0) == command.fails, command.output)

    def check(self, block, text, printed, as_expected, output):
        """The end and the output of a piece are what the page says."""
        self.printed += printed
        assert as_expected, f"{block.place}: fails, or does not fail as shown:\n{text}\n{printed}"
        if output is not None:
            difference = differs(output, printed, block.varies)
            assert not difference, f"{block.place}: the output is not the one that the page shows\n{text}\n{difference}"


def comparable(text, varies):
    """Without what varies, and then without the width of columns."""
    lines = masked(text, varies).rstrip("\n").split("\n")
    return "".join((" ".join(line.split()) if varies else line.rstrip()) + "\n" for line in lines)


def differs(shown, printed, varies):
    """How the output differs from the one in the page; None: it does not. A line `...` stands for any lines, inside a line it stands for any text."""
    shown, printed = comparable(shown, varies), comparable(printed, varies)
    pattern = re.sub(r"^(?:\\ )*\\\.\\\.\\\.\n", r"(?:.*\n)*?", re.escape(shown).replace("\\\n", "\n"), flags=re.MULTILINE).replace(r"\.\.\.", ".*")
    if re.fullmatch(pattern, printed):
        return None
    return "".join(difflib.unified_diff(shown.splitlines(True), printed.splitlines(True), "shown", "printed", n=1))
