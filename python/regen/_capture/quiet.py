"""What PyTorch's tracing machinery does beside tracing, switched off for a while."""

import contextlib
import gc
import logging
import warnings
from collections.abc import Iterator

NOISY_LOGGERS = ("torch._subclasses.fake_tensor", "torch._dynamo", "torch._functorch")


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Capturing makes so many objects that Python looks for garbage all the time, and finds next to none: a sixth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def quiet_tracer() -> Iterator[None]:
    """The tracer logs errors that are about to be raised anyway; one line from us is enough."""
    loggers = [logging.getLogger(name) for name in NOISY_LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)
