"""The folder in which measurements and plans are kept from one process to the next."""

import os
import pathlib


def cache_folder(setting):
    """`setting`: that of `regen.options`. None where nothing is to be kept. The folder is made when something is written there."""
    if setting is False:
        return None
    return pathlib.Path(setting or os.environ.get("REGEN_CACHE") or os.path.expanduser("~/.cache/regen"))
