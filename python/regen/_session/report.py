"""What a plan decided, for people."""

import os
from typing import NoReturn

from regen import _runtime
from regen._session.report_page import ReportPage
from regen._session.turns import Turns
from regen.errors import UsageError


class PlanReport:
    """What a plan decided. `print` shows predicted and measured peak and time, the bound, and what was kept, recomputed and moved.

    Attributes:
        session: the step under the plan; `session.report` has all that is known of the plan.
        measured_peak: bytes of the device at the highest point of a step; None: not measured yet.
        measured_seconds: of the last step on the device; None: not measured yet.
        island: what runs beside the plan, why, and what of the budget it takes; empty: nothing.
    """

    def __init__(
        self, session: _runtime.Session, measured_peak: int | None = None, measured_seconds: float | None = None, island: str = ""
    ) -> None:
        self.session = session
        self.turns = Turns("plan")  # of the function whose plan this is
        self.island = island
        self.measured_peak = measured_peak
        self.measured_seconds = measured_seconds

    @property
    def caller_bytes(self) -> int:
        """Of the budget, for what the caller holds."""
        with self.turns.question():
            return self.session.caller_bytes

    @property
    def predicted_peak(self) -> int:
        """Bytes of the device at the highest point of a step, as the plan says."""
        with self.turns.question():
            return self.session.predicted_peak

    @property
    def predicted_seconds(self) -> float:
        """Seconds of a step, as the simulator says."""
        with self.turns.question():
            return self.session.report.cost

    def __str__(self) -> str:
        with self.turns.question():
            return self._with_island(self.session.report_text(self.measured_peak, self.measured_seconds))

    def explain(self) -> str:
        """Which tensors fill the memory at the peak of the plan."""
        with self.turns.question():
            return self._with_island(self.session.explanation())

    def page(self, beside: str | os.PathLike[str] | None = None) -> ReportPage:
        """What the plan does, as a page for a browser, with what was measured so far.

        Args:
            beside: a plan file of the same step, shown beside the plan in use.

        Raises:
            Error: the file holds no plan for this step.
        """
        with self.turns.question():
            islands = rows_of_islands(self.session)
            return ReportPage(self.session.report_json(self.measured_peak, self.measured_seconds, islands, os.fspath(beside or "")))

    def _with_island(self, text: str) -> str:
        lines = [*costs_of_islands(self.session), *([self.island] if self.island else [])]
        return "\n".join([text.rstrip(), *lines]) if lines else text


def costs_of_islands(session: _runtime.Session) -> list[str]:
    """A line for each part of the model that runs as Python."""
    calls = {call.key: call for call in getattr(session, "islands", [])}
    passes: dict[int, dict[bool, tuple[int, int, float]]] = {}
    for key, backward, pool, held, seconds in session.island_costs():
        passes.setdefault(key, {})[backward] = pool, held, seconds
    lines = []
    for key, found in passes.items():
        pool, held, seconds = found[False]
        back = found.get(True)
        time = f"{seconds * 1e3:.2f} ms" + (f", {back[2] * 1e3:.2f} ms back" if back else "")
        size = _runtime.format_bytes
        memory = f"holds {size(held)}, works in {size(pool)}" + (f" and {size(back[0])}" if back else "")
        lines.append(f"island {calls[key].name} ({calls[key].source}): {time}; {memory}; because {calls[key].reason}")
    return lines


def rows_of_islands(session: _runtime.Session) -> list[tuple[str, str, str, int, int, float]]:
    """Name, line, reason, bytes held, bytes worked in and seconds of each part of the model that runs as Python, both passes together."""
    calls = {call.key: call for call in getattr(session, "islands", [])}
    sums: dict[int, tuple[int, int, float]] = {}
    for key, _, pool, held, seconds in session.island_costs():
        before = sums.get(key, (0, 0, 0.0))
        sums[key] = max(before[0], held), max(before[1], pool), before[2] + seconds
    return [(calls[key].name, calls[key].source, calls[key].reason, *sums[key]) for key in sums]


class NotPlanned(PlanReport):
    """In place of a report while there is no plan."""

    def __init__(self) -> None:
        pass

    def __getattribute__(self, name: str) -> object:
        if name.startswith("__"):
            return super().__getattribute__(name)
        return refuse(name)

    def __str__(self) -> str:
        return "no plan is in use: no step has been planned yet, or the last one failed"


def refuse(name: str) -> NoReturn:
    raise UsageError(f"plan.{name}: no plan is in use, expected a step that succeeds first")
