"""One line below the cell of a notebook, while work lasts."""

import html
import sys
from typing import Any

SHOWN_AFTER = 1.0  # seconds of work


def shell() -> Any:
    """Of IPython, where this is a notebook; else None."""
    ipython = sys.modules.get("IPython")
    found = None if ipython is None else ipython.get_ipython()
    return found if hasattr(found, "kernel") else None


def is_here() -> bool:
    """Whether output goes to a notebook."""
    return shell() is not None


class Line:
    """Gets events; shows those of the work that began last."""

    def __init__(self) -> None:
        self.handle: Any = None
        self.shown = 0  # number of the work that the line is about

    def __call__(self, event: Any, /) -> None:
        """Shows an event, or removes the line."""
        if event.background or (event.ended and event.number != self.shown):
            return
        if event.ended:
            self.show("")
            self.handle, self.shown = None, 0
        elif event.seconds >= SHOWN_AFTER and event.number >= self.shown:
            self.shown = event.number
            self.show(f"<code>regen: {html.escape(event.text)}</code>")

    def show(self, text: str) -> None:
        display = sys.modules["IPython"].display
        if self.handle is None:
            self.handle = display.display(display.HTML(text), display_id=True)
        else:
            self.handle.update(display.HTML(text))
