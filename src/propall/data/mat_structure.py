"""Check the structure of a .mat file before it is parsed.

SciPy trusts the types, sizes and indices in a file; a damaged one can crash the interpreter or ask for
terabytes. Every element is therefore walked first: its type is known, its size is within the file, and the
dimensions of a matrix agree with its data.
"""

import math
import struct
import zlib
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

#: Bytes of one number of each data type.
_NUMBER_SIZES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8}
_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED, _UTF8 = 1, 5, 6, 14, 15, 16
#: Classes of arrays: sparse, and double to 64-bit integers.
_SPARSE, _NUMERIC = 5, range(6, 16)
_HEADER = 128
#: Most bytes of one unpacked matrix, and most numbers of a dense one.
MAX_BYTES, MAX_NUMBERS = 1 << 31, 1 << 28
_COMPLEX = 0x800


class _Element(NamedTuple):
    kind: int
    data: memoryview


def check_structure(data: bytes, names: Collection[str]) -> None:
    """Raise ValueError if a .mat file of version 5 to 7, or one of the named matrices, is malformed."""
    if len(data) < _HEADER or data[126:128] not in (b"IM", b"MI"):
        raise ValueError("it has no header of version 5 to 7; save it with -v7")
    order = "<" if data[126:128] == b"IM" else ">"
    version = struct.unpack_from(f"{order}H", data, 124)[0]
    if version != 0x0100:
        raise NotImplementedError(f"version {version:#06x}")
    for element in _elements(memoryview(data)[_HEADER:], order):
        if element.kind == _COMPRESSED:
            inner = memoryview(_unpacked(element.data))
            for matrix in _elements(inner, order):
                _check_matrix(matrix, names, order)
        else:
            _check_matrix(element, names, order)


def _elements(data: memoryview, order: str) -> Iterator[_Element]:
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise ValueError("it ends within a tag")
        kind, size = struct.unpack_from(f"{order}II", data, at)
        if kind >> 16:  # a small element: type and size share four bytes, up to four bytes of data follow
            kind, size = kind & 0xFFFF, kind >> 16
            start, end, step = at + 4, at + 4 + size, 8
            if size > 4:
                raise ValueError("a small element is too large")
        else:
            start, end = at + 8, at + 8 + size
            step = 8 + (size if kind == _COMPRESSED else -(-size // 8) * 8)
        if end > len(data):
            raise ValueError("an element is larger than the file")
        yield _Element(kind, data[start:end])
        at += step


def _unpacked(data: memoryview) -> bytes:
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(data, MAX_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not stream.eof:
        raise ValueError("a compressed matrix is cut off or too large")
    return unpacked


def _check_matrix(matrix: _Element, names: Collection[str], order: str) -> None:
    if matrix.kind != _MATRIX:
        raise ValueError(f"it has an element of type {matrix.kind} where a matrix was expected")
    parts = list(_elements(matrix.data, order))
    if len(parts) < 3 or parts[0].kind != _UINT32 or len(parts[0].data) != 8:
        raise ValueError("a matrix has no flags")
    flags, n_stored = struct.unpack(f"{order}II", parts[0].data)
    kind, is_complex = flags & 0xFF, bool(flags & _COMPLEX)
    shape = _integers(parts[1], order)
    if len(shape) < 2 or (shape < 0).any():
        raise ValueError("a matrix has no dimensions")
    if parts[2].kind not in (_INT8, _UTF8):
        raise ValueError("a matrix has no name")
    if bytes(parts[2].data).decode("utf-8", "replace") not in names:
        return  # not parsed
    values = parts[3:]
    if kind == _SPARSE:
        _check_sparse(shape, values, n_stored, order, is_complex)
    elif kind in _NUMERIC:
        n_numbers = math.prod(shape.tolist())
        if len(values) != 1 + is_complex or n_numbers > MAX_NUMBERS:
            raise ValueError("a matrix has no values or too many")
        for part in values:
            if _count(part) != n_numbers:
                raise ValueError("the size of a matrix does not agree with its values")
    else:
        raise ValueError(f"it has an array of class {kind}; only matrices of numbers can be read")


def _check_sparse(
    shape: np.ndarray, parts: list[_Element], n_stored: int, order: str, is_complex: bool
) -> None:
    if len(shape) != 2 or math.prod(shape.tolist()) > MAX_NUMBERS or len(parts) != 3 + is_complex:
        raise ValueError("a sparse matrix has wrong dimensions")
    rows, starts = _integers(parts[0], order), _integers(parts[1], order)
    if len(starts) != shape[1] + 1 or starts[0] != 0 or (np.diff(starts) < 0).any():
        raise ValueError("a sparse matrix has wrong columns")
    n_values = int(starts[-1])
    if n_values > len(rows) or any(_count(part) < n_values for part in parts[2:]):
        raise ValueError("a sparse matrix has too few values")
    if ((rows < 0) | (rows >= max(1, int(shape[0])))).any() or len(rows) > max(1, n_stored):
        raise ValueError("a sparse matrix has wrong rows")


def _integers(element: _Element, order: str) -> np.ndarray:
    if element.kind != _INT32 or len(element.data) % 4:
        raise ValueError("a matrix has dimensions or indices that are no integers")
    return np.frombuffer(element.data, f"{order}i4").astype(np.int64)


def _count(element: _Element) -> int:
    size = _NUMBER_SIZES.get(element.kind)
    if size is None or len(element.data) % size:
        raise ValueError(f"it has numbers of the unknown type {element.kind}")
    return len(element.data) // size
