"""clang-tidy over the C++ sources, many of them in one unity.

    tools/tidy.py                  every source of build-lint/compile_commands.json
    tools/tidy.py --since COMMIT   those that differ from that commit
    tools/tidy.py FILE ..          these

Most of the time of clang-tidy goes into headers: it parses them and walks through them again for every source (20 s for a
source that includes torch). In a unity this is done once for all its sources. A unity that does not compile is halved,
down to single sources. Needs `cmake --preset lint`, which knows each source by itself.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import unities

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-lint"
MOST_LINES = 8000  # of sources in one unity: 1.5 GB of memory with torch's headers, and enough unities for two cores


def flags_of(command):
    """The flags of a compiler's command line that say what the code means, each as one word."""
    words = iter(shlex.split(command)[1:])
    flags = []
    for word in words:
        if word == "-isystem":
            flags.append("-isystem" + next(words))
        elif word.startswith(("-D", "-I", "-std=")):
            flags.append(word)
    return flags


def database():
    """Every source of ours that is compiled: the flags of its first command, by its path from the root."""
    flags = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if path.is_relative_to(ROOT) and not path.is_relative_to(BUILD):
            flags.setdefault(str(path.relative_to(ROOT)), flags_of(entry["command"]))
    return flags


def chosen(arguments, paths):
    """The paths that the command line asks for."""
    wanted = set(paths)
    if arguments.since:
        command = ["git", "diff", "--name-only", "--diff-filter=d", arguments.since]
        wanted &= set(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split())
    if arguments.files:
        wanted &= {str(pathlib.Path(name).resolve().relative_to(ROOT)) for name in arguments.files}
    return [path for path in paths if path in wanted]


def with_torch(flags):
    return any(flag.endswith("/torch/include") for flag in flags)


def same_macros(some, others):
    """Whether no macro has two values."""
    macros = {flag for flag in some + others if flag.startswith("-D")}
    return len(macros) == len({macro.partition("=")[0] for macro in macros})


def group(paths, flags):
    """The unities, those that take longest first. Sources without torch are not burdened with its headers."""

    def fit(one, other):
        some, others = flags[one.path], flags[other.path]
        return with_torch(some) == with_torch(others) and same_macros(some, others)

    found = unities.group([unities.read(path, ROOT) for path in paths], MOST_LINES, fit)
    return sorted(found, key=lambda unity: (with_torch(flags[unity[0].path]), sum(source.lines for source in unity)), reverse=True)


def check(paths, flags, options):
    """The findings in one unity, each as the text that clang-tidy prints of it."""
    file = BUILD / "tidy" / f"{paths[0].removesuffix('.cpp').replace('/', '_')}_and_{len(paths) - 1}.cpp"
    file.write_text("".join(f'#include "{path}"  // NOLINT(bugprone-suspicious-include): a unity\n' for path in paths))
    all_flags = dict.fromkeys(flag for path in paths for flag in flags[path])
    command = ["clang-tidy-14", "--quiet", *options, str(file), "--", *all_flags, "-w", "-ferror-limit=0"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if "[clang-diagnostic-error]" in run.stdout and len(paths) > 1:
        reason = next(finding for finding in split(run.stdout) if "[clang-diagnostic-error]" in finding)
        print(f"tidy: {file.name} is halved, because it does not compile: {reason}", flush=True)
        half = len(paths) // 2
        return check(paths[:half], flags, options) + check(paths[half:], flags, options)
    if options:
        print(run.stderr, flush=True)
    found = split(run.stdout)
    return found if found or run.returncode == 0 else [f"{file}: {run.stderr}"]


def split(text):
    starts = [found.start() for found in re.finditer(r"^(?:/[^\n]*?: )?(?:error|warning): ", text, re.MULTILINE)]
    return [text[begin:end].rstrip() for begin, end in zip(starts, [*starts[1:], len(text)])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--since", metavar="COMMIT")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--list", action="store_true", help="print the unities, check nothing")
    parser.add_argument("--profile", action="store_true", help="print what each check costs")
    arguments = parser.parse_args()
    flags = database()
    groups = [[source.path for source in unity] for unity in group(chosen(arguments, flags), flags)]
    if arguments.list:
        print(*(" ".join(paths) for paths in groups), sep="\n")
        return
    (BUILD / "tidy").mkdir(exist_ok=True)
    options = ["--enable-check-profile"] if arguments.profile else []
    findings = set()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for found in pool.map(lambda paths: check(paths, flags, options), groups):
            new = {finding.replace(f"{ROOT}/", "") for finding in found} - findings  # one in a header is found in many unities
            findings |= new
            if new:
                print(*sorted(new), sep="\n", flush=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"tidy: {len(findings)} findings; {sum(map(len, groups))} sources in {len(groups)} unities, "
          f"{used.ru_utime + used.ru_stime:.0f} s of CPU time, {used.ru_maxrss >> 10} MiB at most")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
