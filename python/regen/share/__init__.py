"""Several jobs on one device, and state that moves, leaves and survives."""

from regen.share.resume import Resumable, resumable
from regen.share.state import PackedState

__all__ = ["PackedState", "Resumable", "resumable"]
