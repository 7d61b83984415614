"""One plan for all ranks of a job."""

import hashlib
import json
import os
import tempfile

import torch.distributed as dist

from regen import _runtime
from regen.wrap_runner import WrapPlan


def members(group):
    """The process group whose ranks plan together; None when there is nobody to plan with."""
    if group is None or not dist.is_available() or not dist.is_initialized():
        return None
    group = dist.group.WORLD if group == "default" else group
    return group if dist.get_world_size(group) > 1 else None


class SharedPlan(WrapPlan):
    """Rank 0 measures and plans; the others take what it found, and all compare what they have.

    Times measured by each rank alone would differ and so would plans. What the callers hold is agreed on once, before the
    second step. Planned again later, or for other shapes, a rank plans alone: it must not wait for ranks that have no
    reason to. Plans may then differ; numbers do not."""

    def __init__(self, captured, settings, caller, group):
        self.group = group
        self.first = dist.get_rank(group) == 0
        self.planned = False
        self.said = False
        self.heard_link = None  # as rank 0 measured it
        try:
            super().__init__(captured, settings, caller)
        except Exception as error:
            if self.first and not self.said:
                self.say({"error": str(error)})
            raise
        if self.first:
            self.say({"profile": read_text(self.path), "link": self.link()})
        elif self.path is not None:
            os.unlink(self.path)

    @property
    def background_seconds(self):
        """None: ranks would find other plans at other steps, and to agree on one each of them would have to wait."""
        return 0.0

    def profile_path(self):
        """Others wait here until rank 0 has measured."""
        if self.first:
            self.path = super().profile_path() or temporary_name()
        else:
            self.path = temporary_name()
            measured = self.hear("measuring")
            self.heard_link = tuple(measured["link"])
            with open(self.path, "w") as file:
                file.write(measured["profile"])
        return self.path

    def link(self):
        return self.heard_link or super().link()

    def plan(self):
        if self.planned:
            return super().plan()
        self.planned = True
        if self.first:
            self.plan_for_all()
            return self.compare(self.hash)
        found = self.hear("planning")
        try:
            self.step.set_plan(found["plan"])
        except _runtime.RegenError as error:
            self.compare(f"none: {error}")  # the others wait for this
        self.report = found["report"]
        self.planned_for = self.plan_key()
        self.compare(self.hash)

    def plan_for_all(self):
        try:
            super().plan()
        except Exception as error:
            self.say({"error": str(error)})
            raise
        self.say({"plan": self.step.plan_json(), "report": self.report})

    def say(self, message):
        self.said = True
        dist.broadcast_object_list([json.dumps(message)], group_src=0, group=self.group)

    def hear(self, doing):
        box = [None]
        dist.broadcast_object_list(box, group_src=0, group=self.group)
        message = json.loads(box[0])
        if "error" in message:
            raise _runtime.RegenError(f"rank 0 failed while {doing}: {message['error']}")
        return message

    @property
    def hash(self):
        text = f"{self.step.fingerprint} {self.step.plan_json()}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def agree(self):
        """On what the caller holds, at most; True when there has to be another plan, which is made when asked for."""
        self.caller.bytes = max(self.gather(self.caller.bytes))
        again = self.predicted_peak > self.gross_budget
        self.planned = not again
        return again

    def gather(self, mine):
        found = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(found, mine, group=self.group)
        return found

    def compare(self, mine):
        found = self.gather(mine)
        for rank, other in enumerate(found):
            if other != found[0]:
                raise _runtime.RegenError(
                    f"rank {rank} has plan {other}, rank 0 has {found[0]}; expected the same model, inputs and budget on every rank")


def temporary_name():
    handle, path = tempfile.mkstemp(prefix="regen-profile-", suffix=".json")
    os.close(handle)
    os.unlink(path)
    return path


def read_text(path):
    with open(path) as file:
        return file.read()
