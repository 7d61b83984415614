"""regen inside other programs. A framework is imported when its module here is first asked for, never by `import regen`."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regen.integrations import hugging_face, lightning

LAZY = ("hugging_face", "lightning")


def __getattr__(name: str) -> Any:
    """`regen.integrations.hugging_face` after `import regen` alone."""
    if name in LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["hugging_face", "lightning"]
