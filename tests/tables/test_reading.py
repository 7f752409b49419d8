"""Files of every kind, whole and broken."""

import json
import sys
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
    monkeypatch.setitem(sys.modules, "pyarrow", None)
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


@needs["openpyxl"]
def test_texts_and_truth_values_of_excel_files_are_kept(tmp_path) -> None:
    frame = pd.DataFrame(
        {"zip": ["007", "010"], "label": [True, None], "word": ["TRUE", "1e5"], "n": [1, None]}
    )
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    read = read_table(tmp_path / "a.xlsx").frame
    assert read["zip"].tolist() == ["007", "010"]
    assert read["label"][0] is True
    assert read["word"].tolist() == ["TRUE", "1e5"]
    assert read["n"].dtype == float


@needs["openpyxl"]
def test_other_sheets_are_noted(tmp_path) -> None:
    sheets = {"Notes": pd.DataFrame(columns=["see below"]), "Data": pd.DataFrame({"x": [1]}), "Empty": None}

    def save(*names: str) -> None:
        with pd.ExcelWriter(tmp_path / "a.xlsx") as writer:
            for name in names:
                pd.DataFrame(sheets[name]).to_excel(writer, sheet_name=name, index=False)

    save("Notes", "Data")
    with pytest.raises(
        ValueError, match=r"no rows below its header. Only the first sheet, 'Notes', .*'Data'"
    ):
        read_table(tmp_path / "a.xlsx")
    save("Data", "Notes", "Empty")
    (note,) = read_table(tmp_path / "a.xlsx").notes
    assert note.kind == "other sheets"
    assert "not 'Notes';" in note.text
    save("Data", "Empty")
    assert read_table(tmp_path / "a.xlsx").notes == []


@needs["openpyxl"]
def test_merged_cells_are_noted(tmp_path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    for row in (["x", "label"], [1, "cat"], [2, None], [3, "dog"]):
        book.active.append(row)
    book.active.merge_cells("A1:A1")
    book.save(tmp_path / "a.xlsx")
    assert read_table(tmp_path / "a.xlsx").notes == []
    book.active.merge_cells("B2:B3")
    book.save(tmp_path / "a.xlsx")
    (note,) = read_table(tmp_path / "a.xlsx").notes
    assert note.kind == "merged cells"
    assert note.text.startswith("'B2:B3': only the first cell")


@pytest.mark.parametrize("start", ["sep=;\n", "sep=;\r", '"sep=;"\r\n', "SEP=;\n"])
def test_a_line_that_names_the_separator_is_no_header(tmp_path, start) -> None:
    table = read_table(write(tmp_path, "a.csv", f"{start}x, y;label\n1,5;cat\n2,5;dog\n"))
    assert table.names == ["x, y", "label"]
    assert table.frame.to_numpy().tolist() == [["1,5", "cat"], ["2,5", "dog"]]
    with pytest.raises(ValueError, match=r"line 4: a quotation mark is not closed, .* up to 5 would"):
        read_table(write(tmp_path, "a.csv", f'{start}x;label\n1;cat\n2;"dog\n3;cat\n'))


def test_lines_above_the_header(tmp_path) -> None:
    path = write(tmp_path, "a.csv", "My survey\n\nx,label\n1,cat\n2,dog\n")
    with pytest.raises(
        ValueError, match=r"in every row than in its header .My survey.; .*Remove what is above"
    ):
        read_table(path)


def test_a_spreadsheet_named_csv(tmp_path) -> None:
    (tmp_path / "a.csv").write_bytes(b"PK\x03\x04\x14\0\xff")
    with pytest.raises(ValueError, match=r"a.csv is a zip file, .* rename it to .xlsx"):
        read_table(tmp_path / "a.csv")


def test_folders_and_empty_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="is a folder; expected a file"):
        read_table(tmp_path)
    (tmp_path / "empty.csv").write_bytes(b"")
    with pytest.raises(ValueError, match=r"empty\.csv is empty"):
        read_table(tmp_path / "empty.csv")


def test_long_cells_and_headers(tmp_path) -> None:
    names = [f"column_{i:06d}" for i in range(12_000)]
    table = read_table(write(tmp_path, "wide.csv", ",".join(names) + "\n" + ",".join("1" * 12_000) + "\n"))
    assert table.frame.shape == (1, 12_000)
    table = read_table(write(tmp_path, "long.csv", f"x,y\n{'a' * 200_000},1\n"))
    assert len(table.frame["x"][0]) == 200_000


def test_columns_without_names_and_cells_take_no_time(tmp_path) -> None:
    row = "1,a" + "," * 100_000
    table = read_table(write(tmp_path, "a.csv", f"x,label{',' * 100_000}\n{row}\n{row}\n"))
    assert table.frame.columns.tolist() == ["x", "label"]
    with pytest.raises(ValueError, match=r"a.csv has 60000 columns; at most 50000 are supported"):
        read_table(write(tmp_path, "a.csv", f"{','.join(map(str, range(60_000)))}\n{'1,' * 60_000}\n"))


@pytest.mark.parametrize("quoted", ['"cat', '2,"'])
def test_an_unclosed_quotation_mark_swallows_no_rows(tmp_path, quoted) -> None:
    lines = ["x,label", *(f'{i},"cat"' for i in range(20)), f"{quoted},1", *(f"{i},dog" for i in range(20))]
    with pytest.raises(ValueError, match=r"a.csv, line 22: a quotation mark is not closed"):
        read_table(write(tmp_path, "a.csv", "\n".join(lines) + "\n"))


def test_cells_of_several_lines(tmp_path) -> None:
    table = read_table(write(tmp_path, "a.csv", 'x,label\n"two\nlines, one ""cell""",cat\n1,dog\n'))
    assert table.frame["x"].tolist() == ['two\nlines, one "cell"', "1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 5000 + "]" * 5000, r"a.json is not JSON \(it is nested too deeply\)"),
        ('[{"x": ' + "[" * 100 + "]" * 100 + "}]", r"a.json, object 1: .* more than 20 levels"),
        ('[{"x": ' + "9" * 5000 + "}]", r"a.json is not JSON \(a number has too many digits\)"),
    ],
)
def test_extreme_json(tmp_path, text, message) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(write(tmp_path, "a.json", text))


def test_half_of_a_surrogate_pair_is_replaced(tmp_path) -> None:
    text = r'[{"x": "\ud800", "y": "\ud83d\ude00"}, {"x": "\\ud800", "y": "\uDC00"}]'
    frame = read_table(write(tmp_path, "a.json", text)).frame
    assert frame["x"].tolist() == ["\ufffd", r"\ud800"]
    assert frame["y"].tolist() == ["\U0001f600", "\ufffd"]


def test_json_in_a_file_of_json_lines(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"no line of a.jsonl is a JSON object.*suffix .json"):
        read_table(write(tmp_path, "a.jsonl", json.dumps([{"x": 1}], indent=1)))


@pytest.mark.parametrize(
    ("ending", "kind"), [("xlsx", "Excel"), ("parquet", "Parquet"), ("feather", "Feather")]
)
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 damaged", b"PAR1 PAR1", b"ARROW1\0\0ARROW1"])
def test_damaged_binary_files_are_named(tmp_path, ending, kind, content) -> None:
    path = tmp_path / f"a.{ending}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"a.{ending} cannot be read as {kind} .*Save it again"):
        read_table(path)


@needs["pyarrow"]
def test_offsets_of_a_feather_file_are_checked(tmp_path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.feather"
    frame = pd.DataFrame({"label": [f"label {i}" for i in range(64)]})
    frame.to_feather(path, compression="uncompressed")
    data = bytearray(path.read_bytes())
    offsets = np.arange(65, dtype="<i4")
    lengths = np.cumsum([0, *(len(text) for text in frame["label"])])
    width = 4 if lengths.astype("<i4").tobytes() in data else 8
    offsets = lengths.astype(f"<i{width}").tobytes()
    at = data.index(offsets)
    data[at + 30 * width : at + 31 * width] = (2**30).to_bytes(width, "little")
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"a.feather cannot be read as Feather"):
        read_table(path)


def test_many_repeated_headings_make_one_note(tmp_path) -> None:
    table = read_table(write(tmp_path, "a.csv", f"{'x,' * 500}label\n{'1,' * 500}a\n{'2,' * 500}b\n"))
    assert table.frame.columns.tolist() == ["x", "label"]
    assert [note.kind for note in table.notes] == ["duplicate heading"]
    table = read_table(write(tmp_path, "b.csv", "x,x (2),x\n1,2,3\n"))
    assert table.frame.columns.is_unique
