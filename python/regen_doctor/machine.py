"""The device, memory, limits, the cache folder and the daemon."""

import json
import os
import pathlib
import resource
import shutil
import stat

from regen_doctor.check import Check, Status
from regen_doctor.child import run

FEWEST_FILES = 1024
LEAST_SHARED_MEMORY = 1 << 30  # Docker gives 64 MiB
LEAST_DISK = 1 << 30
DRIVER = pathlib.Path("/proc/driver/nvidia/version")
NODES = pathlib.Path("/dev")


def amount(number: float) -> str:
    """Bytes as people write them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            break
        number /= 1024
    return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"


def cuda(answer: dict | None, driver: pathlib.Path = DRIVER, nodes: pathlib.Path = NODES) -> Check:
    """The GPUs that torch can use. Without one regen plans, and runs on the CPU."""
    devices = answer["devices"] if answer else []
    if answer and devices:
        found = "; ".join(f"{device['name']}, {amount(device['free'])} of {amount(device['total'])} free" for device in devices)
        return Check("cuda", Status.OK, f"CUDA {answer['cuda']}: {found}")
    if not driver.exists():
        return Check("cuda", Status.ABSENT, "no NVIDIA driver", "steps run on the CPU; plans can be made for any device (--device)")
    if answer and answer["cuda"] is None:
        return Check("cuda", Status.WARNING, "an NVIDIA driver, but a torch without CUDA", "install a torch with CUDA: https://pytorch.org/get-started")
    closed = [node for node in nodes.glob("nvidia*") if node.is_char_device() and not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        found = f"an NVIDIA driver, but no permission for {', '.join(str(node) for node in sorted(closed))}"
        return Check("cuda", Status.WARNING, found, "join the group that they belong to (`ls -l` says which), or ask the administrator")
    return Check("cuda", Status.WARNING, "an NVIDIA driver, but torch finds no device", "see nvidia-smi, CUDA_VISIBLE_DEVICES, and the container's --gpus")


def memory() -> Check:
    """Of the host, which is where moved tensors go."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Check("host memory", Status.OK, f"{amount(pages)}; --host-budget limits what is moved there")


def files() -> Check:
    """Descriptors that a process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FEWEST_FILES:
        return Check("open files", Status.WARNING, f"at most {soft}", f"a daemon with many jobs needs more: ulimit -n {FEWEST_FILES}")
    return Check("open files", Status.OK, "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft}")


def shared_memory(folder: str = "/dev/shm") -> Check:
    """Where shared input keeps its batches."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check("shared memory", Status.ABSENT, f"{folder}: {error.strerror}", "only for shared input")
    if free < LEAST_SHARED_MEMORY:
        return Check("shared memory", Status.WARNING, f"{amount(free)} free in {folder}", "too little for shared input: docker run --shm-size 8g")
    return Check("shared memory", Status.OK, f"{amount(free)} free in {folder}")


def existing_parent(path: pathlib.Path) -> pathlib.Path:
    """The folder in which `path` could be made."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def cache(folder: str | os.PathLike[str] | None = None, user: int | None = None) -> Check:
    """The folder of measurements and plans: one that others may write to, or that is another user's, is not used."""
    path = pathlib.Path(folder or os.environ.get("REGEN_CACHE") or os.path.expanduser("~/.cache/regen"))
    user = os.getuid() if user is None else user
    if not path.exists():
        parent = existing_parent(path)
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            return Check("cache", Status.WARNING, f"{path} cannot be made in {parent}", "every start measures anew: name a folder of yours in REGEN_CACHE")
        return Check("cache", Status.OK, f"{path}, not made yet")
    found = path.stat()
    if not stat.S_ISDIR(found.st_mode):
        return Check("cache", Status.WARNING, f"{path} is no folder", "it is not used: remove it, or name a folder in REGEN_CACHE")
    if found.st_uid != user:
        return Check("cache", Status.WARNING, f"{path} belongs to user {found.st_uid}", "it is not used: name a folder of yours in REGEN_CACHE")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return Check("cache", Status.WARNING, f"others may write to {path}", f"it is not used: chmod go-w {path}")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return Check("cache", Status.WARNING, f"{path} cannot be written", f"every start measures anew: chmod u+rwx {path}")
    free = shutil.disk_usage(path).free
    if free < LEAST_DISK:
        return Check("cache", Status.WARNING, f"{path}: {amount(free)} left on its disk", "make room, or name another folder in REGEN_CACHE")
    sizes = [entry.stat().st_size for entry in path.rglob("*") if entry.is_file()]
    return Check("cache", Status.OK, f"{path}, {len(sizes)} files, {amount(sum(sizes))}")


def daemon(program: dict, user: int | None = None) -> Check:
    """The sharing daemon, if there is one, and whether this user may use it."""
    socket = program.get("socket")
    if not socket or not program.get("path"):
        return Check("daemon", Status.ABSENT, "not asked for, since `regen doctor` was not started by the program", "run `regen doctor`")
    problem = unsafe_folder(pathlib.Path(socket).parent, os.getuid() if user is None else user)
    if problem:
        return Check("daemon", Status.WARNING, problem, "remove it, or name another socket in REGEN_SHARE_SOCKET")
    if not os.path.exists(socket):
        return Check("daemon", Status.ABSENT, f"none at {socket}", "only to share a device: `regen share serve`")
    if not os.access(socket, os.R_OK | os.W_OK):
        advice = "only its owner may use it: `regen share serve --mode 660` opens it to the group"
        return Check("daemon", Status.WARNING, f"no permission for {socket}", advice)
    output, reason = run([program["path"], "share", "status", "--json", "--socket", socket], 20)
    if output is None:
        return Check("daemon", Status.WARNING, reason, f"start it again, `regen share serve`, or remove {socket}")
    devices = json.loads(output)["devices"]
    jobs, newcomers = (sum(len(device[key]) for device in devices) for key in ("jobs", "newcomers"))
    waiting = f", {newcomers} waiting for memory" if newcomers else ""
    return Check("daemon", Status.OK, f"{socket}, {counted(len(devices), 'device')}, {counted(jobs, 'job')}{waiting}")


def unsafe_folder(folder: pathlib.Path, user: int) -> str:
    """Why no daemon of this user may have its socket there; empty: it may. Folders of all users, such as /tmp, are none of a daemon."""
    if not folder.is_dir() or folder.stat().st_mode & stat.S_ISVTX:
        return ""
    found = folder.stat()
    if found.st_uid not in (user, 0):
        return f"{folder} belongs to user {found.st_uid}"
    return f"others may write to {folder}" if found.st_mode & stat.S_IWOTH else ""


def counted(count: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
