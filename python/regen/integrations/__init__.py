"""regen inside other programs."""
