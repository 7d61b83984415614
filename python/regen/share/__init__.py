"""Several jobs on one device, one reader for many jobs, and state that moves, leaves and survives."""

from regen._session.job import hold, job
from regen.share._inference import Inference, infer
from regen.share._loader import SharedLoader, loader
from regen.share._resume import Resumable, resumable
from regen.share._state import PackedState

__all__ = ["Inference", "PackedState", "Resumable", "SharedLoader", "hold", "infer", "job", "loader", "resumable"]
