"""regen: trains PyTorch models under a byte budget, with the same gradients bit for bit."""

from regen._runtime import BudgetError, RegenError
from regen import backend, capture, errors, share  # noqa: F401  the backend registers itself with torch.compile
from regen.capture import Captured
from regen.check import CheckError, check
from regen.errors import CaptureError
from regen.fit import Fit, will_it_fit
from regen.step import step
from regen.wrap import wrap
from regen import share  # noqa: E402  uses all of the above

__all__ = ["BudgetError", "CaptureError", "Captured", "CheckError", "Fit", "RegenError", "capture", "check", "errors", "share", "step", "will_it_fit", "wrap"]
