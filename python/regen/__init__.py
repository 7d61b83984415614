"""regen: trains PyTorch models under a byte budget, with the same gradients bit for bit."""

from regen.capture import Captured, capture
from regen.errors import CaptureError
from regen.program_file import save

__all__ = ["CaptureError", "Captured", "capture", "save"]
