"""What a plan decided, for people."""

from regen import _runtime


class PlanReport:
    """Prints predicted and measured peak and time, the bound, and what was kept, recomputed and moved."""

    def __init__(self, runner):
        self.runner = runner

    @property
    def predicted_peak(self):
        return self.runner.report["peak_bytes"]

    @property
    def predicted_seconds(self):
        return self.runner.report["cost"]

    def __str__(self):
        report, step = self.runner.report, self.runner.step
        memory = step.memory() if self.runner.compiled else {}
        size = _runtime.format_bytes
        lines = [
            f"plan by {report['planner']} ({report['status']}), {report['steps']} steps",
            f"  budget      {size(self.runner.budget)}",
            f"  peak        {size(report['peak_bytes'])} predicted; unplanned {size(step.unplanned_bytes)}, "
            f"no plan below {size(step.bound_bytes)}",
            f"  time        {report['cost'] * 1e3:.3f} ms predicted, {step.base_seconds * 1e3:.3f} ms keeping everything "
            f"({report['overhead'] * 100:+.2f} %), proven at least {report['lower_bound'] * 1e3:.3f} ms",
            f"  recomputed  {report['recomputed']} ops",
            f"  moved       {size(report['offloaded_bytes'])} to the host and back",
        ]
        if memory:
            lines.append(f"  arena       {size(memory['arena'])}, host {size(memory['host'])}")
            if memory["deviations"]:
                lines.append(f"  unforeseen  {memory['deviations']} allocations ({memory['deviating'].strip()})")
        return "\n".join(lines)

    def explain(self):
        return self.runner.step.explain_plan()
