"""The version of the package."""

import pathlib
import re
from importlib import metadata


def version() -> str:
    """That of the installed package; in a checkout, that of the CMake project."""
    listed = pathlib.Path(__file__).resolve().parents[2] / "CMakeLists.txt"
    if listed.is_file():
        found = re.search(r"project\(regen VERSION ([0-9.]+)", listed.read_text())
        if found:
            return found[1]
    try:
        return metadata.version("regen")
    except metadata.PackageNotFoundError:
        return "unknown"
