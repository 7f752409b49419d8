"""Malformed .mat files are refused before SciPy parses them."""

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import loadmat, savemat
from scipy.sparse import csc_matrix

from propall.data.mat_structure import check_structure

NAMES = ("data", "target")


def mat(compressed: bool = False, **fields: Any) -> bytes:
    out = io.BytesIO()
    savemat(out, fields, do_compression=compressed)
    return out.getvalue()


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    "matrix",
    [
        np.arange(12.0).reshape(3, 4),
        np.arange(12, dtype=np.uint8).reshape(3, 4),
        np.zeros((0, 3)),
        np.ones((2, 2)) * 1j,
        csc_matrix(np.eye(4)),
        csc_matrix((3, 5)),
        np.ones((3, 4), dtype=bool),
    ],
)
def test_valid_files_pass(matrix: Any, compressed: bool) -> None:
    check_structure(mat(compressed, data=matrix, note="text", cells=np.array([1, "a"], dtype=object)), NAMES)


VALID = mat(data=np.arange(6.0).reshape(2, 3), target=csc_matrix(np.eye(3)))


@given(st.integers(0, len(VALID) - 1), st.binary(min_size=1, max_size=8), st.booleans())
def test_what_passes_is_parsed(at: int, inserted: bytes, replaces: bool) -> None:
    """SciPy crashes on some of these files; whatever passes, it must read without a crash."""
    data = VALID[:at] + inserted + VALID[at + len(inserted) * replaces :]
    try:
        check_structure(data, NAMES)
        stored = loadmat(io.BytesIO(data), variable_names=NAMES)
    except Exception:
        return
    for name in NAMES:
        if hasattr(stored.get(name), "toarray"):
            stored[name].toarray()


def test_sizes_are_checked_before_memory_is_taken() -> None:
    rows = np.int32([0, 1, 2]).tobytes()
    at = VALID.index(rows, 128)
    for bad in (b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff"):
        with pytest.raises(ValueError, match="sparse matrix"):
            check_structure(VALID[: at + 4] + bad + VALID[at + 8 :], NAMES)
    huge = VALID.replace(np.int32([3, 3]).tobytes(), np.int32([300_000, 300_000]).tobytes())
    with pytest.raises(ValueError, match="a sparse matrix has wrong dimensions"):
        check_structure(huge, NAMES)
    with pytest.raises(ValueError, match="no header of version 5"):
        check_structure(VALID[:50], NAMES)
