"""Where the labels of a table are."""

import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
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
        ({"item": "a"}, "item: needs the column of answers too"),
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


letters = st.characters(exclude_categories=["Cs", "Cc", "Cf", "Z"], exclude_characters='/",')
names = st.text(letters, min_size=1)
trees = st.dictionaries(names, st.lists(names, min_size=2, max_size=4, unique=True), min_size=1, max_size=3)


@given(trees)
def test_a_tree_is_read_as_it_was_written(tmp_path_factory, tree) -> None:
    folder = tmp_path_factory.mktemp("trees")
    # Names that tell the levels apart, so that no label is below itself.
    nested = {f"{name} group": [f"{name} {leaf}" for leaf in leaves] for name, leaves in tree.items()}
    edges = [[group, leaf] for group, leaves in nested.items() for leaf in leaves]
    paths = ["/".join(edge) for edge in edges]
    (folder / "t.json").write_text(json.dumps(nested), encoding="utf-8")
    (folder / "t.csv").write_text("".join(f"{group},{leaf}\n" for group, leaf in edges), encoding="utf-8")
    (folder / "t.txt").write_text("\n".join(paths), encoding="utf-8")
    assert read_hierarchy(folder / "t.json") == nested
    assert read_hierarchy(folder / "t.csv") == edges
    assert read_hierarchy(folder / "t.txt") == paths


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("t.json", '{"a":' * 5000 + "1" + "}" * 5000, r"t.json is not JSON \(it is nested too deeply\)"),
        ("t.json", '{"a": [["b"]], "c": 1}', r"t.json: \['b'\] below 'a' is not a label"),
        ("t.json", "[1, 2]", "t.json: got list of int; expected a nested mapping"),
        ("t.csv", 'a,b\na,"c\n', r"t.csv, line 2: a quotation mark is not closed"),
        ("t.csv", f"a,{'b' * 200_000}\n", "t.csv: got .*; a classifier needs at least two leaves"),
        ("t.txt", "a/b\na//c\n", "t.txt: the path 'a//c' has an empty part"),
        ("t.csv", "a,b\nb,a\n", "t.csv: .* is a cycle"),
    ],
)
def test_malformed_trees_are_named(tmp_path, name, text, problem) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=problem):
        read_hierarchy(tmp_path / name)


def test_a_tree_of_2000_levels(tmp_path) -> None:
    (tmp_path / "t.csv").write_text("".join(f"n{i},n{i + 1}\n" for i in range(2000)) + "n0,x\n")
    assert len(read_hierarchy(tmp_path / "t.csv")) == 2001


def test_a_bad_line_of_a_hierarchy_is_named_by_its_number_in_the_file(tmp_path):
    path = tmp_path / "tree.csv"
    path.write_text("parent,child\n\nbird,gull\nbird\n")
    with pytest.raises(ValueError, match="line 4: expected two names"):
        read_hierarchy(path)
    path.write_text("bird,gull\nbird,tern\n")
    assert read_hierarchy(path) == [["bird", "gull"], ["bird", "tern"]]
