"""``python -m regen_doctor [--json]``; ``regen doctor`` calls it, with what it knows of itself in REGEN_DOCTOR_PROGRAM."""

import json
import os
import sys

from regen_doctor.check import Check, Status
from regen_doctor.examination import examine

MARKS = {Status.OK: "ok", Status.ABSENT: "-", Status.WARNING: "warning", Status.PROBLEM: "PROBLEM"}
NAME, MARK = 14, 8  # columns


def line_of(check: Check) -> str:
    """One line, and a second one with what to do."""
    first = f"{check.name:<{NAME}}{MARKS[check.status]:<{MARK}}{check.found}"
    return f"{first}\n{'':<{NAME + MARK}}{check.advice}" if check.advice else first


def main() -> int:
    """Exit status 2: something does not work."""
    program = json.loads(os.environ.get("REGEN_DOCTOR_PROGRAM", "null"))
    checks = []
    for check in examine(program):
        checks.append(check)
        if "--json" not in sys.argv[1:]:
            print(line_of(check), flush=True)
    if "--json" in sys.argv[1:]:
        print(json.dumps([check.as_json() for check in checks], indent=2))
    problems = [check.name for check in checks if check.status is Status.PROBLEM]
    if not problems:
        return 0
    print(f"regen: {len(problems)} of {len(checks)} checks found a problem ({', '.join(problems)}), what to do stands below each", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
