"""Tables are read back as they were written; text stays text."""

import string
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from propall.labels.parsing import as_text
from propall.tables.formulas import is_answer_column
from propall.tables.reading import read_table
from propall.tables.streaming import table_writer
from propall.tables.writing import add_columns, json_lines, writable_format, write_table

needs_openpyxl = pytest.mark.skipif(find_spec("openpyxl") is None, reason="needs openpyxl")
BINARY = {".parquet": "pyarrow", ".feather": "pyarrow", ".xlsx": "openpyxl"}
COMPRESSED = dict.fromkeys((".csv.gz", ".tsv.gz", ".json.gz", ".jsonl.gz"), "gzip")
ENDINGS = [
    pytest.param(ending, marks=pytest.mark.skipif(find_spec(library) is None, reason=f"needs {library}"))
    for ending, library in {
        ".csv": "csv",
        ".tsv": "csv",
        ".json": "json",
        ".jsonl": "json",
        **BINARY,
        **COMPRESSED,
    }.items()
]

#: Any text but lone surrogates, which no file holds, and NUL; white space at the ends is not part of a label.
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
tables = st.integers(1, 4).flatmap(
    lambda n: st.lists(st.lists(words, min_size=n, max_size=n), min_size=1, max_size=5)
)


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=40)
@given(cells=tables)
def test_what_is_written_is_read_again(ending: str, cells: list[list[str]], tmp_path_factory) -> None:
    # A first column without blanks: a row without any text is an empty line of a text file.
    frame = pd.DataFrame(
        [[f"row {i}", *row] for i, row in enumerate(cells)],
        columns=["name", *string.ascii_lowercase[: len(cells[0])]],
        dtype=object,
    )
    path = tmp_path_factory.mktemp("tables") / f"t{ending}"
    write_table(frame, path)
    again = read_table(path).frame
    assert again.columns.tolist() == frame.columns.tolist()
    expected = frame.map(as_text).to_numpy().tolist()
    assert again.map(as_text).to_numpy().tolist() == expected


@needs_openpyxl
def test_text_never_becomes_a_formula(tmp_path: Path) -> None:
    from openpyxl import load_workbook

    cells = ["=1+1", '=HYPERLINK("http://x")', "+1", "@x", "-x", "\x01\x1b[31m", "_x0001_", "cat"]
    path = write_table(pd.DataFrame({"=name": cells}), tmp_path / "t.xlsx")
    sheet = load_workbook(path)["Sheet1"]
    assert {cell.data_type for row in sheet.iter_rows() for cell in row} == {"s"}
    assert read_table(path).frame["=name"].tolist() == cells


@needs_openpyxl
def test_what_excel_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a cell has 40000 characters.*Write a .csv"):
        write_table(pd.DataFrame({"x": ["a" * 40_000]}), tmp_path / "t.xlsx")
    assert list(tmp_path.iterdir()) == []


def test_columns_of_the_table_are_never_replaced() -> None:
    frame = pd.DataFrame({"propall_label": ["mine"], "x": [1]})
    out = add_columns(frame, np.array([0]), {"label": ["ours"], "probability": np.array([0.5])})
    assert out.iloc[0].tolist() == ["mine", 1, "ours", 0.5]
    assert out.columns.tolist()[2:] == ["propall_label_2", "propall_probability_2"]
    assert all(map(is_answer_column, ["propall_label", "propall_doubt_2", "propall_p_a gull"]))
    assert not any(map(is_answer_column, ["propall_weight", "label", "my_propall_label"]))


@pytest.mark.skipif(find_spec("odf") is not None, reason="odfpy is installed")
def test_a_missing_library_is_noticed_before_the_work() -> None:
    with pytest.raises(ValueError, match=r"out: writing .ods requires odfpy; pip install odfpy"):
        writable_format("t.ods")


NUMBERS = [
    1 / 3,
    0.1 + 0.2,
    1e-12,
    1.2345678901234567e-14,
    5e-324,
    1.7976931348623157e308,
    -0.0,
    123456.123456789,
]


@pytest.mark.parametrize("ending", [".csv", ".json", ".jsonl"])
@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("dtype", [float, object])
def test_numbers_are_written_exactly(ending: str, in_parts: bool, dtype: type, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"x": pd.Series(NUMBERS, dtype=dtype), "n": [2**63 + i for i in range(len(NUMBERS))]}
    )
    path = tmp_path / f"numbers{ending}"
    if in_parts:
        with table_writer(path, None) as write:
            write(frame)
    else:
        write_table(frame, path)
    again = read_table(path).frame
    assert [repr(float(cell)) for cell in again["x"]] == list(map(repr, NUMBERS))
    assert [int(cell) for cell in again["n"]] == frame["n"].tolist()


def test_cells_of_json_lines() -> None:
    day = pd.Timestamp("2024-01-31 10:00")
    frame = pd.DataFrame(
        {
            "date": [day, pd.NaT],
            "number": [np.inf, np.nan],
            "list": [np.array([1, 2]), [None, {"a": float("nan")}]],
            "flag": [True, False],
        }
    )
    assert "".join(json_lines(frame)) == (
        '{"date":"2024-01-31T10:00:00","number":null,"list":[1,2],"flag":true}\n'
        '{"date":null,"number":null,"list":[null,{"a":null}],"flag":false}\n'
    )
