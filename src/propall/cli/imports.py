"""Importing what a command needs."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Import modules without looking for garbage among them, now and later.

    PyTorch, scikit-learn and pandas create several hundred thousand objects that live as long as the process.
    Searching them for garbage takes a sixth of the time of their import, and as long again at exit. Only the
    first import in a process is treated like this: a process that has these modules may also have garbage.

    Examples:
        >>> with without_garbage_collection():
        ...     import torch
        >>> gc.isenabled()
        True
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
