"""regen: trains PyTorch models under a byte budget, with the same gradients bit for bit."""

from regen import capture, errors
from regen.capture import Captured
from regen.errors import CaptureError

__all__ = ["CaptureError", "Captured", "capture", "errors"]
