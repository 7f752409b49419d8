"""Golden files: finding and reading them, and the tolerances they are compared at."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

COPIES = Path(__file__).parent / "cases"

#: Fields that no case is compared on: they say where a case comes from, or what other code returns.
INFORMATION = {
    *("id", "name", "seed", "source", "note", "notes", "dtype", "conventions", "standardised"),
    *("K", "N", "n", "k", "sum", "train_true", "test_true", "checked_loss_diff", "public_code_loss"),
    *("katsura_pc_loss_same_inputs", "grad_ratio_to_katsura", "unbiased_scale", "plench_variant_loss"),
    *("contrastive_loss_reference_row_bug", "iman_davenport_F_no_tie_correction"),
}
INFORMATION_PREFIXES = ("libcll_", "reference_")


def folder() -> Path:
    """Where the golden files are: PROPALL_GOLDEN, or the copies beside this file."""
    return Path(os.environ.get("PROPALL_GOLDEN") or COPIES)


class Tolerance(NamedTuple):
    """|value - golden| <= atol + rtol |golden|, elementwise."""

    rtol: float
    atol: float


EXACT = Tolerance(0.0, 0.0)


def relative(tolerance: float, expected: Any) -> Tolerance:
    """Relative to the largest entry: an entry of 0 may be off by as much as its neighbours."""
    largest = 0.0 if expected is None else float(np.abs(as_array(expected)).max())
    return Tolerance(tolerance, tolerance * largest)


class Table(NamedTuple):
    """Tolerances of a file: losses and their terms, gradients, state (weights, probabilities)."""

    loss: Tolerance
    gradient: Tolerance
    state: Tolerance

    def for_case(self, name: str) -> Table:
        """The table of one case: rounding logits of 1e2 to 1e4 to float32 alone costs digits."""
        if self is DEEP_32 and is_extreme(name):
            return self._replace(gradient=Tolerance(1e-4, 2e-4), state=Tolerance(1e-4, 2e-4))
        return self


DEEP = Table(Tolerance(1e-10, 1e-10), Tolerance(1e-9, 1e-12), Tolerance(1e-9, 1e-12))
PROPALL = DEEP._replace(loss=Tolerance(1e-12, 1e-300))
GUARDED_LOG = DEEP._replace(gradient=Tolerance(1e-8, 2e-9))
DEEP_32 = Table(Tolerance(1e-5, 5e-5), Tolerance(1e-4, 2e-5), Tolerance(1e-4, 2e-5))
COMPLEMENTARY = Table(Tolerance(0.0, 1e-10), Tolerance(0.0, 1e-10), Tolerance(0.0, 1e-10))
COMPLEMENTARY_32 = Table(Tolerance(2e-5, 1e-6), Tolerance(2e-5, 1e-6), Tolerance(2e-5, 1e-6))


def is_extreme(name: str) -> bool:
    """Whether a case is one that only stable forms survive: its values must also be finite."""
    return "extreme" in name or "large" in name


class Case(Mapping[str, Any]):
    """A JSON object that remembers which of its fields were read, so that none is overlooked."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = {k: Case(v) if isinstance(v, Mapping) else v for k, v in fields.items()}
        self.read: set[str] = set()

    def __getitem__(self, field: str) -> Any:
        self.read.add(field)
        return self.fields[field]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def at(self, path: str) -> Any:
        """The value at a path such as `new_state/weights` or `points/0/lam`; None if missing or null."""
        value: Any = self
        for field in path.split("/"):
            if isinstance(value, list):
                value = value[int(field)]
            elif isinstance(value, Mapping) and field in value:
                value = value[field]
            else:
                return None
        return value

    def leave_out(self, *fields: str) -> None:
        """Fields that this very case is not to be compared on."""
        self.read |= set(fields)

    def unread(self, prefix: str = "") -> list[str]:
        """Paths of fields that hold something, were never read and are not information."""
        paths = []
        for field, value in self.fields.items():
            if field in INFORMATION or field.startswith(INFORMATION_PREFIXES) or value is None:
                continue
            if field not in self.read:
                paths.append(prefix + field)
            elif isinstance(value, Case) and value.read:
                paths += value.unread(f"{prefix}{field}/")
        return paths

    def plain(self) -> dict[str, Any]:
        """The JSON object itself."""
        return {k: v.plain() if isinstance(v, Case) else v for k, v in self.fields.items()}


@dataclass(frozen=True)
class Check:
    """One comparison: the field with the expected value, how to compute ours, and how close it must be.

    Attributes:
        field: path of the expected value in the case.
        value: computes ours; called only where the case has the field.
        tolerance: how close.
        seen_as: what to make of both values before they are compared, where the field itself is not unique.
    """

    field: str
    value: Callable[[], Any]
    tolerance: Tolerance
    seen_as: Callable[[Any], Any] = lambda value: value


def name_of(fields: Mapping[str, Any], position: int) -> str:
    """A case's `id` or `name`, else its position in the file."""
    return str(fields.get("id", fields.get("name", f"case{position}")))


def read_file(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Names and fields of a file's cases; a name that occurs twice gets its position added."""
    cases = json.loads(path.read_text(encoding="utf-8"))["cases"]
    if not cases:
        raise ValueError(f"{path}: no cases in it")
    names = [name_of(case, i) for i, case in enumerate(cases)]
    return [
        (name if names.count(name) == 1 else f"{name}#{i}", case)
        for i, (name, case) in enumerate(zip(names, cases, strict=True))
    ]


def as_array(value: Any) -> np.ndarray:
    """Numbers, and the strings "nan", "inf", "-inf" and decimal texts, as float64; null becomes NaN."""
    if isinstance(value, Tensor):
        return value.detach().cpu().to(torch.float64).numpy()
    return np.asarray(value, dtype=object).astype(np.float64)


def nulls(value: Any) -> np.ndarray:
    """True on the elements that are null: nothing is expected of them."""
    elements = np.asarray(value, dtype=object)
    return np.array([element is None for element in elements.flat], dtype=bool).reshape(elements.shape)


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def mismatch(check: Check, expected: Any, *, finite: bool) -> str | None:
    """What is wrong with our value of a field, or None."""
    return _mismatch(
        check.field, check.seen_as(expected), check.seen_as(check.value()), check.tolerance, finite
    )


def _mismatch(field: str, expected: Any, ours: Any, tolerance: Tolerance, finite: bool) -> str | None:
    if isinstance(expected, Mapping):
        expected = expected.plain() if isinstance(expected, Case) else expected
        for key, value in expected.items():
            if key in INFORMATION or value is None:
                continue
            wrong = _mismatch(f"{field}/{key}", value, ours[key], tolerance, finite)
            if wrong is not None:
                return wrong
        return None
    if tolerance is EXACT:
        flat, mine = np.asarray(expected, dtype=object), np.asarray(_plain(ours), dtype=object)
        if flat.shape != mine.shape:
            return f"{field}: shape {mine.shape}, expected {flat.shape}"
        for where in np.ndindex(flat.shape):
            if flat[where] is not None and flat[where] != mine[where]:
                return f"{field}{list(where)}: {mine[where]!r}, expected exactly {flat[where]!r}"
        return None
    golden, value, skip = as_array(expected), as_array(ours), nulls(expected)
    if golden.shape != value.shape:
        return f"{field}: shape {value.shape}, expected {golden.shape}"
    if finite and not np.isfinite(value[~skip & np.isfinite(golden)]).all():
        return f"{field}: not finite: {value}"
    with np.errstate(invalid="ignore"):
        close = np.isclose(value, golden, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True) | skip
    if close.all():
        return None
    with np.errstate(invalid="ignore"):
        error = np.where(close, -1.0, np.nan_to_num(np.abs(value - golden), nan=math.inf))
    where = tuple(int(i) for i in np.unravel_index(error.argmax(), error.shape))
    return (
        f"{field}{list(where)}: {value[where]!r}, expected {golden[where]!r} within {tolerance}; "
        f"{int((~close).sum())} of {close.size} values are off"
    )
