"""regen: trains PyTorch models under a byte budget, with the same gradients bit for bit."""

from regen.errors import BudgetError, CaptureError, CheckError, Error, RegenError
from regen._capture.capture import Captured
from regen._check import check
from regen._fit import Fit, will_it_fit
from regen._step import step
from regen._wrap import wrap
from regen import capture, errors, share
from regen.integrations import torch_compile  # noqa: F401  registers the backend of torch.compile

__all__ = [
    "BudgetError", "CaptureError", "Captured", "CheckError", "Error", "Fit", "RegenError", "capture", "check", "errors", "share", "step",
    "will_it_fit", "wrap"]
