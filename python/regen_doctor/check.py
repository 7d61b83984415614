"""What one check says."""

import dataclasses
import enum


class Status(str, enum.Enum):
    """How much what was found matters."""

    OK = "ok"
    ABSENT = "absent"  # not there, and needed for some uses only
    WARNING = "warning"  # regen works, but less well than it could
    PROBLEM = "problem"  # regen does not work here


@dataclasses.dataclass(frozen=True)
class Check:
    """One line of the examination: what was looked at, what was found, and what to do where that is not good."""

    name: str
    status: Status
    found: str
    advice: str = ""

    def as_json(self) -> dict[str, str]:
        """The fields of `regen doctor --json`."""
        return {"name": self.name, "status": self.status.value, "found": self.found, "advice": self.advice}
