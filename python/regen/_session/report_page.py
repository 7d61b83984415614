"""What a plan does, as a page for a browser."""

import json
import os
from typing import Any

from regen import _runtime

FRAME_HEIGHT = 900  # pixels of the page in a notebook


class ReportPage:
    """A report of a plan as one HTML page: what fills the memory, what the plan does, and what was measured. A notebook shows it by itself.

    Attributes:
        text: the data of the page as JSON (docs/reference/formats.md).
    """

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def data(self) -> dict[str, Any]:
        """The data of the page."""
        return json.loads(self.text)

    @property
    def html(self) -> str:
        """The page, which needs no other file and no network."""
        return _runtime.report_page(self.text)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page.

        Args:
            path: where the file goes; one that is there is replaced.

        Raises:
            Error: the file cannot be written.
        """
        _runtime.write_file(os.fspath(path), self.html)

    def __repr__(self) -> str:
        summary = self.data["plans"][0]["summary"]
        return f"<regen report: peak {_runtime.format_bytes(summary['predicted_bytes'])}; save(path) writes the page>"

    def _repr_html_(self) -> str:
        return _runtime.report_frame(self.text, FRAME_HEIGHT)
