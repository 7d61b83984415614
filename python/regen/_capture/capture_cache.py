"""Joint graphs from an earlier process: a second start traces the Python code (Dynamo) and no more.

What AOTAutograd makes of Dynamo's graph, converted, is kept under a key that covers the graph and all that its tracing looks at
(`graph_key.py`). A file that is damaged is as good as none.
"""

import os

from regen._capture.cache_folder import cache_folder, drop_oldest, write_whole
from regen._capture.conversion_file import CannotKeep, from_bytes, to_bytes
from regen._capture.graph_key import NoKey, graph_key
from regen._capture.graph_to_program import JointConverter
from regen._capture.joint_graph import trace_joint_graph
from regen._capture.program_builder import ProgramBuilder

# Of all kept graphs together; that of a ResNet-50 has half a megabyte.
MOST_BYTES = 256 << 20


def converted(flat, names, name, device, cache):
    """(conversion of `flat` and its backward pass, how the model's outputs are nested)."""
    path = path_of(flat, names, cache)
    conversion = None if path is None else kept(path, name, device, flat)
    if conversion is not None:
        return conversion, flat.out_spec
    joint = trace_joint_graph(flat, name)
    conversion = JointConverter(joint, ProgramBuilder(name, device), names).convert()
    if path is not None and joint.out_spec == flat.out_spec:
        keep(path, conversion, flat.owned)
    return conversion, joint.out_spec


def path_of(flat, names, cache):
    folder = cache_folder(cache)
    if folder is None or not flat.gradients:
        return None
    try:
        return folder / f"graph-{graph_key(flat, names)}.json"
    except NoKey:
        return None


def kept(path, name, device, flat):
    try:
        conversion = from_bytes(path.read_bytes(), name, device, flat)
        os.utime(path)  # used last, dropped last
    except OSError:
        return None
    return conversion


def keep(path, conversion, owned):
    """Where there is no room, or no right to write, the next start takes as long as this one."""
    try:
        write_whole(path, to_bytes(conversion, owned))
        drop_oldest(path.parent, "graph-*.json", MOST_BYTES)
        drop_oldest(path.parent, ".graph-*.tmp", MOST_BYTES)
    except (OSError, CannotKeep):
        pass
