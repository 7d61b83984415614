"""One plan for all ranks of a job."""

import contextlib
import hashlib
import json
import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from regen._capture.cache_folder import cache_folder
from regen._capture.capture import Captured
from regen._session.wrapped_module import ModuleSession
from regen.errors import Error

# The passes before which ranks meet are powers of two from here on: often while a search is young, seldom when it takes long.
FIRST_MEETING = 4


def is_meeting(number):
    return number >= FIRST_MEETING and number & (number - 1) == 0


def members(group):
    """The process group whose ranks plan together; None when this process plans alone."""
    if group is None or not dist.is_available() or not dist.is_initialized():
        return None
    group = dist.group.WORLD if group == "default" else group
    return group if dist.get_world_size(group) > 1 else None


def gather(group: Any, mine: Any) -> list[Any]:
    """What each rank says."""
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, mine, group=group)
    return found


def alike(group: Any, mine: str) -> bool:
    """Whether all ranks say the same."""
    return len(set(gather(group, mine))) == 1


def capture_with(group: Any, capture: Callable[[], Captured]) -> tuple[Captured, Any]:
    """(what `capture` returns here, the group if its ranks can have one plan).

    The graph that is planned hangs on the values of each rank's own batch where the model has islands (what they hold for their backward pass),
    or branches on values that are not alike: each rank plans alone then.

    Raises:
        Error: the capture of another rank failed.
    """
    if group is None:
        return capture(), None
    try:
        captured = capture()
    except Exception as error:
        gather(group, {"error": str(error)})  # the others wait for this
        raise
    found = gather(group, {"islands": len(captured.islands), "outcomes": outcomes(captured)})
    for rank, other in enumerate(found):
        if "error" in other:
            raise Error(f"rank {rank} failed while capturing: {other['error']}")
    together = not any(other["islands"] for other in found) and all(other["outcomes"] == found[0]["outcomes"] for other in found)
    return captured, group if together else None


def outcomes(captured: Captured) -> str:
    """Of the values that the model's code reads."""
    decisions = captured.conditions.decisions if captured.conditions else []
    return hashlib.sha256(repr([decision.outcome for decision in decisions]).encode()).hexdigest()


class DistributedSession(ModuleSession):
    """Rank 0 measures and plans; the others take what it found, and all compare what they have.

    Times measured by each rank alone would differ and so would plans. What the callers hold is agreed on once, before the
    second step. A better plan is looked for by rank 0, beside the training; now and then the ranks meet, and when it is
    found, all take it before the same step, or none does. Planned again later, or for other shapes, a rank plans alone: it must
    not wait for ranks that have no reason to. Plans may then differ; numbers do not.
    """

    def __init__(self, captured, options, caller, group):
        self.group = group
        self.first = dist.get_rank(group) == 0
        self.planned = False
        self.said = False
        self.meets = False  # until the search of rank 0 has ended
        if self.first:
            self.measure_for_all(captured, options, caller)
        else:
            self.record_as_measured(captured, options, caller)

    def measure_for_all(self, captured, options, caller):
        try:
            if cache_folder(options.cache) is None or not self.measure_with_cache(captured, options, caller):
                with own_file() as own:
                    super().__init__(captured, options, caller, measurements=own)
                    self.say_measured()
        except Exception as error:
            if not self.said:
                self.say({"error": str(error)})  # the others wait for this
            raise

    def measure_with_cache(self, captured, options, caller):
        """False where the cache cannot be used, so that there is no file to be sent."""
        super().__init__(captured, options, caller)
        if not os.path.exists(self.measurements):
            return False
        self.say_measured()
        return True

    def say_measured(self):
        self.say({"profile": read_text(self.measurements), "link": self.link})

    def record_as_measured(self, captured, options, caller):
        measured = self.hear("measuring")
        with own_file() as own:
            pathlib.Path(own).write_text(measured["profile"])
            super().__init__(captured, options, caller, measurements=own, link=tuple(measured["link"]))

    def plan(self):
        if self.planned:
            return super().plan()
        self.planned = True
        if self.first:
            self.plan_for_all()
            return self.compare(self.hash)
        found = self.hear("planning")
        try:
            self.take_stored_plan(found["plan"])
        except Error as error:
            self.compare(f"none: {error}")  # the others wait for this
        self.meets = found["meets"]
        self.settle()
        self.compare(self.hash)

    def plan_for_all(self):
        try:
            super().plan()
        except Exception as error:
            self.say({"error": str(error)})
            raise
        self.meets = self.settings.background_seconds(self.kind == "cpu") > 0 and not self.report.proven_best
        self.say({"plan": self.stored_plan(), "meets": self.meets})

    def search_beside(self):
        if self.first and self.meets:
            super().search_beside()

    def take_better_plan(self, number):
        """Not alone: meet() does it."""
        return False

    def meet(self, number: int, may_swap: bool) -> bool:
        """Before step `number` of all ranks. True when they have taken a better plan, which is to be compiled; a rank that
        cannot swap now, or does not have the room, keeps the others from it.
        """
        if not self.meets:
            return False
        before = self.stored_plan()
        found = self.news_for_all(number) if self.first else self.hear("searching")
        self.meets = found["state"] == "searching"
        return found["state"] == "found" and self.take_together(found, before, may_swap)

    def news_for_all(self, number):
        try:
            found = self.news(number)
        except Exception as error:
            self.say({"error": str(error)})  # the others wait for this
            raise
        self.say(found)
        return found

    def news(self, number):
        """What rank 0 reports; it has taken the plan that it reports."""
        if not self.caller.is_known() or (self.search is not None and not self.search.ended):
            return {"state": "searching"}
        if not super().take_better_plan(number):
            return {"state": "nothing"}
        return {"state": "found", "plan": self.stored_plan()}

    def take_together(self, found, before, may_swap):
        mine = self.hash_with(found) if may_swap else None
        votes = self.gather(mine)
        if mine is not None and set(votes) == {mine}:
            return True
        self.take_stored_plan(before)
        return False

    def hash_with(self, found):
        """Of the plan that was found, now this rank's; None where it is not for this rank."""
        self.release()
        try:
            self.take_stored_plan(found["plan"])
        except Error:
            return None
        return self.hash if self.fits else None

    def say(self, message):
        self.said = True
        dist.broadcast_object_list([json.dumps(message)], group_src=0, group=self.group)

    def hear(self, doing):
        box: list[Any] = [None]
        dist.broadcast_object_list(box, group_src=0, group=self.group)
        message = json.loads(box[0])
        if "error" in message:
            raise Error(f"rank 0 failed while {doing}: {message['error']}")
        return message

    @property
    def hash(self):
        text = f"{self.fingerprint} {self.plan_json()}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def agree(self) -> bool:
        """On what the caller holds, at most; True when there has to be another plan, which is made when asked for: for all ranks or
        for none, also where one had to plan alone before its first step.
        """
        self.caller.bytes = max(self.gather(self.caller.bytes))
        plans = self.gather(self.hash if self.fits else None)
        self.planned = plans[0] is not None and len(set(plans)) == 1
        return not self.planned

    def gather(self, mine):
        return gather(self.group, mine)

    def compare(self, mine):
        found = self.gather(mine)
        for rank, other in enumerate(found):
            if other != found[0]:
                raise Error(
                    f"rank {rank} has plan {other}, rank 0 has {found[0]}; expected the same model, inputs and budget on every rank")


@contextlib.contextmanager
def own_file():
    """The name of a file in a folder that no other user may use, as measurements are read only there."""
    with tempfile.TemporaryDirectory(prefix="regen-profile-") as folder:
        yield os.path.join(folder, "profile.json")


def read_text(path):
    with open(path) as file:
        return file.read()
