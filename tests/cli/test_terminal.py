"""Completion scripts and colours."""

import os
import pty
import subprocess

import pytest

from regen_program import BINARY
from test_verbs import VERBS


def test_bash_completion(regen):
    script = regen.ok("completion", "bash")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    for word in ("max-batch", "--activation-budget", "chen_greedy", "zoo:VGG19", "v100-16"):
        assert word in script


def complete(regen, *words):
    """What bash would offer after these words (split as bash splits them)."""
    regen.write("completion.bash", regen.ok("completion", "bash"))
    quoted = " ".join(f"'{word}'" for word in words)
    script = (
        f"source completion.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _regen; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], cwd=regen.folder, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completion_offers_what_fits(regen):
    assert complete(regen, "regen", "val") == ["validate"]
    assert complete(regen, "regen", "plan", "zoo", ":", "vgg1") == []
    assert complete(regen, "regen", "plan", "zoo", ":", "VGG1") == ["VGG16", "VGG19"]
    assert "--budget" in complete(regen, "regen", "plan", "--bu")
    assert complete(regen, "regen", "plan", "--planner", "last") == ["last_node"]
    assert complete(regen, "regen", "sweep", "g", "--planners", "keep_all,last") == ["keep_all,last_node"]
    assert complete(regen, "regen", "completion", "fi") == ["fish"]


@pytest.mark.parametrize("shell,check", [("zsh", ["zsh", "-n"]), ("fish", ["fish", "-n"])])
def test_other_completions(regen, shell, check):
    script = regen.ok("completion", shell)
    assert all(verb in script for verb in VERBS) and "chen_sqrt" in script
    found = subprocess.run(["which", shell], capture_output=True).returncode == 0
    if found:
        regen.write("script", script)
        subprocess.run([*check, "script"], cwd=regen.folder, check=True)


def on_terminal(*arguments, **env):
    """Output of the binary when it writes to a terminal."""
    leader, follower = pty.openpty()
    child = subprocess.Popen([str(BINARY), *arguments], stdout=follower, stderr=follower,
                             env={**os.environ, "TERM": "xterm", **env})
    os.close(follower)
    output = b""
    try:
        while chunk := os.read(leader, 65536):
            output += chunk
    except OSError:  # the other side is gone
        pass
    os.close(leader)
    assert child.wait() == 0
    return output


def test_colours_only_where_wanted(regen):
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    os.environ.pop("NO_COLOR", None)
    try:
        assert b"\x1b[1m" in on_terminal("zoo", "vgg19")
        assert b"\x1b" not in on_terminal("zoo", "vgg19", NO_COLOR="1")
        assert b"\x1b" not in on_terminal("zoo", "vgg19", TERM="dumb")
        assert "\x1b" not in regen.ok("zoo", "vgg19", env={"TERM": "xterm"})
    finally:
        os.environ.update(environment)
