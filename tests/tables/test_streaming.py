"""Tables read, predicted and resolved in parts give what the whole table gives."""

import csv
from functools import partial

import numpy as np
import pandas as pd
import pytest

from propall.cli import main
from propall.tables import streaming
from propall.tables.reading import read_table
from propall.tables.resolution import predict_file, resolve_file
from propall.tables.streaming import is_large, predict_to_file, read_parts, resolve_to_file
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


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet", ".feather"])
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
