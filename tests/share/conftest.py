"""A daemon of its own for each test."""

import signal

import pytest

from regen_program import regen  # noqa: F401, a fixture
from share_daemon import Daemon


@pytest.fixture
def daemon(tmp_path):
    running = Daemon(tmp_path, "--device", "gpu0:16GiB", "--device", "gpu1:1000")
    yield running
    running.stop(signal.SIGKILL)
    running.process.stdout.close()
    running.process.stderr.close()
