"""Several jobs on one device, one reader for many jobs, and state that moves, leaves and survives (docs/sharing.md)."""

from regen.job import hold, job
from regen.share.inference import infer
from regen.share.loader import SharedLoader, loader
from regen.share.resume import Resumable, resumable
from regen.share.state import PackedState

__all__ = ["PackedState", "Resumable", "SharedLoader", "hold", "infer", "job", "loader", "resumable"]
