"""A table on disk is summarized as the same table in memory."""

import numpy as np
import pandas as pd
import pytest

from propall.cli import tables as commands
from propall.tables import arrow_text, streaming
from propall.tables.column_file import StoredTable, open_stored_table
from propall.tables.label_columns import open_table
from propall.tables.label_source import LabelSource
from propall.tables.summary import summarize

pytest.importorskip("pyarrow")


@pytest.fixture
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 400
    words = np.array(["red", "green", "blue", "NA", ""])
    frame = pd.DataFrame(
        {
            "label": rng.choice(["cat", "dog", "cat|dog", "!cat", "catt", "cat||dog", ""], n),
            "number": rng.normal(size=n).round(3).astype(str),
            "holes": np.where(rng.random(n) < 0.2, "n/a", rng.integers(0, 9, n).astype(str)),
            "comma": [f"{value},5" for value in rng.integers(1, 99, n)],
            "day": [f"2024-01-{1 + i % 28:02}" for i in range(n)],
            "date": [f"{1 + i % 28}.{1 + i % 12}.2024" for i in range(n)],
            "color": rng.choice(words, n),
            "copy": rng.choice(["cat", " Dog"], n),
            "text": [" ".join(rng.choice(["a", "cup", "of", "tea", "and", "milk"], 5)) for _ in range(n)],
            "key": [f"id{i:05}" for i in range(n)],
            "row": [str(i) for i in range(n)],
            "same": ["7"] * n,
            "huge": ["1e300" if i % 50 == 0 else str(i % 7) for i in range(n)],
            "propall_label": ["cat"] * n,
        }
    )
    return pd.concat([frame, frame.iloc[:20]])


def write(frame: pd.DataFrame, path, separator=";") -> None:
    frame.to_csv(path, sep=separator, index=False)
    lines = path.read_text().splitlines()
    lines[3] = separator.join([""] * len(frame.columns))  # a blank row
    lines[50] = lines[50].rsplit(separator, 1)[0]  # a cell is missing
    lines[60] += f"{separator}x"
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    "source", [LabelSource(label="label"), LabelSource(label="label", unlabeled="drop"), None]
)
def test_the_summary_is_the_same(table, tmp_path, monkeypatch, source):
    path = tmp_path / "table.csv"
    write(table, path)
    expected = summarize(open_table(path, source)).as_dict()
    monkeypatch.setattr(arrow_text, "MIN_LENGTH", 0)
    monkeypatch.setattr(
        streaming.read_parts, "__kwdefaults__", {**streaming.read_parts.__kwdefaults__, "size": 4000}
    )
    with open_stored_table(path, source) as stored:
        assert isinstance(stored.raw, StoredTable)
        assert arrow_text.is_arrow_text(stored.raw.cells("key"))
        summary = summarize(stored).as_dict()
        shorter = summarize(stored, without=["number"]).as_dict()
        with pytest.raises(ValueError, match=r"ignore: table\.csv has no column 'kex'; did you mean 'key'"):
            summarize(stored, without=["kex"])
    for name, value in expected.items():
        assert summary[name] == value, name
    assert shorter == summarize(open_table(path, source), without=["number"]).as_dict()
    assert shorter != expected


def test_numbers_of_parquet_files_stay_numbers(table, tmp_path):
    numbers = pd.DataFrame({"label": ["a", "b|a"] * 50, "x": np.arange(100) % 7, "y": np.linspace(0, 1, 100)})
    path = tmp_path / "parts"
    path.mkdir()
    numbers[:50].to_parquet(path / "1.parquet")
    numbers[50:].to_parquet(path / "2.parquet")
    source = LabelSource(label="label")
    with open_stored_table(path, source) as stored:
        summary = summarize(stored)
    expected = summarize(open_table(numbers, source))
    assert summary.columns == expected.columns
    assert summary.classes == expected.classes


def test_inspect_of_a_large_file_stores_its_columns(table, tmp_path, monkeypatch, capsys):
    path = tmp_path / "table.csv"
    write(table, path, ",")
    monkeypatch.setattr(streaming, "LARGE_BYTES", 1)
    with commands._open_any_size(path, None, None) as opened:
        assert isinstance(opened.raw, StoredTable)
