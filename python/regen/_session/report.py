"""What a plan decided, for people."""

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from regen import _runtime
from regen.errors import UsageError

if TYPE_CHECKING:
    from regen._session.session import Session


class PlanReport:
    """What a plan decided. `print` shows predicted and measured peak and time, the bound, and what was kept, recomputed and moved.

    Attributes:
        caller_bytes: of the budget, for what the caller holds.
        measured_peak: bytes of the device at the highest point of a step; None: not measured yet.
        measured_seconds: of the last step on the device; None: not measured yet.
    """

    def __init__(
        self, session: "Session", caller_bytes: int = 0, measured_peak: int | None = None, measured_seconds: float | None = None
    ) -> None:
        self.session = session
        self.caller_bytes = caller_bytes
        self.measured_peak = measured_peak
        self.measured_seconds = measured_seconds

    @property
    def predicted_peak(self) -> int:
        """Bytes of the device at the highest point of a step, as the plan says."""
        return self.session.report["peak_bytes"] + self.caller_bytes

    @property
    def predicted_seconds(self) -> float:
        """Seconds of a step, as the simulator says."""
        return self.session.report["cost"]

    def __str__(self) -> str:
        report, step = self.session.report, self.session.step
        size = _runtime.format_bytes
        lines = [
            f"plan by {report['planner']} ({report['status']}), {report['steps']} steps",
            f"  budget      {self.budget_text(size)}",
            f"  peak        {size(self.predicted_peak)} predicted{self.measured(self.measured_peak, size)}; "
            f"unplanned {size(step.unplanned_bytes + self.caller_bytes)}, no plan below {size(step.bound_bytes + self.caller_bytes)}",
            f"  time        {milliseconds(report['cost'])} predicted{self.measured(self.measured_seconds, milliseconds)}, "
            f"{milliseconds(step.base_seconds)} keeping everything ({report['overhead'] * 100:+.2f} %), "
            f"proven at least {milliseconds(report['lower_bound'])}",
            *self.kept_lines(),
            f"  recomputed  {report['recomputed']} ops",
            f"  moved       {size(report['offloaded_bytes'])} to the host and back",
        ]
        if "improved" in report:
            lines.append(f"  improved    {improved_text(report['improved'], report['cost'])}")
        elif self.session.improvement.search is not None:
            lines.append("  improved    not yet: a search runs beside the training")
        if report.get("in_place"):
            lines.append(f"  in place    {report['in_place']} ops write over what they read last")
        if report.get("other_algorithms"):
            lines.append(f"  algorithms  {report['other_algorithms']} ops run otherwise than by default")
        memory = step.memory() if self.session.compiled else {}
        if memory:
            lines.append(f"  arena       {size(memory['arena'])}, host {size(memory['host'])}")
            if memory["deviations"]:
                lines.append(f"  unforeseen  {memory['deviations']} allocations ({memory['deviating'].strip()})")
        return "\n".join(lines)

    def budget_text(self, size: Callable[[int], str]) -> str:
        if self.session.budget is None:
            return "none"
        held = f", of which {size(self.caller_bytes)} for what the caller holds" if self.caller_bytes else ""
        return size(self.session.budget + self.caller_bytes) + held

    def kept_lines(self) -> list[str]:
        kept = kept_across_boundary(self.session.step)
        if kept is None:
            return []
        return [f"  kept        {kept[0]} tensors ({_runtime.format_bytes(kept[1])}) from the forward to the backward pass"]

    @staticmethod
    def measured(value: Any, text: Callable[[Any], str]) -> str:
        return "" if value is None else f", {text(value)} measured"

    def explain(self) -> str:
        """Which tensors fill the memory at the peak of the plan."""
        return self.session.step.explain_plan()


class NotPlanned(PlanReport):
    """In place of a report while there is no plan."""

    def __init__(self) -> None:
        pass

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UsageError(f"plan.{name}: no step has been planned yet, expected a step first")

    def __str__(self) -> str:
        return "no step has been planned yet"


def improved_text(improved: dict[str, Any], cost: float) -> str:
    when = "by an earlier process" if improved["step"] is None else f"before step {improved['step']}"
    return (f"{when}: a search of {improved['seconds']:.1f} s beside the training found {milliseconds(cost)}, "
            f"where the first plan has {milliseconds(improved['cost'])}")


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


def kept_across_boundary(step: _runtime.Step) -> tuple[int, int] | None:
    """Number and bytes of the planned tensors on the device when the first op of the backward pass runs; None without one."""
    graph, plan = json.loads(step.graph_json()), json.loads(step.plan_json())
    live = set()
    for instruction in plan["steps"]:
        kind, number = instruction[0], int(re.findall(r"\d+", instruction)[0])
        if kind == "c":
            if graph["ops"][number].get("phase") in ("loss", "backward"):
                return len(live), sum(graph["tensors"][t]["bytes"] for t in live)
            live.update(graph["ops"][number].get("outputs", []))
        elif kind == "r":
            live.discard(number)
        elif kind == "f":
            live.add(number)
    return None
