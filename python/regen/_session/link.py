"""How fast tensors travel between the host and a device: measured once, remembered for the process and on disk."""

import json

from regen import _runtime
from regen._capture.cache_folder import write_whole
from regen._session.job import hold

MEASURED = {}  # device -> bytes per second to the host, to the device, both together


def measured_link(device, folder):
    """`folder` holds the measurement of an earlier process, or gets this one's; None: neither."""
    if device not in MEASURED:
        path = None if folder is None else folder / "links.json"
        known = stored_links(path)
        name = _runtime.device_name(device)
        if name not in known:
            with hold():
                known[name] = _runtime.measure_link(device)
            known = store_links(path, known)
        MEASURED[device] = tuple(known[name])
    return MEASURED[device]


def stored_links(path):
    """A file that cannot be read is as good as none: it is written again."""
    try:
        known = json.loads(path.read_text()) if path is not None else {}
    except (OSError, ValueError):
        return {}
    return {name: value for name, value in known.items() if is_link(value)} if isinstance(known, dict) else {}


def is_link(value):
    return isinstance(value, list) and len(value) == 3 and all(isinstance(x, float) and x > 0 for x in value)


def store_links(path, known):
    """What counts from now on: of processes that measure at the same time, what the first to get here has found, so that all plan alike."""
    if path is None:
        return known
    with _runtime.FolderLock(str(path.parent)):
        known = known | stored_links(path)
        write_whole(path, json.dumps(known).encode())
    return known
