"""Where the labels of a table are."""

import json

import pandas as pd
import pytest
from jaxtyping import TypeCheckError

from propall.tables.label_source import LabelSource, guess_source, read_hierarchy
from propall.tables.reading import read_table


def test_the_usual_names_are_guessed() -> None:
    assert guess_source(read_table(pd.DataFrame({"x": [1], "Label": ["a"]}))).label == "Label"
    assert guess_source(read_table(pd.DataFrame({"x": [1]}))) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "a", "annotators": ("b",)}, "--label and --annotators are mutually exclusive"),
        ({"item": "a"}, "item: needs a label"),
        ({"label": "a", "annotator": "b"}, "annotator: needs an item"),
        ({"label": "a", "separator": ""}, "separator: empty"),
        ({"label": "a", "unlabeled": "burn"}, "unlabeled"),
    ],
)
def test_invalid_sources(options, message) -> None:
    with pytest.raises((ValueError, TypeCheckError), match=message):
        LabelSource(**options)


def test_a_source_survives_json() -> None:
    source = LabelSource(annotators=("a", "b"), rule=2, classes=("x", "y"), hierarchy={"p": ["x", "y"]})
    assert LabelSource.from_dict(json.loads(json.dumps(source.as_dict()))) == source


def test_a_missing_hierarchy_file(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match=r"hierarchy: .*nope.txt does not exist"):
        read_hierarchy(tmp_path / "nope.txt")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_a_hierarchy_in_the_encodings_of_tables(tmp_path, encoding) -> None:
    (tmp_path / "t.txt").write_text("Vögel/Möwe\nVögel/Krähe\n", encoding=encoding)
    assert read_hierarchy(tmp_path / "t.txt") == ["Vögel/Möwe", "Vögel/Krähe"]
