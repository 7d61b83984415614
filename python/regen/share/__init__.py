"""Several jobs on one device, and one reader for many jobs (docs/sharing.md)."""

from regen.share.loader import SharedLoader, loader

__all__ = ["SharedLoader", "loader"]
