"""Is this installation whole? ``regen doctor`` asks, and so may a program: ``regen_doctor.examine()``.

Apart from the package `regen`, because that cannot be imported where its runtime does not fit the torch that is installed, and to say so is
what this is for.
"""

from regen_doctor.check import Check, Status
from regen_doctor.examination import examine

__all__ = ["Check", "Status", "examine"]
