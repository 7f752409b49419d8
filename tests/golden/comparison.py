"""Reading golden files and comparing values with them."""

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

#: Fields that are not compared: the origin of a case, or results of other code.
INFORMATION = {
    *("id", "name", "seed", "source", "note", "notes", "dtype", "conventions", "standardised"),
    *("K", "N", "n", "k", "sum", "train_true", "test_true", "checked_loss_diff", "public_code_loss"),
    *("katsura_pc_loss_same_inputs", "grad_ratio_to_katsura", "unbiased_scale", "plench_variant_loss"),
    *("contrastive_loss_reference_row_bug", "iman_davenport_F_no_tie_correction"),
}
INFORMATION_PREFIXES = ("libcll_", "reference_")


def folder() -> Path:
    """Folder of the golden files: PROPALL_GOLDEN, or the copies beside this file."""
    return Path(os.environ.get("PROPALL_GOLDEN") or COPIES)


class Tolerance(NamedTuple):
    """|value - golden| <= atol + rtol |golden|, elementwise."""

    rtol: float
    atol: float


EXACT = Tolerance(0.0, 0.0)


def relative(tolerance: float, expected: Any) -> Tolerance:
    """Tolerance relative to the largest entry."""
    largest = 0.0 if expected is None else float(np.abs(as_array(expected)).max())
    return Tolerance(tolerance, tolerance * largest)


class Tolerances(NamedTuple):
    """Tolerances for losses and their terms, gradients, and state (weights, probabilities)."""

    loss: Tolerance
    gradient: Tolerance
    state: Tolerance

    def for_case(self, name: str) -> Tolerances:
        """Tolerances of one case: extreme logits lose digits just by rounding to float32."""
        if self is DEEP_32 and is_extreme(name):
            return self._replace(gradient=Tolerance(1e-4, 2e-4), state=Tolerance(1e-4, 2e-4))
        return self


DEEP = Tolerances(Tolerance(1e-10, 1e-10), Tolerance(1e-9, 1e-12), Tolerance(1e-9, 1e-12))
PROPALL = DEEP._replace(loss=Tolerance(1e-12, 1e-300))
GUARDED_LOG = DEEP._replace(gradient=Tolerance(1e-8, 2e-9))
DEEP_32 = Tolerances(Tolerance(1e-5, 5e-5), Tolerance(1e-4, 2e-5), Tolerance(1e-4, 2e-5))
COMPLEMENTARY = Tolerances(Tolerance(0.0, 1e-10), Tolerance(0.0, 1e-10), Tolerance(0.0, 1e-10))
COMPLEMENTARY_32 = Tolerances(Tolerance(2e-5, 1e-6), Tolerance(2e-5, 1e-6), Tolerance(2e-5, 1e-6))


def is_extreme(name: str) -> bool:
    """Whether a case has extreme inputs, for which values must also be finite."""
    return "extreme" in name or "large" in name


class Case(Mapping[str, Any]):
    """A JSON object that records which fields were read, so none is overlooked."""

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
        """Return the value at a path such as `new_state/weights` or `points/0/lam`; None if missing."""
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
        """Exclude fields of this case from the comparison."""
        self.read |= set(fields)

    def unread(self, prefix: str = "") -> list[str]:
        """Paths of fields that have a value, were never read and are not `INFORMATION`."""
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
        """Return the JSON object."""
        return {k: v.plain() if isinstance(v, Case) else v for k, v in self.fields.items()}


@dataclass(frozen=True)
class Check:
    """One comparison of a computed value with a field of a case.

    Attributes:
        field: path of the expected value in the case.
        value: computes our value; called only if the case has the field.
        tolerance: tolerance of the comparison.
        transform: applied to both values first, if the field itself is not unique.
    """

    field: str
    value: Callable[[], Any]
    tolerance: Tolerance
    transform: Callable[[Any], Any] = lambda value: value


def name_of(fields: Mapping[str, Any], position: int) -> str:
    """`id` or `name` of a case, or else its position in the file."""
    return str(fields.get("id", fields.get("name", f"case{position}")))


def read_file(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Read the names and fields of all cases; positions are appended to duplicate names."""
    cases = json.loads(path.read_text(encoding="utf-8"))["cases"]
    if not cases:
        raise ValueError(f"{path}: contains no cases")
    names = [name_of(case, i) for i, case in enumerate(cases)]
    return [
        (name if names.count(name) == 1 else f"{name}#{i}", case)
        for i, (name, case) in enumerate(zip(names, cases, strict=True))
    ]


def as_array(value: Any) -> np.ndarray:
    """Convert numbers, and strings such as "nan", "-inf" and decimals, to float64; null becomes NaN."""
    if isinstance(value, Tensor):
        return value.detach().cpu().to(torch.float64).numpy()
    return np.asarray(value, dtype=object).astype(np.float64)


def nulls(value: Any) -> np.ndarray:
    """Mask of the elements that are null and not compared."""
    elements = np.asarray(value, dtype=object)
    return np.array([element is None for element in elements.flat], dtype=bool).reshape(elements.shape)


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def mismatch(check: Check, expected: Any, *, finite: bool) -> str | None:
    """Describe how our value of a field differs; None if it does not."""
    return _mismatch(
        check.field, check.transform(expected), check.transform(check.value()), check.tolerance, finite
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
        f"{int((~close).sum())} of {close.size} values differ"
    )
