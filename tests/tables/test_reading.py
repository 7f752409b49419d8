"""Files of every kind, whole and broken."""

import json
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest

from propall.tables.reading import DataNote, read_table

needs = {
    name: pytest.mark.skipif(find_spec(name) is None, reason=f"needs {name}")
    for name in ("pyarrow", "openpyxl")
}


def kinds(table):
    return {note.kind: note.action for note in table.notes}


def write(folder, name, text, encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "x,label\n1,cat|dog\n2,emu\n"),
        ("a.csv", 'x,label\r\n"1","cat|dog"\r\n\r\n2,emu'),
        ("a.csv", "x,label\r1,cat|dog\r2,emu\r"),
        ("a.txt", "x;label\n1;cat|dog\n2;emu\n"),
        ("a.tsv", "x\tlabel\n1\tcat|dog\n2\temu\n"),
        ("a.csv", "x,label,\n1,cat|dog,\n2,emu,\n"),
        ("a.jsonl", '{"x": "1", "label": "cat|dog"}\n\n{"x": "2", "label": "emu"}\n'),
        ("a.json", '[{"x": "1", "label": "cat|dog"}, {"x": "2", "label": "emu"}]'),
    ],
)
def test_text_files(tmp_path, name, text) -> None:
    frame = read_table(write(tmp_path, name, text)).frame
    assert frame.columns.tolist() == ["x", "label"]
    assert frame.to_numpy().tolist() == [["1", "cat|dog"], ["2", "emu"]]


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param("parquet", marks=needs["pyarrow"]),
        pytest.param("feather", marks=needs["pyarrow"]),
        pytest.param("xlsx", marks=needs["openpyxl"]),
    ],
)
def test_binary_files(tmp_path, ending) -> None:
    path = tmp_path / f"a.{ending}"
    frame = pd.DataFrame({"x": [1.5, np.nan], "label": ["cat|dog", "emu"]})
    if ending == "xlsx":
        frame.to_excel(path, index=False)
    else:
        getattr(frame, f"to_{ending}")(path)
    pd.testing.assert_frame_equal(read_table(path).frame, frame, check_dtype=False, check_column_type=False)


def test_a_missing_library(tmp_path, monkeypatch) -> None:
    path = write(tmp_path, "a.parquet", "no parquet")

    def missing(_):
        raise ImportError("no engine")

    monkeypatch.setattr(pd, "read_parquet", missing)
    with pytest.raises(ValueError, match=r"reading .parquet needs pyarrow; pip install pyarrow"):
        read_table(path)


def test_a_data_frame_is_unchanged() -> None:
    frame = pd.DataFrame({"x": [1, 2]}, index=[7, 9])
    table = read_table(frame)
    assert table.frame["x"].tolist() == [1, 2]
    assert table.frame.index.tolist() == [0, 1]


def test_lines_of_different_lengths(tmp_path) -> None:
    table = read_table(write(tmp_path, "a.csv", "x,y\n1,2\n3\n4,5,6\n7,8,\n9,10\n"))
    assert kinds(table) == {"too many cells": "row dropped", "too few cells": "repaired"}
    assert table.frame["y"].tolist() == ["2", "", "8", "10"]
    assert table.frame.index.tolist() == [0, 1, 3, 4]  # rows keep the number they have in the file
    assert table.n_file_rows == 5
    assert [note.rows for note in table.notes] == [(2,), (1,)]


def test_headers(tmp_path) -> None:
    table = read_table(write(tmp_path, "a.csv", "x,x,y,y, ,\n1,1,2,3,4,5\n6,6,7,8,9,0\n"))
    assert table.frame.columns.tolist() == ["x", "y", "y (2)", "column 5", "column 6"]
    notes = {(note.kind, note.action) for note in table.notes}
    assert notes == {
        ("duplicate heading", "column left out"),
        ("duplicate heading", "repaired"),
        ("unnamed column", "repaired"),
    }


@pytest.mark.parametrize(
    ("encoding", "notes"),
    [
        ("utf-8-sig", {}),
        ("utf-16", {}),
        ("utf-16-le", {}),
        ("utf-16-be", {}),
        ("cp1252", {"encoding": "repaired"}),
    ],
)
def test_encodings(tmp_path, encoding, notes) -> None:
    table = read_table(write(tmp_path, "a.csv", "x,label\n1,Möwe\n", encoding))
    assert table.frame["label"].tolist() == ["Möwe"]
    assert kinds(table) == notes


def test_broken_json_lines_are_dropped(tmp_path) -> None:
    table = read_table(write(tmp_path, "a.jsonl", '{"x": 1}\n{"x": \n[1]\n{"x": [1, 2]}\n'))
    assert table.frame["x"].tolist() == [1, [1, 2]]
    assert table.notes[0].rows == (1, 2)


def test_label_studio_exports_are_recognized(tmp_path) -> None:
    result = {"type": "choices", "from_name": "animal", "value": {"choices": ["cat"]}}
    tasks = [{"data": {"text": "meow"}, "annotations": [{"result": [result]}]}]
    table = read_table(write(tmp_path, "a.json", json.dumps(tasks)))
    assert table.tasks is not None
    assert table.frame["text"].tolist() == ["meow"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.docx", "x", "has the suffix .docx; expected .csv"),
        ("a.csv", "x,y\n", "has no rows below its header"),
        ("a.json", "{", "is not JSON"),
        ("a.json", '{"x": 1}', "not a list of JSON objects"),
    ],
)
def test_errors(tmp_path, name, text, message) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(write(tmp_path, name, text))


def test_unknown_names_suggest_similar_ones(tmp_path) -> None:
    path = write(tmp_path, "birds.csv", "wing,species\n1,gull\n")
    with pytest.raises(FileNotFoundError, match=r"did you mean 'birds.csv'\?"):
        read_table(tmp_path / "brids.csv")
    with pytest.raises(ValueError, match=r"label: birds.csv has no column 'specis'; did you mean 'species'"):
        read_table(path).column("specis", "label")


def test_notes_count_rows_from_1() -> None:
    note = DataNote("kind", "what it is", "noted", tuple(range(7)))
    assert str(note) == "what it is (rows 1, 2, 3, 4, 5 and 2 more)"
    assert note.as_dict()["rows"] == [1, 2, 3, 4, 5, 6, 7]


def test_empty_rows_are_dropped_and_noted(tmp_path) -> None:
    table = read_table(write(tmp_path, "a.csv", "x,y\n1,2\n\n,\n3,4\n"))
    assert table.frame.to_numpy().tolist() == [["1", "2"], ["3", "4"]]
    assert [(r.kind, r.action, r.rows) for r in table.notes] == [("empty row", "row dropped", (1,))]
    assert table.n_file_rows == 3


def test_unnamed_columns_of_excel_files(tmp_path) -> None:
    pytest.importorskip("openpyxl", reason="needs openpyxl")
    pd.DataFrame([["x", None], [1, 2]]).to_excel(tmp_path / "a.xlsx", header=False, index=False)
    table = read_table(tmp_path / "a.xlsx")
    assert list(table.frame.columns) == ["x", "column 2"]
    assert [note.kind for note in table.notes] == ["unnamed column"]


def test_folders_and_empty_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="is a folder; expected a file"):
        read_table(tmp_path)
    (tmp_path / "empty.csv").write_bytes(b"")
    with pytest.raises(ValueError, match=r"empty\.csv is empty"):
        read_table(tmp_path / "empty.csv")
