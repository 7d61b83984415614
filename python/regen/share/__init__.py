"""Several jobs on one device (docs/sharing.md)."""

from regen.job import hold, job
from regen.share.inference import infer

__all__ = ["hold", "infer", "job"]
