"""The sessions of one model: one for each shape of its inputs, of which one holds the arena. What `wrap`, `step` and `infer` share."""

import os
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from regen._session.admission import Admission
from regen._session.report import NotPlanned, PlanReport
from regen._session.report_page import ReportPage
from regen._session.session import Session
from regen._session.turns import Turns
from regen.errors import CaptureError, UsageError

# Captures of one shape, which differ in what the user's code decides from values. More would come without end.
MOST_VARIANTS = 16


class Shaped(Protocol):
    """What a shape cache holds: a captured step for one shape of the inputs."""

    @property
    def session(self) -> Session:
        """Plans, and holds the arena while compiled."""
        ...

    def admit(self, flat: Sequence[Any]) -> list[Any] | None:
        """The program's inputs for a batch of this shape; None: the user's code would do something else with it than was captured."""
        ...

    def make_ready(self) -> None:
        """Takes the arena."""

    def release(self) -> None:
        """Gives the arena back."""

    def report(self) -> PlanReport:
        """What the plan decided."""
        ...


Entry = TypeVar("Entry", bound=Shaped)


def holder_of(entry: Shaped) -> object:
    """Whose arena an entry runs in: its own, or that of the plans for all sizes (sized_steps.SizedSteps)."""
    return getattr(entry, "holder", entry)


class ShapeCache(Generic[Entry]):
    """One session for each shape of the inputs, of which one holds the arena."""

    def __init__(self, turns: Turns, admission: Admission | None = None) -> None:
        """`turns`: of the threads that call it. `admission`: of a job whose bytes may change between two steps."""
        self.turns = turns
        self.admission = admission
        self.shapes: dict[Any, Entry] = {}
        self.active: Entry | None = None

    def shape_of(self, key: Hashable, make: Callable[[], Entry], flat: Sequence[Any]) -> tuple[Entry, list[Any]]:
        """(the entry of this shape that is for this batch, the program's inputs). Outside of a hold: the daemon may have to make room for a
        new one.
        """
        entries = [entry for (shape, _), entry in self.shapes.items() if shape == key]
        number = len(entries)
        for entry in sorted(entries, key=lambda entry: entry is not self.active):  # most likely the same as in the last step
            inputs = entry.admit(flat)
            if inputs is not None:
                if self.admission is not None:
                    self.admission.report()
                return entry, inputs
        if number >= MOST_VARIANTS:
            raise CaptureError(
                f"regen: values of the batch have led the model's code, or its options the optimizer's, {MOST_VARIANTS} different ways for one "
                "shape; expected branches that seldom change (torch.where in place of an if)")
        return self.new_shape((key, number), make, flat)

    def new_shape(self, key: Hashable, make: Callable[[], Entry], flat: Sequence[Any]) -> tuple[Entry, list[Any]]:
        """An entry that is made for this batch."""
        self.release()  # measuring needs room, and quiet
        self.stop_searches()
        made = self.shapes[key] = make()
        if self.admission is not None:
            self.admission.introduce(made.session)
        inputs = made.admit(flat)
        assert inputs is not None, "a capture is for its own sample"
        return made, inputs

    def entries(self) -> list[Entry]:
        """Whatever has a plan."""
        return list(self.shapes.values())

    def stop_searches(self) -> None:
        """Beside the training, for better plans."""
        for entry in self.entries():
            entry.session.stop_search()

    def activate(self, shaped: Entry) -> None:
        """Inside a hold."""
        if self.active is not None and holder_of(self.active) is not holder_of(shaped):
            self.release()
        self.pack_state()
        shaped.make_ready()
        self.active = shaped

    def pack_state(self) -> None:
        """Once no other session holds the arena, and before this one takes it: into one place what may have to leave."""

    @property
    def plan(self) -> PlanReport:
        """What the plan in use decided: predicted and measured peak and time, the bound. `print` shows all of it."""
        with self.turns.question():
            if self.active is None:
                return NotPlanned()
            report = self.active.report()
        report.turns = self.turns
        return report

    def report(self, path: str | os.PathLike[str] | None = None, beside: str | os.PathLike[str] | None = None) -> ReportPage:
        """What the plan in use does, as one HTML page: what fills the memory over the step, where each tensor lies, what is kept, recomputed and
        moved in each module, and predicted beside measured. In a notebook the returned page shows itself.

            step.report("report.html")

        Args:
            path: where the page goes; None: it is only returned.
            beside: a plan file of the same step, shown beside the plan in use.

        Returns:
            The page, with its data.

        Raises:
            Error: the page cannot be written, or `beside` holds no plan for this step.
            UsageError: no plan is in use.
        """
        made = self.plan.page(beside)
        if path is not None:
            made.save(path)
        return made

    def save_plan(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan in use to a file, for `plan_file=path` next time.

        Args:
            path: where the file goes; one that is there is replaced.

        Raises:
            UsageError: no plan is in use.
        """
        with self.turns.question():
            if self.active is None:
                raise UsageError("save_plan(): no plan is in use, expected a step that succeeds first")
            self.active.session.write_plan(path)

    def release(self) -> None:
        """Gives the arena back until the next batch."""
        with self.turns.question():
            if self.active is not None:
                self.active.release()
                self.active = None
