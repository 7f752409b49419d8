"""Tables read, predicted and resolved in parts give what the whole table gives."""

import csv
import gzip
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pandas as pd
import pytest

from propall.cli import main
from propall.tables import arrow_text, file_formats, streaming
from propall.tables.arrow_text import is_arrow_text
from propall.tables.features import Features
from propall.tables.reading import read_table
from propall.tables.resolution import predict_file, resolve_file
from propall.tables.streaming import (
    is_large,
    predict_to_file,
    read_parts,
    resolve_to_file,
    table_writer,
)
from propall.tables.writing import write_table
from tests.fixtures.tables import write_birds


@pytest.fixture
def dirty_file(tmp_path):
    """A CSV with cells that span lines, an empty row, a short row, a wrong label and an unreadable number."""
    path = tmp_path / "birds.csv"
    write_birds(path, 80, seed=3)
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    rows[5][6] = 'says "kee-ya"\nand, loudly,\n"ha"'
    rows[20][6] = "\n\n"
    rows[30] = [""] * 8
    rows[40] = rows[40][:7]
    rows[50][7] = "dodo"
    rows[51][7] = "herrng gull"
    rows[60][1] = "wide"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


@pytest.mark.parametrize("size", [300, 1000, 5000, 1 << 20])
def test_parts_of_a_csv_are_the_whole(dirty_file, size):
    whole, parts = read_table(dirty_file), list(read_parts(dirty_file, size=size))
    assert len(parts) > 1 or size > dirty_file.stat().st_size
    pd.testing.assert_frame_equal(pd.concat([part.frame for part in parts]), whole.frame, check_dtype=False)
    notes = []
    for part in parts:
        notes = streaming.merge_notes(notes, part.notes)
    assert notes == whole.notes


def compress(path):
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    return packed


@pytest.mark.parametrize("size", [300, 5000, 1 << 20])
def test_parts_of_a_compressed_csv_are_those_of_the_plain_one(dirty_file, size):
    packed = compress(dirty_file)
    plain, parts = list(read_parts(dirty_file, size=size)), list(read_parts(packed, size=size))
    assert len(parts) == len(plain)
    for part, expected in zip(parts, plain, strict=True):
        pd.testing.assert_frame_equal(part.frame, expected.frame)
        assert part.notes == expected.notes
        assert (part.source, part.separator) == ("birds.csv.gz", expected.separator)


def test_errors_about_parts_name_the_compressed_file(tmp_path):
    text = "x,label\n" + "1,cat\n" * 300 + '2,"dog\n' + "1,cat\n" * 20
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(ValueError, match=r"a\.csv\.gz, line 302: a quotation mark is not closed"):
        list(read_parts(path, size=500))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"a\.csv\.gz cannot be unpacked .* truncated or damaged"):
        list(read_parts(path, size=500))
    path.write_bytes(gzip.compress(gzip.compress(text.encode())))
    with pytest.raises(ValueError, match=r"a\.csv\.gz is compressed with gzip twice"):
        list(read_parts(path, size=50))


def test_a_compressed_file_is_unpacked_part_by_part(tmp_path, monkeypatch):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"x,label\n" + b"123456,cat\n" * 3_000_000, 1))
    unpacked = []

    def read(self, size=-1):
        assert 0 < size <= 1 << 20
        unpacked.append(block := original(self, size))
        return block

    original = gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", read)
    parts = read_parts(path, size=10_000)
    assert sum(len(next(parts).frame) for _ in range(3)) < 3000
    parts.close()
    # Of 33 MB: twice a block that decides whether to read in parts, and the parts.
    assert 30_000 < sum(map(len, unpacked)) < 3 << 20


def test_a_compressed_file_is_large_by_what_it_unpacks_to(tmp_path, monkeypatch):
    path = tmp_path / "a.csv.gz"
    member = gzip.compress(b"x,label\n1,cat\n" * 100)
    path.write_bytes(member * 100)  # the size at the end of the file is that of one member
    monkeypatch.setattr(streaming, "LARGE_BYTES", 100 * 1400)
    assert is_large(path)
    monkeypatch.setattr(streaming, "LARGE_BYTES", 100 * 1400 + 1)
    assert not is_large(path)
    monkeypatch.setattr(file_formats, "_BLOCK", 1000)
    path.write_bytes(member * 200 + b"no")  # the damage is behind the limit
    assert is_large(path)
    path.write_bytes(b"no" * 10_000)
    assert not is_large(path)


def test_wide_characters_are_not_unpacked_without_limit(tmp_path, monkeypatch):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(("x,label\n" + "1,cat\n" * 100).encode("utf-16")))
    (part,) = read_parts(path, size=100)
    assert len(part.frame) == 100
    monkeypatch.setattr(streaming, "LARGE_BYTES", 1000)
    with pytest.raises(ValueError, match=r"UTF-16 or UTF-32, which is not read in parts\. Save it as UTF-8"):
        list(read_parts(path, size=100))


def test_a_folder_of_compressed_files(tmp_path):
    for name in "ba":
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(f"x,label\n{name},cat\n".encode()))
    assert [cell for part in read_parts(tmp_path) for cell in part.frame["x"]] == ["a", "b"]
    (tmp_path / "a.csv").write_text("x,label\na,cat\n")
    with pytest.raises(ValueError, match=r"holds a\.csv and a\.csv\.gz; the rows of both would be used"):
        list(read_parts(tmp_path))
    (tmp_path / "a.csv").rename(tmp_path / "A.CSV")
    with pytest.raises(ValueError, match=r"holds A\.CSV and a\.csv\.gz"):
        list(read_parts(tmp_path))


def test_parts_after_a_line_that_names_the_separator(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfsep=;\nx;label\n" + b"".join(b"%d;cat\n" % i for i in range(50)))
    parts = list(read_parts(path, size=100))
    assert len(parts) > 1
    assert {tuple(part.names) for part in parts} == {("x", "label")}
    assert [cell for part in parts for cell in part.frame["x"]] == [str(i) for i in range(50)]


def test_a_folder_without_a_name(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("x,label\n1,cat\n")
    monkeypatch.chdir(tmp_path)
    assert [part.source for part in read_parts(".")] == ["."]


def test_predictions_in_parts(fitted, dirty_file, tmp_path):
    predicted = predict_file(fitted.model, dirty_file, all_probabilities=True)
    expected = write_table(predicted.frame, tmp_path / "whole.csv")
    parts = read_parts(dirty_file, size=900)
    summary = predict_to_file(fitted.model, parts, tmp_path / "parts.csv", all_probabilities=True)
    assert_same_tables(pd.read_csv(tmp_path / "parts.csv"), pd.read_csv(expected))
    assert summary.rows == len(predicted.labels)
    assert [row[:2] for row in summary.counts()] == [row[:2] for row in predicted.counts()]
    assert summary.mean_probability == pytest.approx(predicted.mean_probability)
    assert {(note.kind, note.rows) for note in summary.notes} >= {
        ("empty row", (29,)),
        ("too few cells", (39,)),
        ("unreadable values", (59,)),
    }


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet", ".feather", ".csv.gz"])
def test_resolved_in_parts(fitted, dirty_file, tmp_path, suffix):
    whole = resolve_file(fitted.model, dirty_file)
    write_table(whole.frame(), tmp_path / f"whole{suffix}")
    summary = resolve_to_file(
        fitted.model, partial(read_parts, dirty_file, size=900), tmp_path / f"parts{suffix}"
    )
    assert_same_tables(
        read_table(tmp_path / f"parts{suffix}").frame, read_table(tmp_path / f"whole{suffix}").frame
    )
    expected, found = whole.as_dict(), summary.as_dict()
    for name in ("rows", "resolved", "ambiguous", "sure", "doubted", "fitted_on"):
        assert found[name] == expected[name]
    assert found["sets_without_truth"] == pytest.approx(expected["sets_without_truth"], rel=1e-6)
    assert [row["name"] for row in found["labels"]] == [row["name"] for row in expected["labels"]]


def test_training_rows_are_resolved_by_models_that_did_not_see_them(fitted, birds_file, tmp_path):
    parts = partial(read_parts, birds_file, size=2000)
    summary = resolve_to_file(fitted.model, parts, tmp_path / "out.csv")
    assert summary.as_dict()["fitted_on"] == summary.as_dict()["resolved"]
    expected = resolve_file(fitted.model, birds_file).frame()
    out = pd.read_csv(tmp_path / "out.csv")
    assert out["propall_label"].tolist() == expected["propall_label"].tolist()


def test_a_folder_of_parquet_files(fitted, dirty_file, tmp_path, capsys):
    frame = read_table(dirty_file).frame.reset_index(drop=True)
    frame["count"] = pd.array([1, 2, None, 4] + [5] * (len(frame) - 4), dtype="Int64")
    folder = tmp_path / "birds"
    folder.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[rows].to_parquet(folder / f"{number}.parquet")
    (folder / "_SUCCESS").touch()
    assert is_large(folder)
    parts = list(read_parts(folder, rows=10))
    assert len(parts) > 3
    assert [str(part.frame["count"].dtype) for part in parts] == ["float64"] * len(parts)
    joined = pd.concat([part.frame for part in parts])
    assert joined.index.tolist() == list(range(len(frame)))
    model = fitted.model.save(tmp_path / "model")
    for command, out in (("predict", "predicted.csv"), ("resolve", "resolved.csv")):
        words = [command, str(folder), "--model", str(model), "--out", str(tmp_path / out)]
        with pytest.raises(SystemExit) as ended:
            main([*words, "--quiet"])
        assert not ended.value.code
    assert "resolved in parts" in capsys.readouterr().err
    expected = resolve_file(fitted.model, frame).frame()
    found = pd.read_csv(tmp_path / "resolved.csv")
    assert blank(found["propall_label"]) == blank(expected["propall_label"])
    assert len(pd.read_csv(tmp_path / "predicted.csv")) == len(frame)


def test_damaged_files_are_refused(dirty_file, tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "MAX_RECORD_BYTES", 3000)
    (tmp_path / "open.csv").write_text("a,b\n1,2\n" + '3,"never closed\n' + "4,5\n" * 2000)
    with pytest.raises(ValueError, match=r"open.csv has a record of more than .* quotation mark"):
        list(read_parts(tmp_path / "open.csv", size=500))
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        list(read_parts(folder))
    wide = dirty_file.read_text().encode("utf-16")
    (tmp_path / "wide.csv").write_bytes(wide)
    assert len(list(read_parts(tmp_path / "wide.csv", size=500))) == 1


def test_a_failure_leaves_the_old_file(fitted, dirty_file, tmp_path):
    out = tmp_path / "out.csv"
    out.write_text("old")
    first, *others = read_parts(dirty_file, size=900)

    def parts():
        yield first
        raise ValueError("the disk is gone")

    with pytest.raises(ValueError, match="the disk is gone"):
        predict_to_file(fitted.model, parts(), out)
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name] == []
    assert len(others)


def blank(column):
    """The cells of a column, with missing ones as blank text."""
    return column.astype(object).where(column.notna(), "").tolist()


def assert_same_tables(found, expected):
    assert found.columns.tolist() == expected.columns.tolist()
    for name in expected.columns:
        if name.startswith("propall_") and name not in ("propall_label", "propall_by", "propall_note"):
            continue
        assert blank(found[name]) == blank(expected[name])
    for name in ("propall_probability", "propall_doubt"):
        if name in expected.columns:
            numbers = [pd.to_numeric(frame[name]).to_numpy(dtype=float) for frame in (found, expected)]
            # Matrix products of other shapes may differ in the last digits, which are then rounded to six.
            np.testing.assert_allclose(*numbers, atol=2e-6)


def read_in_parts(path, size):
    """The cells, rows and notes of a file read in parts."""
    parts, notes = list(read_parts(path, size=size)), []
    for part in parts:
        notes = streaming.merge_notes(notes, part.notes)
    frame = pd.concat([part.frame for part in parts])
    return frame.astype(object).to_numpy().tolist(), frame.index.tolist(), notes


@pytest.mark.parametrize(
    "text",
    [
        b"a,b\r" + b"1,2\r" * 300,
        b"a,b\r" + b"1,2\n" * 300,
        b"a,b\r\n" + b"1,2\r\n" * 300,
        b'"a\r\n1",b\r\n' + b"1,2\r\n" * 300,
        b"a,b\n" + b"1,2\n" * 100 + b",\n" * 900 + b"3,4\n" + b",\n" * 900,
        b"a,b\n" + b"\n" * 900 + b"1,2\n" + b" , \n" * 300 + b"3,4\n",
        b"\xef\xbb\xbfa,b\n" + "1,Möwe\n".encode() * 300,
        b"a,b\n" + b"1,2\n" * 300 + "1,Möwe\n".encode("cp1252") * 20 + b"1,2\n" * 300,
    ],
    ids=[
        "carriage returns",
        "carriage return after the header",
        "both",
        "header of two lines",
        "blank rows",
        "blank lines",
        "mark",
        "late cp1252",
    ],
)
@pytest.mark.parametrize("size", [101, 500])
def test_unusual_files_are_the_same_in_parts(tmp_path, text, size):
    path = tmp_path / "table.csv"
    path.write_bytes(text)
    assert read_in_parts(path, size) == read_in_parts(path, 1 << 20)


@pytest.mark.parametrize("text", [b"a,b\n" + b",\n" * 900, b"a" * 900 + b",b\n", b"a,b" + b" " * 900])
def test_a_file_without_rows_is_refused_in_parts(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"table\.csv has no rows below its header"):
        list(read_parts(path, size=101))


def test_a_title_above_the_header_is_named_in_parts(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("My report\na,b\n" + "1,2\n" * 300)
    with pytest.raises(ValueError, match="than in its header 'My report'"):
        list(read_parts(path, size=101))


def test_lines_in_messages_are_those_of_the_file(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n" + "1,2\n" * 300 + '3,"open\n')
    messages = []
    for size in (101, 1 << 20):
        with pytest.raises(ValueError, match="line 302: a quotation mark is not closed") as refused:
            list(read_parts(path, size=size))
        messages.append(str(refused.value))
    assert messages[0] == messages[1]


def test_an_output_that_is_deleted_is_not_begun_again(tmp_path):
    path, frame = tmp_path / "out.csv", pd.DataFrame({"a": ["1"], "b": ["2"]})
    path.write_text("old\n")

    def lose_the_file() -> None:
        with table_writer(path, None) as write:
            write(frame)
            (part,) = tmp_path.glob(".out.*")
            part.unlink()
            write(frame)

    with pytest.raises(FileNotFoundError, match=r"out\.csv"):
        lose_the_file()
    assert path.read_text() == "old\n"
    assert [file.name for file in tmp_path.iterdir()] == ["out.csv"]


#: Cells of a column, in a file whose columns are separated by semicolons.
COLUMNS = {
    "plain": ["1", "2.5", "-3", "1e5"],
    "spaces": [" 1", "2 ", " 3 ", "4"],
    "zeros": ["007", "010", "7", "000"],
    "plus": ["+1", "-2", "+3.5", "4"],
    "thousands": ["1,234", "12,345,678", "9,999.5", "5"],
    "decimal commas": ["1,5", "2,25", "-3,125", "4"],
    "missing": ["NA", "", "n/a", "4"],
    "infinite": ["inf", "-inf", "nan", "1e400"],
    "beyond 2**53": ["9007199254740993", "9007199254740992", "-9223372036854775809", "4"],
    "underscores": ["1_000", "2", "3", "4"],
    "wide digits": ["\uff11", "\u0662", "3", "4"],
    "dates": ["2024-01-31", "2024-02-01T10:00", "", "2023-12-31"],
    "day first": ["31.12.2023", "1.2.2024", "03.04.2024", "5.6.2024"],
    "truth": ["true", "FALSE", "True", "false"],
    "words": ["a b", " a b", "a\u00a0b", "A b"],
    "mostly numbers": [*map(str, range(19)), "wide"],
    "formulas": ["=1+1", "-2+3", "@x(1)", "'=1"],
    "constant": ["1", "1.0", "1e0", "1"],
    "blank": ["", " ", "-", "?"],
}


@pytest.mark.parametrize("lines_end", ["\n", "\r\n"])
def test_columns_kept_by_arrow_are_features_as_others_are(tmp_path, monkeypatch, lines_end):
    pytest.importorskip("pyarrow")
    rows = [[cells[i % len(cells)] for cells in COLUMNS.values()] for i in range(60)]
    text = lines_end.join(";".join(row) for row in [list(COLUMNS), *rows]) + lines_end
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode())
    outcomes = []
    for length in (0, 1 << 30):
        monkeypatch.setattr(arrow_text, "MIN_LENGTH", length)
        raw = read_table(path)
        assert is_arrow_text(raw.frame["plain"]) == (length == 0)
        features = Features.fit(raw.frame, separator=raw.separator)
        values = features.transform(raw.frame)
        new = features.check_new_rows(raw.frame)
        outcomes.append((features.as_dict(), features.notes, new, raw.notes, values.tobytes()))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("size", [700, 1 << 20])
def test_predictions_with_arrow_are_those_without(fitted, birds_file, tmp_path, monkeypatch, size):
    """Some parts are plain; others have quotation marks, short rows or blank rows."""
    pytest.importorskip("pyarrow")
    lines = birds_file.read_text().splitlines()
    lines[10] += ",,"
    lines[25] = lines[25].replace(lines[25].split(",")[0], '"say ""kee"", loudly\nand often"', 1)
    lines[40] = lines[40].rsplit(",", 1)[0]
    lines.insert(50, "")
    lines[60] = "," * lines[0].count(",")
    path = tmp_path / "new.csv"
    path.write_text("\r\n".join(lines) + "\r\n", newline="")
    outcomes = []
    for length in (0, 1 << 30):
        monkeypatch.setattr(arrow_text, "MIN_LENGTH", length)
        summary = predict_to_file(fitted.model, read_parts(path, size=size), tmp_path / "out.csv")
        outcomes.append(((tmp_path / "out.csv").read_bytes(), summary.as_dict()))
    assert outcomes[0] == outcomes[1]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_written_and_stays_a_pipe(tmp_path):
    path, frame = tmp_path / "out.csv", pd.DataFrame({"a": ["1"], "b": ["2"]})
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as threads:
        text = threads.submit(path.read_text)
        with table_writer(path, None) as write:
            write(frame)
            write(frame)
        assert text.result(timeout=10) == "a,b\n1,2\n1,2\n"
    assert path.is_fifo()
