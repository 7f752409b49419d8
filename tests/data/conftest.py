"""Published data sets, for tests marked `realdata`."""

from collections.abc import Callable
from functools import cache

import pytest

from propall.data import Source, load
from propall.data.files import MissingDataError

_read = cache(load)


@pytest.fixture
def published() -> Callable[[str], Source]:
    """Load a data set once; skip the test if its files are not under PROPALL_DATA."""

    def read(name: str) -> Source:
        try:
            return _read(name)
        except MissingDataError as missing:
            pytest.skip(str(missing).splitlines()[0])

    return read
