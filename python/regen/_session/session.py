"""One captured step, recorded on the device, planned and compiled: what `wrap` and `step` share."""

import hashlib
import json
import os
import pathlib
from typing import Any

import torch

from regen import _runtime
from regen._capture.cache_folder import cache_folder
from regen._capture.capture import Captured
from regen._session.admission import CURVE_SECONDS, Admission
from regen._session.budget import budget_bytes, device_budget
from regen._session.improvement import Improvement
from regen._session.job import hold, job
from regen._session.link import measured_link
from regen.errors import BudgetError, Error
from regen.options import Link, Options

# Room inside the budget for allocations that the recording did not foresee.
RUNTIME_RESERVE = {"cpu": 16 << 10, "cuda": 8 << 20}
# What a driver hands out at once. The arena ends inside such a page, and small tensors of the caller begin another.
PAGE = {"cpu": 0, "cuda": 2 << 20}
# What a driver takes for each call of a stretch that is launched as a whole.
CAPTURED_CALL = {"cpu": 0, "cuda": 8 << 10}
# What libraries hold on each device since a first recording.
LIBRARY_BYTES = {}
# For the search for the least budget, should it not end by itself.
LEAST_SECONDS = 15.0
# Plans of least budgets that this process has told somebody: given back, such a budget must work, also where operators are
# measured anew and a search would go another way.
LEAST_PLANS = {}


class Session:
    """Records, plans and compiles a captured program. Holds the arena while compiled."""

    def __init__(
        self, captured: Captured, options: Options, fraction_of: int | None = None, admission: Admission | None = None
    ) -> None:
        """`fraction_of`: the bytes of which a budget is a fraction; None: of the unplanned peak of this step. `admission`: of a job whose
        bytes may change between two steps.
        """
        self.captured = captured
        self.options = options
        self.fraction_of: int = fraction_of or 0  # until the graph is made
        self.admission = admission
        self.limit = None  # of the job, when the plan in use was chosen
        self.device = str(captured.program["device"])
        self.kind = self.device.split(":")[0]
        self.step = _runtime.Step(json.dumps(captured.program), self.device)
        self.check_budget()
        with hold():
            self.library_bytes = self.record()
        this = job()
        if this is not None:
            self.step.set_job(this, self.options.quantum)
        self.compiled = False
        self.improvement = Improvement(self.background_seconds)
        self.make_graph()
        if admission is not None:
            self.step.set_memory(admission.memory)
            self.make_curve()

    def record(self):
        """Measures every op; returns what libraries (cuBLAS) took for good while that was done, and what the device's
        allocator has reserved around the caller's tensors without using it: bytes of the card that nobody else can have.
        """
        before = _runtime.memory_use(self.device)["allocated"]
        self.step.record(self.samples(), 3 if self.kind == "cpu" else 5, self.profile_path(), self.options.algorithms,
                         self.options.cuda_graphs)
        if self.kind == "cpu":
            return 0
        torch.cuda.empty_cache()
        use = _runtime.memory_use(self.device)
        taken = max(0, use["allocated"] - before)
        LIBRARY_BYTES[self.device] = max(LIBRARY_BYTES.get(self.device, 0), taken)
        # State that may leave has an arena, too, which ends inside a page; and small tensors of the caller keep pages that were the state's.
        pages = 5 if self.options.releasable else 2
        return LIBRARY_BYTES[self.device] + max(0, use["reserved"] - use["allocated"]) + pages * PAGE[self.kind]

    def samples(self):
        """Contents that matter: inputs and constants hold indices; the rest may be made up."""
        roles = [storage["role"] for storage in self.captured.program["storages"]]
        return {s: whole_storage(t) for s, t in self.captured.tensors.items() if roles[s] in ("input", "constant")}

    def cache_folder(self):
        return cache_folder(self.options.cache)

    def profile_path(self):
        folder = self.cache_folder()
        return "" if folder is None else str(folder / f"profile-{self.kind}-{safe_name(torch_version(self))}.json")

    def make_graph(self):
        self.report: Any = None  # of the plan in use, as `_runtime.Step.plan` gives it
        self.planned_for: str | None = None
        self.least: dict[Any, tuple[dict[str, Any], str | None]] = {}
        captured = CAPTURED_CALL[self.kind] * len(self.captured.program["nodes"]) if self.options.cuda_graphs else 0
        self.step.make_graph(RUNTIME_RESERVE[self.kind] + self.library_bytes + captured)
        self.fraction_of = self.fraction_of or self.step.unplanned_bytes

    def make_curve(self):
        """Plans for all bytes that the job may be given. One that was given is the only one."""
        if self.options.plan_file is None:
            budget = None if self.options.budget is None else device_budget(self.options.budget, self.fraction_of, self.device)
            self.step.make_curve(self.limited_request(self.options.planner, budget, CURVE_SECONDS))

    def points(self):
        """(bytes, seconds for a step) of the plans that are known."""
        if self.options.plan_file is None or self.report is None:
            return self.step.curve()
        return [(self.predicted_peak, self.report["cost"])]

    @property
    def background_seconds(self) -> float:
        """For a better plan while the steps go on."""
        return self.options.background_seconds(self.kind)

    @property
    def budget(self) -> Any:  # bytes; of an inference, None where there is no limit
        return device_budget(self.options.budget, self.fraction_of, self.device, self.job_limit)

    @property
    def job_limit(self) -> int | None:
        return None if self.admission is None else self.admission.limit

    def check_budget(self):
        """Before anything is measured: what can be said of a budget without knowing the step's size."""
        device_budget(self.options.budget, 0, self.device)

    @property
    def gross_budget(self) -> Any:
        return self.budget

    @property
    def predicted_peak(self) -> int:
        return self.report["peak_bytes"]

    def plan(self):
        """Finds a plan within the budget or raises BudgetError with the reason and the least budget that works."""
        if self.report is not None and self.planned_for == self.plan_key():
            return
        self.planned_for = None  # should this fail, it has to be tried again
        if self.options.plan_file is not None:
            self.take_given_plan(pathlib.Path(self.options.plan_file))
        elif not self.load_cached_plan():
            self.find_plan()
        self.planned_for = self.plan_key()

    def find_plan(self):
        known = None if self.admission is None else self.step.take_within(self.budget)
        report = known or self.step.plan(self.request(self.options.planner, self.budget))
        self.report = report if has_plan(report) else self.least_plan()
        if self.report is None:
            raise BudgetError(self.refusal())
        self.save_plan()

    def take_given_plan(self, path: pathlib.Path) -> None:
        self.step.set_plan(path.read_text())
        self.report = self.step.judge(self.request("", None))
        if self.predicted_peak > self.gross_budget:
            raise BudgetError(
                f"the plan in {path} needs {self.predicted_peak:,} bytes with what the caller holds, "
                f"expected at most the budget of {self.gross_budget:,}")

    def least_plan(self):
        """A search for the cheapest plan may end without one where the search for the least budget finds one."""
        if self.budget < self.step.bound_bytes:
            return None
        for name in self.least_planners():
            report, plan = self.least_by(name)
            if plan is not None and report["peak_bytes"] <= self.budget:
                self.step.set_plan(plan)
                return report
        return None

    def least_planners(self):
        return [name for name in self.options.planner.split(",") if name != "keep_all"]

    def least_by(self, name):
        """(report, plan) of the least budget that a planner meets; searched for once."""
        key = (name, self.step.fingerprint, self.options.work_limit, self.options.host_budget, self.link())
        if key not in self.least:
            self.least[key] = self.known_least(LEAST_PLANS[key]) if key in LEAST_PLANS else self.search_least(name)
            LEAST_PLANS[key] = self.least[key][1]
        return self.least[key]

    def search_least(self, name):
        report = self.step.least_budget(self.limited_request(name, None, LEAST_SECONDS))
        return report, self.step.plan_json() if has_plan(report) else None

    def known_least(self, plan):
        if plan is None:
            return {"status": "unknown"}, None
        self.step.set_plan(plan)
        return self.step.judge(self.request("", None)), plan

    def request(self, planner, budget, seconds=None, work=0):
        """`seconds`, `work`: the limits; those of the options if no seconds are given."""
        request = _runtime.PlanRequest()
        request.planners = planner.split(",")
        request.budget = budget
        request.host_budget = None if self.options.host_budget is None else budget_bytes(self.options.host_budget, 0, "cpu", "host_budget")
        request.seconds = self.first_seconds if seconds is None else seconds
        request.work = self.options.work_limit if seconds is None else work
        request.to_host, request.to_device, request.both = self.link()
        return request

    def limited_request(self, planner, budget, seconds):
        """In so many seconds, unless the options count work."""
        work = self.options.work_limit
        return self.request(planner, budget, 0.0 if work else seconds, work)

    @property
    def first_seconds(self) -> float:
        return self.options.first_seconds(self.background_seconds)

    def link(self) -> Link:
        return self.options.link or measured_link(self.device, self.cache_folder())

    def refusal(self):
        """One line: why the budget is too small, and the least one that is known to work."""
        budget = self.budget
        reason = self.step.explain_budget(budget).strip()
        if not reason.startswith("no plan"):
            reason = f"no plan was found: {reason}"
        least = self.least_budget()
        known = f"; the least budget found to work is {least:,} bytes" if least else ""
        return reason + known

    def least_budget(self) -> int | None:
        peaks = [report["peak_bytes"] for report, plan in map(self.least_by, self.least_planners()) if plan is not None]
        return min(peaks) if peaks else None

    # Plans are kept by everything they depend on.

    def plan_key(self):
        parts = [self.step.fingerprint, self.budget, self.options.planner, self.first_seconds,
                 self.options.work_limit, self.options.host_budget, self.link(), self.step.base_seconds]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]

    def plan_path(self):
        folder = self.cache_folder()
        return None if folder is None else folder / f"plan-{self.plan_key()}.json"

    def load_cached_plan(self):
        path = self.plan_path()
        if path is None or not path.exists():
            return False
        try:
            stored = json.loads(path.read_text())
            self.step.set_plan(stored["plan"])
        except (ValueError, KeyError, TypeError, Error):
            return False
        self.report = stored["report"]
        if "improved" in self.report:
            self.report["improved"]["step"] = None  # of another process
        return True

    def save_plan(self):
        path = self.plan_path()
        if path is None:
            return
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps({"plan": self.step.plan_json(), "report": self.report}))
        temporary.rename(path)

    def write_plan(self, path: str | os.PathLike[str]) -> None:
        pathlib.Path(path).write_text(self.step.plan_json())

    def compile(self):
        if not self.compiled:
            self.step.compile(RUNTIME_RESERVE[self.kind], self.options.debug, self.options.releasable, self.options.cuda_graphs)
            self.compiled = True
            self.confirm()

    def follow_limit(self):
        """Inside a hold, and between two steps: where the job may use other bytes than before, the plan for those is this session's, to
        be compiled.
        """
        if self.admission is None or self.admission.look() == self.limit:
            return
        before = self.report
        self.plan()
        self.limit = self.admission.limit
        if not self.compiled:
            return
        if is_same_plan(before, self.report):
            self.confirm()
            return
        self.release()
        if self.kind == "cuda":
            torch.cuda.empty_cache()  # others are waiting for it

    def confirm(self):
        if self.admission is not None:
            self.admission.confirm(self.predicted_peak)

    def release(self):
        """Gives the arena back, so that another session may have it."""
        if self.compiled:
            self.step.release()
            self.compiled = False

    def take_better_plan(self, number):
        """Before step `number`, and with no step under way: if a search beside the training has found a better plan, it
        is this session's, to be compiled.
        """
        self.improvement.take(self, number)

    def look_for_better_plan(self):
        """Beside the steps that run under the plan in use."""
        self.improvement.begin(self)


def has_plan(report):
    return report["status"] in ("optimal", "feasible")


def is_same_plan(one, other):
    return all(one[key] == other[key] for key in ("peak_bytes", "cost", "steps", "recomputed", "offloaded_bytes"))


def whole_storage(tensor):
    """All of a tensor's memory, flat: a recorded call sees the same bytes the step would."""
    base = tensor.detach()
    flat = base.new_empty(0)
    flat.set_(base.untyped_storage(), 0, (base.untyped_storage().nbytes() // base.element_size(),), (1,))
    return flat


def torch_version(session):
    return session.captured.program["torch"]


def safe_name(text):
    return "".join(c if c.isalnum() or c in ".-" else "_" for c in text)
