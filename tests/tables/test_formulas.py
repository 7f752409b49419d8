"""Texts that begin like formulas are inert in what propall writes, and the same when it reads them."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from propall.tables import arrow_text
from propall.tables.formulas import find_formulas
from propall.tables.reading import read_table
from propall.tables.streaming import table_writer
from propall.tables.writing import write_table
from propall.wording import guard_formula, unguard_formula

LIVE = ["=1+1", "+cmd|'/C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("x")', "'=1", "＝1"]
PLAIN = ["-1.5", "+2", "-1e-3", "cat", "'quoted'", "-", "", "a=b"]


@given(st.text("'=+-@\t\r\n1.5eａ＝ab", max_size=6))
def test_a_guarded_text_is_inert_and_read_as_it_was(text):
    guarded = guard_formula(text)
    assert unguard_formula(guarded) == text
    if guarded == text:
        is_number = text.lstrip("+-")[:1] in "0123456789." and not text.startswith("'")
        assert len(text) < 2 or text[0] not in "=+-@\t\r\n＝" or is_number
    else:
        assert guarded == f"'{text}"


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_and_numbers_stay(text):
    assert guard_formula(text) == text


def labels() -> pd.DataFrame:
    cells = [*LIVE, *PLAIN]
    return pd.DataFrame(
        {"own": cells, "propall_label": cells, "propall_p_=1": [0.5] * len(cells)}, dtype=object
    )


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json", ".xlsx"])
@pytest.mark.parametrize("in_parts", [False, True])
def test_labels_are_read_back_as_they_were(tmp_path, suffix, in_parts):
    path, frame = tmp_path / f"out{suffix}", labels()
    if in_parts:
        with table_writer(path, None) as write:
            write(frame.iloc[:5])
            write(frame.iloc[5:])
    else:
        write_table(frame, path)
    table = read_table(path).frame
    read = ["" if cell is None or cell != cell else str(cell) for cell in table["propall_label"]]
    assert read == frame["propall_label"].tolist()
    assert ["" if cell is None or cell != cell else str(cell) for cell in table["own"]] == frame[
        "own"
    ].tolist()


def test_what_propall_writes_to_csv_is_inert(tmp_path):
    write_table(labels(), tmp_path / "out.csv")
    written = pd.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)
    assert written["propall_label"].tolist() == [guard_formula(cell) for cell in [*LIVE, *PLAIN]]
    assert written["own"].tolist() == [*LIVE, *PLAIN]  # the table's own cells are not ours to change


@pytest.mark.parametrize("length", [0, 1 << 30])
def test_formulas_of_the_table_are_noted(tmp_path, monkeypatch, length):
    monkeypatch.setattr(arrow_text, "MIN_LENGTH", length)
    path = tmp_path / "table.csv"
    path.write_text("name,x\n=HYPERLINK(0),1\n@somebody,-2\n+49 30 1,3\n+cmd|x!A0,4\n")
    notes = [note for note in read_table(path).notes if note.kind == "formulas"]
    assert [(note.rows, "'name'" in note.text, ".xlsx" in note.text) for note in notes] == [
        ((0, 3), True, True)
    ]


def test_numbers_are_no_formulas():
    assert (
        find_formulas(
            pd.DataFrame({"x": ["-1", "+2", "-x"], "set": ["-a|b", "a|!b", "+a|b"], "n": [1, 2, 3]})
        )
        == {}
    )
