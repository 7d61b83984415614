"""The job that this process is, where `regen share run` has started it."""

import contextlib
import os
from types import TracebackType
from typing import Literal, overload

import torch

from regen import _runtime
from regen._progress.work import watched
from regen.errors import Error

_ASKED = False  # whether the environment was looked at
_JOB: _runtime.Job | None = None
_LEFT: list[_runtime.Job] = []  # jobs of the process that this one was forked from: their threads are missing here, so they must not be ended


@overload
def job(required: Literal[True]) -> _runtime.Job: ...
@overload
def job(required: bool = False) -> _runtime.Job | None: ...
def job(required: bool = False) -> _runtime.Job | None:
    """The job that this process is. It registers with the daemon when it is first asked for.

    Args:
        required: whether it is an error that this process is no job.

    Returns:
        The job with its `name`, `memory` (bytes), `priority`, `weight`, `pauses` and `returns`; None in a program that was not started by
        `regen share run`.

    Raises:
        Error: the daemon cannot be reached, or there is no job and one is required.
    """
    global _ASKED, _JOB
    if not _ASKED:
        with watched():  # it may have to wait for memory
            _JOB = _runtime.join_job()
        _ASKED = True
    if _JOB is None and required:
        raise Error(
            "this program is no job: REGEN_SHARE_SOCKET and REGEN_SHARE_NAME are not both set; expected it to be started by "
            "`regen share run --memory BYTES -- COMMAND`")
    return _JOB


def hold(gives_back: bool = False) -> contextlib.AbstractContextManager[None]:
    """Around device work of a job that is not a step under a plan (evaluation, plain PyTorch): the device is this job's inside.

    Planned steps inside still give way. Does nothing in a program that is no job.

    Args:
        gives_back: the work is complete at the end, and a job that waits gets the device at once.

    Returns:
        A context manager.
    """
    this = job()
    return NOTHING if this is None else Hold(this, gives_back)


NOTHING = contextlib.nullcontext()


class Hold(contextlib.AbstractContextManager[None]):
    """The device is the job's inside."""

    def __init__(self, this: _runtime.Job, gives_back: bool) -> None:
        self.job, self.gives_back = this, gives_back

    def __enter__(self) -> None:
        self.job.begin()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /) -> None:
        busy = torch.cuda.is_initialized() and not self.gives_back
        self.job.end(f"cuda:{torch.cuda.current_device()}" if busy else "", self.gives_back)


def job_memory() -> int | None:
    """The limit of this process's job; None when it is no job."""
    this = job()
    return None if this is None else this.memory


def leave_to_parent() -> None:
    """A forked child is no job; and were it to keep the connection, the daemon would not see the end of the parent."""
    global _ASKED, _JOB
    if _JOB is not None:
        _JOB.abandon()
        _LEFT.append(_JOB)
    _ASKED, _JOB = True, None


os.register_at_fork(after_in_child=leave_to_parent)
