"""The job that this process is, where `regen share run` has started it."""

import contextlib
import os

import torch

from regen import _runtime

_ASKED = False  # whether the environment was looked at
_JOB = None
_LEFT = []  # jobs of the process that this one was forked from: their threads are missing here, so they must not be ended


def job(required=False):
    """This process's job, which registers with the daemon when it is first asked for; None in a program that was not
    started by `regen share run`, or an error where it is `required`."""
    global _ASKED, _JOB
    if not _ASKED:
        _JOB = _runtime.join_job()
        _ASKED = True
    if _JOB is None and required:
        raise _runtime.RegenError(
            "this program is no job: REGEN_SHARE_SOCKET and REGEN_SHARE_NAME are not both set; expected it to be started by "
            "`regen share run --memory BYTES -- COMMAND`")
    return _JOB


def hold(gives_back=False):
    """Around device work of a job that is not a step under a plan (evaluation, plain PyTorch): the device is this job's inside.
    Planned steps inside still give way. Does nothing in a program that is no job.

    `gives_back`: the work is complete at the end, and whoever waits gets the device at once."""
    this = job()
    return NOTHING if this is None else Hold(this, gives_back)


NOTHING = contextlib.nullcontext()


class Hold:
    def __init__(self, this, gives_back):
        self.job, self.gives_back = this, gives_back

    def __enter__(self):
        self.job.begin()

    def __exit__(self, *error):
        busy = torch.cuda.is_initialized() and not self.gives_back
        self.job.end(f"cuda:{torch.cuda.current_device()}" if busy else "", self.gives_back)


def job_memory():
    """The limit of this process's job; None when it is no job."""
    return None if job() is None else _JOB.memory


def leave_to_parent():
    """A forked child is no job; and were it to keep the connection, the daemon would not notice when the parent dies."""
    global _ASKED, _JOB
    if _JOB is not None:
        _JOB.abandon()
        _LEFT.append(_JOB)
    _ASKED, _JOB = True, None


os.register_at_fork(after_in_child=leave_to_parent)
