"""The folder in which measurements and plans are kept from one process to the next."""

import os
import pathlib


def cache_folder(setting):
    """`setting`: that of `regen.options`. None where nothing is to be kept."""
    if setting is False:
        return None
    folder = pathlib.Path(setting or os.environ.get("REGEN_CACHE") or os.path.expanduser("~/.cache/regen"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
