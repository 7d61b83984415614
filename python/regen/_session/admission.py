"""How a job of `regen share run` lives within the bytes that the daemon gives it: it reports what memory buys it, follows its limit
between two steps, and gets out of the way when it is asked to.
"""

import dataclasses
import warnings
import weakref

from regen import _runtime
from regen._progress.work import watched
from regen._session.job import job

DEPTHS = ("pause", "spill", "leave")


class Planners:
    """All that plan in one job. The bytes of one can follow the job's limit; of several, none has what the others take."""

    def __init__(self, of):
        self.job = of
        self.owners = weakref.WeakSet()
        self.reported = False  # the daemon may have given bytes to others

    def admit(self, owner, adapts, deepest):
        alone = not self.owners
        self.owners.add(owner)
        if alone and adapts:
            return Admission(self, deepest)
        if self.reported:
            self.report([(self.job.memory, 0.0)], 0, "pause")
        return None

    def report(self, points, persistent, deepest):
        with watched():  # others may have to make room
            done = self.job.report_curve(points, persistent, deepest)
        self.reported = self.reported or done
        return done


PLANNERS = None


def admission_of(owner, adapts=True, deepest="leave"):
    """What `owner`, which is about to plan in this process, does with the job's limit; None: it takes what the job asked for, since this
    is no job, or the owner cannot adapt, or is not the only one. `deepest`: how far it can get out of the way.
    """
    global PLANNERS
    if job() is None:
        return None
    if PLANNERS is None or PLANNERS.job is not job():
        PLANNERS = Planners(job())
    return PLANNERS.admit(owner, adapts, deepest)


class Admission:
    def __init__(self, planners, deepest):
        self.planners = planners
        self.job = planners.job
        self.deepest = min(deepest, _runtime.deepest_allowed(), key=DEPTHS.index)
        self.memory = _runtime.JobMemory()
        self.job.set_memory(self.memory)
        self.limit = self.job.limit()
        self.least = 0  # bytes of the largest step so far: a limit that holds that one holds all
        self.unreported = None
        self.state = None

    def options_of(self, options):
        """Those of a user, for a step whose arena may have to go."""
        return options if self.deepest == "pause" else dataclasses.replace(options, releasable=True)

    def introduce(self, session):
        """A step that was recorded. Outside of a hold, since the daemon may have to make room first."""
        if not any(size <= self.job.memory for size, _ in session.points()):
            session.plan()  # or says why there is no plan
        points = session.points()
        if points[0][0] > self.least:
            self.unreported = points, session.fixed_bytes
        self.report()

    def report(self):
        """What is not reported yet; work in other threads may have to end first."""
        if self.unreported is None:
            return
        points, persistent = self.unreported
        if self.planners.report(points, persistent, self.deepest):
            self.least, self.unreported = points[0][0], None

    def look(self):
        """The bytes that the job may use from now on. Inside a hold, and between two steps."""
        self.warn()
        self.limit = self.job.limit()
        return self.limit

    def warn(self):
        """Why memory did not go when the daemon asked for it, each reason once. It was asked for on another thread, or inside of a step."""
        for problem in self.memory.take_problems():
            warnings.warn(
                f"regen: job '{self.job.name}' could not move its memory off the device for another job: {problem}. Jobs that wait for these "
                "bytes go on waiting. Give the job more host memory (copies are pinned), or start it with `regen share run --deepest pause`: "
                "then it is not asked", stacklevel=2)

    def pack(self, model, optimizer):
        """The state into one arena, where it may have to leave. Inside a hold; cheap when it is there already."""
        if self.deepest != "leave":
            return
        if self.state is None:
            from regen.share._state import PackedState  # which is built upon steps

            self.state = PackedState(model, optimizer)
        elif self.state.is_gathered():
            return
        else:
            self.state.gather()
        self.memory.set_state(self.state.arena)
