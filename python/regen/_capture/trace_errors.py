"""Where in the user's code something happened."""

import os
import sysconfig
import traceback

TORCH_FOLDER = os.sep + os.path.join("site-packages", "torch") + os.sep
PYTHON_FOLDER = sysconfig.get_paths()["stdlib"] + os.sep
PACKAGES = os.sep + "site-packages" + os.sep  # below Python's own folder, but a user's own models may be installed there
REGEN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def short_location(path, line):
    """`model.py:31`: enough to find the line, short enough for a message."""
    return f"{os.path.basename(path)}:{line}"


def is_user_file(path):
    """Whether a line of this file says more of a model than one of torch's, Python's or regen's own."""
    if TORCH_FOLDER in path or path.startswith((REGEN_FOLDER, "<")):
        return False
    return not path.startswith(PYTHON_FOLDER) or PACKAGES in path


def place_in_traceback(error):
    """The innermost line of a forward method of the user's own, or ''."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if is_user_file(frame.filename) and frame.name == "forward"]
    return short_location(users[-1].filename, users[-1].lineno) if users else ""
