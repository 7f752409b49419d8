"""Compare every case of every golden file; `PROPALL_GOLDEN=DIR pytest tests/golden` uses those under DIR.

`handlers.py` says what is compared, `comparison.py` how closely; the READMEs beside the files say where the
values come from.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.golden.comparison import COPIES, Case, Check, Tolerance, folder, is_extreme, mismatch, read_file
from tests.golden.handlers import FILES, NOT_YET

FOLDER = folder()
PATHS = sorted(FOLDER.rglob("*.json"))


def _parameters(single: bool) -> list[Any]:
    """One parameter set per case; with `single`, only of files that are also compared in float32."""
    parameters = []
    for path in PATHS:
        stem = path.stem
        if stem not in FILES and stem not in NOT_YET:
            continue
        if single and (stem not in FILES or FILES[stem].single is None):
            continue
        marks = [pytest.mark.skip(reason=f"{stem}: {NOT_YET[stem]}")] if stem in NOT_YET else []
        parameters += [
            pytest.param(
                stem, name, fields, id=f"{path.relative_to(FOLDER).with_suffix('')}-{name}", marks=marks
            )
            for name, fields in _cases(path)
        ]
    return parameters


def _cases(path: Path) -> list[tuple[str, dict[str, Any]]]:
    try:
        return read_file(path)
    except (ValueError, KeyError, TypeError):
        return []  # test_file_is_known reports the error


def _compare(stem: str, name: str, fields: dict[str, Any], dtype: torch.dtype) -> None:
    file = FILES[stem]
    tolerances = file.double if dtype == torch.float64 else file.single
    assert tolerances is not None
    case = Case(fields)
    compared, left_out, wrong = [], [], []
    for check in file.handler(case, dtype, tolerances.for_case(name)):
        expected = case.at(check.field)
        if expected is None:
            continue
        if f"{stem}/{check.field}" in NOT_YET:
            left_out.append(f"{check.field}: {NOT_YET[f'{stem}/{check.field}']}")
            continue
        compared.append(check.field)
        wrong.append(mismatch(check, expected, finite=is_extreme(name)))
    if left_out and not compared:
        pytest.skip("; ".join(left_out))
    assert compared, f"{stem}, {name}: no field to compare among {sorted(fields)}"
    assert not any(wrong), "\n".join(message for message in wrong if message)
    # Cases in other folders may have extra notes; in ours every field must be used or known.
    if FOLDER == COPIES and dtype == torch.float64:
        assert not case.unread(), f"{stem}, {name}: fields never read: {case.unread()}"


@pytest.mark.parametrize(("stem", "name", "fields"), _parameters(single=False))
def test_case(stem: str, name: str, fields: dict[str, Any]) -> None:
    _compare(stem, name, fields, torch.float64)


@pytest.mark.parametrize(("stem", "name", "fields"), _parameters(single=True))
def test_case_in_float32(stem: str, name: str, fields: dict[str, Any]) -> None:
    _compare(stem, name, fields, torch.float32)


def test_folder_holds_golden_files() -> None:
    assert PATHS, f"no JSON files under {FOLDER}; set PROPALL_GOLDEN to a folder that holds some."


@pytest.mark.parametrize("path", [pytest.param(p, id=str(p.relative_to(FOLDER))) for p in PATHS])
def test_file_is_known(path: Path) -> None:
    if path.stem not in FILES and path.stem not in NOT_YET:
        pytest.fail(
            f"{path}: no handler for this file; write one in handlers.py or give a reason in NOT_YET."
        )
    assert read_file(path)


def test_a_file_has_a_handler_or_a_reason_not_both() -> None:
    assert not FILES.keys() & NOT_YET.keys()
    fields_of = {key.partition("/")[0] for key in NOT_YET if "/" in key}
    assert fields_of <= FILES.keys(), (
        f"excluded fields of files without a handler: {fields_of - FILES.keys()}"
    )


@pytest.mark.parametrize(
    ("expected", "ours", "passes"),
    [
        ([1.0, "inf", None], [1.0 + 1e-9, float("inf"), 5.0], True),
        ([1.0, "nan"], [1.0, float("nan")], True),
        ([1.0, 2.0], [1.0, 2.1], False),
        ([1.0, 2.0], [1.0, float("nan")], False),
        ([1.0, 2.0], [1.0], False),
        ({"a": 1.0, "b": None}, {"a": 1.0, "b": 7.0}, True),
        ({"a": 1.0}, {"a": 2.0}, False),
    ],
)
def test_the_comparison_itself(expected: Any, ours: Any, passes: bool) -> None:
    check = Check("field", lambda: ours, Tolerance(1e-6, 0.0))
    assert (mismatch(check, expected, finite=False) is None) == passes
