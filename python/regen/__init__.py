"""regen: trains PyTorch models under a byte budget, with the same gradients bit for bit."""

from regen import capture, errors, integrations, options, share
from regen._capture.capture import Captured
from regen._check import check
from regen._fit import Fit, will_it_fit
from regen._progress.events import ProgressEvent, ProgressHandle, on_progress
from regen._session.report import PlanReport
from regen._session.report_page import ReportPage
from regen._step import TrainingStep, step
from regen._version import version
from regen._wrap import WrappedModule, wrap
from regen.errors import BudgetError, CaptureError, CheckError, Error, MissingPackageError, OptionError, OptionTypeError, RegenError, UsageError
from regen.integrations import torch_compile as _backend  # noqa: F401  registers itself with torch.compile

__version__ = version()

__all__ = [
    "BudgetError",
    "CaptureError",
    "Captured",
    "CheckError",
    "Error",
    "Fit",
    "MissingPackageError",
    "OptionError",
    "OptionTypeError",
    "PlanReport",
    "ProgressEvent",
    "ProgressHandle",
    "RegenError",
    "ReportPage",
    "TrainingStep",
    "UsageError",
    "WrappedModule",
    "__version__",
    "capture",
    "check",
    "errors",
    "integrations",
    "on_progress",
    "options",
    "share",
    "step",
    "will_it_fit",
    "wrap",
]
