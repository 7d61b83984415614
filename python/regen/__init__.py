"""regen: trains PyTorch models under a byte budget, with the same gradients bit for bit."""

from regen._runtime import BudgetError, RegenError
from regen import capture, errors
from regen.capture import Captured
from regen.check import CheckError, check
from regen.errors import CaptureError
from regen.step import step
from regen.wrap import wrap

__all__ = ["BudgetError", "CaptureError", "Captured", "CheckError", "RegenError", "capture", "check", "errors", "step", "wrap"]
