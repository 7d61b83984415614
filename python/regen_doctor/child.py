"""Code that is tried in a process of its own: a runtime of another torch may end the process that loads it."""

import subprocess
import sys

SECONDS = 120  # a first import of torch from a slow disk


def last_line(text: str) -> str:
    """Where programs say why they gave up."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def run(command: list[str], seconds: float = SECONDS) -> tuple[str | None, str]:
    """(what the program printed, or None where it failed; why it failed)."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return None, f"no answer within {seconds:g} s"
    except OSError as error:
        return None, f"{command[0]}: {error.strerror}"
    if done.returncode == 0:
        return done.stdout, ""
    reason = last_line(done.stderr) or last_line(done.stdout)
    return None, reason or (f"ended by signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}")


def run_python(code: str) -> tuple[str | None, str]:
    """The same for a few lines of Python in this interpreter."""
    return run([sys.executable, "-c", code])
