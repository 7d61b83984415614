"""Captured training steps as programs that `regen run` executes without Python (docs/reference/program-format.md)."""

from regen._capture.capture import Captured, capture, capture_inference, capture_step
from regen._capture.program_file import save

__all__ = ["Captured", "capture", "capture_inference", "capture_step", "save"]
