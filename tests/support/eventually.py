"""Waiting for what other processes do."""

import time


def eventually(condition, seconds=60):
    """Whether it comes true within a time that only a broken program needs."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True
