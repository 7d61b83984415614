"""A captured step with the options of a user. What follows from them is C++ (regen/session): recording, plans, arenas."""

import json
import os
import pathlib
from collections.abc import Callable, Sequence

import torch

from regen import _runtime
from regen._capture.cache_folder import cache_folder
from regen._capture.capture import Captured
from regen._capture.index_samples import index_samples
from regen._islands.call import measuring, repeatable
from regen._progress.work import watched
from regen._session.admission import Admission
from regen._session.budget import as_budget, check_budget
from regen._session.job import job
from regen.errors import Error
from regen.options import Link, Options


class Session(_runtime.Session):
    """Recorded when it is made; planned, compiled and run by the methods of its base."""

    needs_budget = True

    def __init__(
        self,
        captured: Captured,
        options: Options,
        *,
        fraction_of: int | None = None,
        admission: Admission | None = None,
        measurements: str | None = None,
        link: Link | None = None,
        lends_gradients: bool = False,
    ) -> None:
        """Records the step.

        Args:
            captured: the step.
            options: of the user.
            fraction_of: the bytes of which a budget is a fraction; None: of the unplanned peak of this step.
            admission: of a job whose bytes may change between two steps.
            measurements: a file of measurements other than the one in the cache.
            link: in place of the options' one.
            lends_gradients: as of settings_of().
        """
        if self.needs_budget:
            check_budget(options)
        self.admission = admission
        self.device = str(captured.program["device"])
        self.kind = self.device.split(":")[0]
        settings = settings_of(options, lends_gradients)
        settings.link = link or options.link
        self.islands = captured.islands
        with watched(), measuring(self.islands):
            super().__init__(
                json.dumps(captured.program), self.device, settings, samples_of(captured), measurements=measurements, fraction_of=fraction_of,
                job=job(), quantum=options.quantum,
                memory=None if admission is None else admission.memory,
                limit=None if admission is None else admission.limit)

    # What may take longer than a second.

    def plan(self) -> None:
        """As the base."""
        with watched():
            super().plan()

    def plan_by(self, planners: Sequence[str], seconds: float = 0.0, work: int = 0) -> bool:
        """As the base."""
        with watched():
            return super().plan_by(planners, seconds, work)

    def least_budget(self) -> int | None:
        """As the base."""
        with watched():
            return super().least_budget()

    def take_least_plan(self) -> bool:
        """As the base."""
        with watched():
            return super().take_least_plan()

    def compile(self, share: _runtime.Session | None = None) -> None:
        """As the base."""
        with watched():
            super().compile(share)

    def foresee_more(self) -> bool:
        """As the base."""
        with watched():
            return super().foresee_more()

    def follow_job(self) -> None:
        """Inside a hold, and between two steps: where the job may use other bytes than before, the plan for those is in use."""
        if self.admission is None:
            return
        limit = self.admission.look()
        if limit != self.limit:
            with watched():
                self.follow_limit(limit)

    def run_first(self, bind: Callable[[], None], make_ready: Callable[[], None]) -> None:
        """Runs the first part of a step.

        An operator may allocate more than when it was recorded: what a library chooses can depend on contents. Where the budget has no
        room for that, the executor puts back what the part has changed; the operator's memory becomes part of the plan, and the part runs again.

        Args:
            bind: binds the tensors of this step.
            make_ready: compiles the new plan.
        """
        with repeatable(self.islands) as again:
            while True:
                bind()
                try:
                    return self.run(0)
                except Error:
                    if not self.foresee_more():
                        raise
                    again()
                    make_ready()

    def limit_budget(self, size: int) -> None:
        """Bytes for the plan and what the caller holds, in place of the user's budget."""
        self.settings.budget = _runtime.Budget.of_bytes(size)

    def write_plan(self, path: str | os.PathLike[str]) -> None:
        """The plan in use as a file."""
        pathlib.Path(path).write_text(self.plan_json())


def settings_of(options: Options, lends_gradients: bool = False) -> _runtime.Settings:
    """The same for C++. `lends_gradients`: they are a part of the plan, for a caller that drops them before the next step."""
    settings = _runtime.Settings()
    settings.budget = as_budget(options.budget)
    settings.planners = options.planner.split(",")
    settings.host_budget = as_budget(options.host_budget, "host_budget")
    settings.time_limit = options.time_limit
    settings.work_limit = options.work_limit
    settings.debug = options.debug
    settings.cache_folder = str(cache_folder(options.cache) or "")
    settings.link = options.link
    settings.plan_file = "" if options.plan_file is None else str(options.plan_file)
    settings.improve = _runtime.BACKGROUND_SECONDS if options.improve is True else options.improve
    settings.cuda_graphs = options.cuda_graphs
    settings.releasable = options.releasable
    settings.lends_gradients = lends_gradients
    settings.algorithms = options.algorithms
    return settings


def samples_of(captured: Captured) -> dict[int, torch.Tensor]:
    """Contents that matter: inputs and constants hold indices, and so does what follows from them; the rest may be made up."""
    roles = [storage["role"] for storage in captured.program["storages"]]
    given = {s: whole_storage(t) for s, t in captured.tensors.items() if roles[s] in ("input", "constant")}
    return given | {s: whole_storage(t) for s, t in index_samples(captured.program, captured.tensors).items()}


def whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor's memory, flat: a recorded call sees the same bytes the step would."""
    base = tensor.detach()
    flat = base.new_empty(0)
    flat.set_(base.untyped_storage(), 0, (base.untyped_storage().nbytes() // base.element_size(),), (1,))
    return flat
