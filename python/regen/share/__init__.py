"""Several jobs on one device, one reader for many jobs, and state that moves, leaves and survives (docs/sharing.md)."""

from regen._session.job import hold, job
from regen.share._inference import infer
from regen.share._loader import SharedLoader, loader
from regen.share._resume import Resumable, resumable
from regen.share._state import PackedState

__all__ = ["PackedState", "Resumable", "SharedLoader", "hold", "infer", "job", "loader", "resumable"]
