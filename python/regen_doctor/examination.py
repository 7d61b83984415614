"""All checks, in the order in which one depends on another."""

from collections.abc import Iterator
from typing import Any

from regen_doctor import machine, software
from regen_doctor.check import Check


def examine(program: dict[str, Any] | None = None) -> Iterator[Check]:
    """Each check as it is done: some take seconds.

    Args:
        program: what the program `regen` knows of itself: `version`, `path`, `runtime` (whether regen-runtime is beside it) and `socket` (of the
            daemon). None: it is not examined.

    Yields:
        One check after the other.
    """
    yield software.python()
    answer, reason = software.ask_torch()
    yield software.torch(answer, reason)
    package = software.runtime()
    yield package
    if program:
        yield software.same_release(package, program)
    yield software.trial(package)
    yield machine.cuda(answer)
    yield machine.memory()
    yield machine.cache(program.get("cache") if program else None)
    yield machine.daemon(program or {})
    yield machine.files()
    yield machine.shared_memory()
    yield software.compiler()
    yield from software.libraries()
