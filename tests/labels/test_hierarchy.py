"""Labels of a hierarchy: a parent stands for its leaves."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from propall.labels import CandidateLabels
from propall.labels.hierarchy import read_tree

NESTED = {"bird": {"gull": ["herring gull", "mew gull"], "tern": None}, "fish": ["cod", "eel"]}
EDGES = [
    ("bird", "gull"),
    ("gull", "herring gull"),
    ("gull", "mew gull"),
    ("bird", "tern"),
    ("fish", "cod"),
    ("fish", "eel"),
]
PATHS = ["bird/gull/herring gull", "bird/gull/mew gull", "bird/tern", "fish/cod", "fish/eel"]
LEAVES = ("herring gull", "mew gull", "tern", "cod", "eel")
each_form = pytest.mark.parametrize("tree", [NESTED, EDGES, PATHS, pd.Series(PATHS)])


@each_form
def test_a_parent_is_its_leaves(tree) -> None:
    labels = CandidateLabels.from_hierarchy(tree, ["gull", "bird", "cod", "tern|fish", "!gull", "!bird|!cod"])
    assert labels.classes == LEAVES
    assert labels.sets() == [
        ("herring gull", "mew gull"),
        ("herring gull", "mew gull", "tern"),
        ("cod",),
        ("tern", "cod", "eel"),
        ("tern", "cod", "eel"),
        ("eel",),
    ]


@each_form
def test_rows_as_sets(tree) -> None:
    labels = CandidateLabels.from_hierarchy(tree, [{"gull", "cod"}, ["fish"], ("tern",), "eel"])
    assert labels.sets() == [("herring gull", "mew gull", "cod"), ("cod", "eel"), ("tern",), ("eel",)]


def test_whole_paths_are_names_too() -> None:
    labels = CandidateLabels.from_hierarchy(PATHS, ["bird/gull", "fish/cod", "gull"])
    assert labels.sets() == [("herring gull", "mew gull"), ("cod",), ("herring gull", "mew gull")]


def test_parts_that_occur_twice_are_named_by_their_paths() -> None:
    paths = ["cat/young", "cat/old", "dog/young", "dog/old"]
    labels = CandidateLabels.from_hierarchy(paths, ["cat", "dog/old"])
    assert labels.classes == tuple(paths)
    assert labels.sets() == [("cat/young", "cat/old"), ("dog/old",)]
    with pytest.raises(ValueError, match="'young' in row 0 is not in the tree"):
        CandidateLabels.from_hierarchy(paths, ["young", "cat"])


def test_a_label_below_two_others() -> None:
    tree = read_tree([("pet", "dog"), ("pet", "cat"), ("wild", "cat"), ("wild", "emu")])
    labels = CandidateLabels.from_hierarchy(tree, ["pet", "wild", "cat"])
    assert labels.strings() == ["dog|cat", "cat|emu", "cat"]


def test_lists_of_mappings() -> None:
    tree = {"animal": [{"bird": ["gull", "tern"]}, "cod"], "plant": "moss"}
    assert read_tree(tree).leaves == ("gull", "tern", "cod", "moss")


def test_numbers_are_names() -> None:
    labels = CandidateLabels.from_hierarchy({0: [1, 2], 3: [4, 5]}, [0, 4, 5])
    assert labels.sets() == [(1, 2), (4,), (5,)]


def test_unlabeled_rows_can_become_every_leaf() -> None:
    labels = CandidateLabels.from_hierarchy(NESTED, ["gull", "", None], empty="all")
    assert labels.sizes.tolist() == [2, 5, 5]
    with pytest.raises(ValueError, match="row"):
        CandidateLabels.from_hierarchy(NESTED, ["gull", ""])


@pytest.mark.parametrize(
    ("tree", "labels", "message"),
    [
        (NESTED, ["gul"], r"'gul' in row 0 is not in the tree \(did you mean 'gull'\?\)"),
        (NESTED, [{"cod", "sole"}], "'sole' in row 0"),
        (NESTED, ["!bird|!fish", "cod"], "1 row rules out every class"),
        ([("a", "b"), ("b", "a")], ["a"], "a > b > a is a cycle"),
        ([("r", "a"), ("a", "b"), ("b", "a"), ("b", "c"), ("b", "d")], ["a"], "a > b > a is a cycle"),
        ({"a": "b"}, ["a"], "needs at least two leaves"),
        ([], ["a"], "tree: it is empty"),
        ([("a", "")], ["a"], "unnamed end"),
        (["a//b"], ["a"], "has an empty part"),
        ([("a", "b", "c")], ["a"], r"expected a nested mapping"),
    ],
)
def test_errors(tree, labels, message) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        CandidateLabels.from_hierarchy(tree, labels)


def test_a_deep_tree() -> None:
    nested = {"a": ["x", "y"]}
    for depth in range(5000):
        nested = {f"level {depth}": nested}
    tree = read_tree(nested)
    assert tree.leaves == ("x", "y")
    assert tree.nodes[0] == "level 4999"


def test_order_of_a_mixed_tree() -> None:
    tree = read_tree({"a": [{"b": ["c", "d"]}, "e", {"f": None}], "g": "h"})
    assert tree.leaves == ("c", "d", "e", "f", "h")
    assert tree.nodes == ("a", "b", "c", "d", "e", "f", "g", "h")


def test_what_is_not_a_label() -> None:
    for tree in ({"a": [["b"]], "c": None}, {"a": {"b": [[1]]}}, [("a", ["b"]), ("a", "c")]):
        with pytest.raises(ValueError, match=r"tree: \[.*\] below '.' is not a label; expected a name"):
            read_tree(tree)


def test_a_tree_that_is_too_large(monkeypatch) -> None:
    monkeypatch.setattr("propall.labels.hierarchy.MAX_ENTRIES", 10)
    with pytest.raises(ValueError, match="tree: 8 labels over 5 leaves are too many"):
        read_tree(NESTED)


names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=5)


@given(st.dictionaries(names, st.sets(names, min_size=1, max_size=4), min_size=1, max_size=5))
def test_every_form_of_a_tree_reads_the_same(groups) -> None:
    """A nested mapping, its edges and its paths, with names that tell the levels apart."""
    nested = {
        f"group {name}": [f"{name}: {leaf}" for leaf in sorted(leaves)] for name, leaves in groups.items()
    }
    edges = [(group, leaf) for group, leaves in nested.items() for leaf in leaves]
    if len(edges) < 2:
        return
    trees = [read_tree(form) for form in (nested, edges, [f"{group}/{leaf}" for group, leaf in edges])]
    assert len({tree.leaves for tree in trees}) == 1
    inner = [tree.stands_for[[tree.nodes.index(group) for group in nested]].tolist() for tree in trees]
    assert inner[0] == inner[1] == inner[2]
