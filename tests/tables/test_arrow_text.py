"""Arrow's readers and writers answer as the general code does, or leave the text to it."""

import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from propall.tables import arrow_text, reading
from propall.tables.arrow_text import is_arrow_text, joined, plain_numbers, split_plain, write_plain
from propall.tables.features import _plain_numbers, as_numbers, find_gaps
from propall.tables.reading import read_table

pytest.importorskip("pyarrow")

NUMBER_LIKE = st.text("0123456789+-.eE_ naifNty,", min_size=0, max_size=8)
NUMBERS = st.one_of(st.floats().map(repr), st.integers().map(str), NUMBER_LIKE)
CELLS = st.one_of(NUMBERS, st.text('ab "\r\n\x1f,;é\ufeff|', max_size=4))


def as_arrow(cells: list[str]) -> "pd.Series[str]":
    import pyarrow as pa

    return pd.Series(cells, dtype=pd.ArrowDtype(pa.string()))


@pytest.fixture(autouse=True)
def _any_length(monkeypatch) -> None:
    monkeypatch.setattr(arrow_text, "MIN_LENGTH", 0)


@settings(max_examples=200, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=6))
def test_numbers_are_the_same(cells):
    numbers = plain_numbers(as_arrow(cells))
    if numbers is not None:
        expected = _plain_numbers(np.array(cells, dtype=object))
        assert expected is not None
        assert numbers.tobytes() == expected.tobytes()
        assert not find_gaps(pd.Series(cells, dtype=object)).any()
    np.testing.assert_array_equal(as_numbers(as_arrow(cells)), as_numbers(pd.Series(cells, dtype=object)))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(CELLS, min_size=1, max_size=3), min_size=2, max_size=5), st.sampled_from(",;\t"))
def test_text_is_split_the_same(tmp_path_factory, rows, separator):
    text = "\n".join(separator.join(row) for row in rows) + "\n"
    path = tmp_path_factory.mktemp("table") / "table.csv"
    path.write_bytes(text.encode())
    outcomes = []
    for length in (0, 1 << 30):
        arrow_text.MIN_LENGTH = length
        try:
            table = read_table(path)
        except ValueError as error:
            outcomes.append(str(error))
        else:
            cells = [list(map(str, row)) for row in table.frame.astype(object).to_numpy()]
            outcomes.append((table.frame.columns.tolist(), table.frame.index.tolist(), cells, table.notes))
    assert outcomes[0] == outcomes[1]


def test_a_plain_text_is_split_by_arrow(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text("a,b\r\n1, x\r\n,y\r\n")
    frame = read_table(path).frame
    assert is_arrow_text(frame["a"])
    assert frame.to_numpy().tolist() == [["1", " x"], ["", "y"]]


@pytest.mark.parametrize(
    "text",
    [
        'a,b\n"1",2\n',
        "a,b\n1\n",
        "a,b\n1,2,3\n",
        "a,a\n1,2\n",
        "a,\n1,2\n",
        "a,b\n , \n",
        "a,b\n1,2\r3,4\n",
    ],
    ids=["quotes", "few cells", "many cells", "repeated name", "no name", "blank row", "return"],
)
def test_other_texts_are_left_to_the_general_reader(text):
    assert split_plain(text, ",") is None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(CELLS, CELLS, st.floats(), CELLS), min_size=1, max_size=4), st.booleans())
def test_rows_are_written_the_same(rows, header):
    columns = list(zip(*rows, strict=True))
    frame = pd.DataFrame(
        {"one": as_arrow(list(columns[0])), "a b": as_arrow(list(columns[1])), "number": columns[2]}
        | {"label": pd.Series([cell or None for cell in columns[3]], dtype=object)}
    )
    file = io.BytesIO()
    if write_plain(frame, file, ",", header=header):
        expected = io.StringIO()
        frame.to_csv(expected, index=False, header=header)
        assert file.getvalue().decode() == expected.getvalue()
    else:
        assert file.getvalue() == b""


def test_joined_cells_are_those_of_the_general_code():
    columns = [as_arrow(["a", "b"]), as_arrow(["1", "2"])]
    assert joined(columns, "-") == ["a-1", "b-2"]
    assert joined([as_arrow(["a "])], "-") is None  # to be stripped
    assert joined([pd.Series(["a"])], "-") is None


def test_without_pyarrow_the_general_reader_reads(monkeypatch, tmp_path):
    monkeypatch.setattr(arrow_text, "find_spec", lambda name: None)
    path = tmp_path / "plain.csv"
    path.write_text("a,b\n1,2\n")
    assert reading.read_table(path).frame.to_numpy().tolist() == [["1", "2"]]
