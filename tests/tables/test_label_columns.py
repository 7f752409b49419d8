"""Labels in every place a table may have them and in every form."""

import json
import time

import numpy as np
import pandas as pd
import pytest

from propall.labels.parsing import as_text
from propall.tables.label_columns import cell_kind, find_label_copies, open_table
from propall.tables.label_source import LabelSource, cell_fault, guess_source, read_hierarchy
from propall.tables.reading import read_table


def labeled(cells, **options):
    options = {"label": "label", **options}
    return open_table(pd.DataFrame({"label": cells}, dtype=object), LabelSource(**options)).labeled


def notes_of(found, kind):
    return [note for note in found.notes if note.kind == kind]


@pytest.mark.parametrize(
    ("cell", "names", "kind"),
    [
        ("cat", ("cat",), "one label"),
        (" cat ", ("cat",), "one label"),
        ("cat|dog", ("cat", "dog"), "several labels"),
        ("dog | cat|dog", ("dog", "cat"), "several labels"),
        ('["cat", "dog"]', ("cat", "dog"), "several labels"),
        (["cat", "dog"], ("cat", "dog"), "several labels"),
        (np.array(["cat"]), ("cat",), "one label"),
        ("[3, 4.0]", ("3", "4"), "several labels"),
        ("!cat", ("cat",), "ruled out"),
        ("! cat|!dog", ("cat", "dog"), "ruled out"),
        ("", (), "no label"),
        (None, (), "no label"),
        (float("nan"), (), "no label"),
        ("N/A", (), "no label"),
        ("[]", (), "no label"),
        (3, ("3",), "one label"),
        (3.0, ("3",), "one label"),
        (2.5, ("2.5",), "one label"),
        (True, ("True",), "one label"),
    ],
)
def test_cells(cell, names, kind) -> None:
    parsed = LabelSource().grammar.parse(as_text(cell))
    assert parsed.names == names
    assert cell_kind(parsed) == kind
    assert cell_fault(parsed) == ""


def test_malformed_cells() -> None:
    grammar = LabelSource().grammar
    assert cell_fault(grammar.parse("cat|!dog"))
    assert cell_fault(grammar.parse("!"))
    assert grammar.parse("cat||dog|").stray
    grammar = LabelSource(classes=("a|b", "NA", "!a")).grammar
    assert grammar.parse("a|b").names == ("a|b",)
    assert grammar.parse("NA").names == ("NA",)
    assert cell_kind(grammar.parse("!a")) == "one label"


def test_a_column_of_every_form() -> None:
    cells = ["cat"] * 40 + [
        "dog|cat",
        "!emu",
        "",
        '["emu", "dog"]',
        "ctt",
        "Cat",
        "emu|!dog",
        "dog|",
        "emu",
        "dog",
    ]
    found = labeled(cells)
    assert found.labels.classes == ("cat", "ctt", "dog", "emu")  # three letters are too few to call it a typo
    assert found.kind_counts == {"one label": 45, "several labels": 2, "ruled out": 1, "no label": 1}
    assert [note.rows for note in notes_of(found, "unusable label")] == [(46,)]
    assert [note.rows for note in notes_of(found, "typo")] == [(45,)]
    assert [note.rows for note in notes_of(found, "stray separator")] == [(47,)]
    assert [note.rows for note in notes_of(found, "unlabeled")] == [(42,)]
    assert [note.rows for note in notes_of(found, "label seen once")] == [(44,)]
    assert len(found.rows) == len(found.labels) == 49
    strings = dict(zip(found.rows.tolist(), found.labels.strings(), strict=True))
    assert strings[40] == "cat|dog"
    assert strings[41] == "cat|ctt|dog"
    assert strings[42] == "cat|ctt|dog|emu"
    assert strings[45] == "cat"


def test_no_repair() -> None:
    found = labeled(["gull"] * 50 + ["gul", "tern"], repair=False)
    assert found.labels.classes == ("gul", "gull", "tern")
    assert notes_of(found, "typo") == []


def test_unlabeled_rows_can_be_dropped() -> None:
    found = labeled(["a", "b", "", None], unlabeled="drop")
    assert found.rows.tolist() == [0, 1]
    assert [note.action for note in notes_of(found, "unlabeled")] == ["row dropped"]


def test_listed_classes_are_the_only_ones() -> None:
    found = labeled(["gull", "tern", "gul", "skua", "!tern"], classes=("tern", "gull", "auk"))
    assert found.labels.classes == ("tern", "gull", "auk")
    assert found.rows.tolist() == [0, 1, 2, 4]
    assert "'skua' is not a class" in str(notes_of(found, "unusable label")[0])
    assert [r.text for r in notes_of(found, "class never named")] != []


def test_numbers_are_sorted_by_size() -> None:
    assert labeled([10, 9, 9.0, "2", "10|2"]).labels.classes == ("2", "9", "10")


def test_other_separators() -> None:
    assert labeled(["a/b", "c"], separator="/").labels.strings() == ["a|b", "c"]


def test_a_hierarchy(tmp_path) -> None:
    tree = {"bird": ["gull", "tern"], "fish": ["cod"]}
    found = labeled(["bird", "cod", "!gull", "brd", "gul", "whale"], hierarchy=tree)
    assert found.labels.classes == ("gull", "tern", "cod")
    assert found.labels.strings() == ["gull|tern", "cod", "tern|cod", "gull|tern", "gull"]
    assert [note.rows for note in notes_of(found, "unusable label")] == [(5,)]
    for name, text in [
        ("t.json", json.dumps(tree)),
        ("t.csv", "parent,child\nbird,gull\nbird,tern\nfish,cod\n"),
        ("t.txt", "bird/gull\nbird/tern\n\nfish/cod\n"),
    ]:
        (tmp_path / name).write_text(text)
        again = labeled(["bird", "cod"], hierarchy=read_hierarchy(tmp_path / name))
        assert again.labels.strings() == ["gull|tern", "cod"]
    (tmp_path / "t.csv").write_text("a,b,c\n")
    with pytest.raises(ValueError, match="line 1: expected two names"):
        read_hierarchy(tmp_path / "t.csv")


ANSWERS = pd.DataFrame(
    {
        "ann": ["cat", "cat", "", "dog", "!cat"],
        "bob": ["cat", "dog", None, "dog|emu", "dog"],
        "eve": ["cat", "emu", "NA", "", "dog"],
        "x": [1, 2, 3, 4, 5],
    },
    dtype=object,
)


@pytest.mark.parametrize(
    ("rule", "strings"),
    [
        ("union", ["cat", "cat|dog|emu", "cat|dog|emu", "dog|emu"]),
        ("plurality", ["cat", "cat|dog|emu", "cat|dog|emu", "dog"]),
        (2, ["cat", "cat|dog|emu", "cat|dog|emu", "dog"]),
    ],
)
def test_annotators(rule, strings) -> None:
    found = open_table(ANSWERS, LabelSource(annotators=("ann", "bob", "eve"), rule=rule)).labeled
    assert found.labels.strings() == strings
    assert found.kind_counts == {"disagree": 2, "all agree": 1, "no label": 1}
    assert found.counts.tolist() == [[3, 0, 0], [1, 1, 1], [0, 0, 0], [0, 2, 1]]
    assert found.answers.tolist() == [[0, 0, 0], [0, 1, 2], [-1, -1, -1], [1, -1, -1]]
    assert "cannot be counted" in str(notes_of(found, "unusable label")[0])
    assert bool(notes_of(found, "no agreement")) == (rule == 2)


def test_votes() -> None:
    frame = pd.DataFrame({"cat": ["2", "0", "", "x"], "dog": ["1", "0", "3", "1"]}, dtype=object)
    found = open_table(frame, LabelSource(votes=("cat", "dog"), rule="plurality")).labeled
    assert found.labels.strings() == ["cat", "cat|dog", "dog"]
    assert found.kind_counts == {"several labels": 1, "no label": 1, "one label": 1}
    assert [note.rows for note in notes_of(found, "unusable label")] == [(3,)]
    assert [note.rows for note in notes_of(found, "blank votes")] == [(2,)]


def test_long_form() -> None:
    frame = pd.DataFrame(
        {
            "item": ["x", "y", "x", "", "y", "z"],
            "who": list("abcabc"),
            "answer": ["cat", "dog", "emu", "cat", "dog", None],
            "size": [1, 2, 1, 9, 3, 4],
        },
        dtype=object,
    )
    table = open_table(frame.assign(wing=[5, 6, 5, 7, 6, 7]), LabelSource(label="answer", item="item"))
    assert table.labeled.labels.strings() == ["cat|emu", "dog", "cat|dog|emu"]
    assert table.frame.columns.tolist() == ["item", "answer", "wing"]  # who and size vary within an item
    assert table.frame["wing"].tolist() == [5, 6, 7]
    assert table.frame["answer"].tolist() == ["cat | emu", "dog | dog", ""]  # all of them, not the first
    kinds = {note.kind: note.rows for note in table.notes}
    assert kinds["missing item"] == (3,)
    assert "varying cells" in kinds
    named = open_table(frame, LabelSource(label="answer", item="item", annotator="who")).labeled
    assert named.annotators == ("a", "b", "c")
    assert named.answers.tolist() == [[0, -1, 2], [-1, 1, -1], [-1, -1, -1]]


def test_label_studio(tmp_path) -> None:
    def answer(*choices):
        return {"result": [{"type": "choices", "from_name": "animal", "value": {"choices": list(choices)}}]}

    tasks = [
        {"data": {"text": "meow"}, "annotations": [answer("cat"), answer("dog")]},
        {"data": {"text": "woof"}, "annotations": [answer("dog")]},
        {"data": {"text": "..."}, "annotations": []},
    ]
    path = tmp_path / "export.json"
    path.write_text(json.dumps(tasks))
    source = guess_source(read_table(path))
    table = open_table(path, source)
    assert table.labeled.labels.strings() == ["cat|dog", "dog", "cat|dog"]
    assert table.frame["text"].tolist() == ["meow", "woof", "..."]
    assert table.labeled.answers is None  # nobody signed
    for task in tasks:
        for place, annotation in enumerate(task["annotations"]):
            annotation["completed_by"] = 7 if place else {"id": 3, "email": "ann@x.org"}
    tasks[1]["annotations"].append({**answer("cat"), "completed_by": 7, "was_cancelled": True})
    path.write_text(json.dumps(tasks))
    signed = open_table(path, source).labeled
    assert signed.annotators == ("7", "ann@x.org")
    assert signed.answers.tolist() == [[1, 0], [-1, 1], [-1, -1]]


def test_columns_that_are_not_labels() -> None:
    with pytest.raises(ValueError, match="60 different labels in 60 rows; check the column"):
        labeled([f"note {i} of a person {i * 7}" for i in range(60)])
    with pytest.raises(ValueError, match="has 1 class; expected at least two"):
        labeled(["cat", "cat"])
    with pytest.raises(ValueError, match=r"1 class; .* 2 rows cannot be used: 'a\|!c' lists both candidates"):
        labeled(["a|!c", "!c", "b|!c"])
    with pytest.raises(ValueError, match="did you mean 'label'"):
        labeled(["a", "b"], label="labl")


def test_invalid_rules() -> None:
    frame = pd.DataFrame({"x": [1, 2, 3], "a": ["u", "v", "u"], "b": ["u", "u", "v"], "c": ["v", "v", "u"]})
    with pytest.raises(ValueError, match="rule: got 'foo'; expected union, plurality or a number"):
        LabelSource(label="a", rule="foo")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rule: got 5 votes for 3 annotators; expected 1 to 3"):
        LabelSource(annotators=("a", "b", "c"), rule=5)
    with pytest.raises(ValueError, match="rule: 'plurality' needs the answers of several annotators"):
        open_table(frame, LabelSource(label="a", rule="plurality"))


def test_columns_that_are_not_votes() -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": draw.integers(3, size=40), "b": draw.integers(1, 3, size=40), "x": draw.normal(size=40)}
    )
    with pytest.raises(
        ValueError, match=r"votes: 'x' has cells that are not vote counts, such as '.*in 40 of 40 rows"
    ):
        open_table(frame, LabelSource(votes=("a", "b", "x")))
    odd = frame.astype({"a": object})
    odd.loc[[3, 5, 7], "a"] = ["many", "few", -1]
    table = open_table(odd, LabelSource(votes=("a", "b"), rule=2))
    assert table.labeled is not None
    (dropped,) = [r for r in table.notes if r.action == "row dropped"]
    assert str(dropped) == "'a' has cells that are not vote counts, such as 'many' (rows 4, 6, 8)"
    assert any(r.kind == "no agreement" for r in table.notes)


def test_copies_of_labels_are_found_in_every_form() -> None:
    cells = ["cat|dog", "dog", "!cat", "cat", "", "emu|dog"]
    frame = pd.DataFrame(
        {
            "x": [1, 2, 3, 4, 5, 6],
            "y": ["cat|dog", "cow", "yak", "cat", "gnu", "emu"],
            "label": cells,
            "copy": [cell.upper() for cell in cells],
            "truth": ["cat", "dog", "dog", "cat", "emu", "emu"],
        }
    )
    assert list(find_label_copies(open_table(frame, LabelSource(label="label")), ("label",))) == [
        "copy",
        "truth",
    ]


def test_labels_that_look_the_same_are_one_class() -> None:
    spellings = [
        "caf\u00e9",
        "cafe\u0301",
        "caf\u00e9\u200b",
        "\ufeffcaf\u00e9",
        "ca\u00adf\u00e9",
        "\u202acaf\u00e9\u202c",
    ]
    found = labeled([*spellings, "bar", "bar"])
    assert found.labels.classes == ("bar", "caf\u00e9")
    (note,) = notes_of(found, "invisible characters")
    assert note.rows == (1, 2, 3, 4, 5)
    assert "cafe\\u0301" in note.text
    answers = pd.DataFrame({"a": spellings, "b": ["bar"] * 6})
    assert open_table(answers, LabelSource(annotators=("a", "b"))).labeled.labels.classes == (
        "bar",
        "caf\u00e9",
    )
    decomposed = labeled([*spellings, "bar"], classes=("cafe\u0301", "bar"))
    assert decomposed.labels.to_numpy().sum(0).tolist() == [6, 1]


def test_spellings_of_a_number_are_one_class() -> None:
    found = labeled(["1", "1.0", "01", "1"] * 25 + ["2"] * 20 + ["3.1", "3.10"] * 20)
    assert found.labels.classes == ("1", "2", "3.1", "3.10")  # versions are not numbers
    assert {note.text for note in notes_of(found, "typo")} == {"'1.0' is read as '1'", "'01' is read as '1'"}


def test_names_that_may_mean_no_label_are_noted() -> None:
    found = labeled(["cat", "dog", "unknown", "Not sure", "n/a"] * 5)
    assert [note.text for note in notes_of(found, "unclear class")] == [
        "'Not sure' is a class (5 rows); leave cells empty if it means no label",
        "'unknown' is a class (5 rows); leave cells empty if it means no label",
    ]


def test_minus_one_beside_numbered_classes_may_mean_no_label() -> None:
    (note,) = notes_of(labeled(["0", "1", "-1", "2"] * 5), "unclear class")
    assert note.text == "'-1' is a class (5 rows); leave cells empty if it means no label"
    for cells in (["-1", "1"], ["-1", "good", "bad"]):
        assert notes_of(labeled(cells * 5), "unclear class") == []


def test_labels_seen_once_make_one_note() -> None:
    found = labeled(["cat", "dog"] * 10 + ["emu", "yak", "owl"])
    (note,) = notes_of(found, "label seen once")
    assert note.text.startswith("3 classes are in one row only: 'emu', 'owl', 'yak'")
    assert note.rows == (20, 22, 21)


def test_class_order_does_not_depend_on_the_hash_seed() -> None:
    # All of them are the number 1: in the order of a set, only the hash seed would decide.
    names = [f"{'0' * i}1" for i in range(10)] + [f"1.{'0' * i}" for i in range(1, 10)]
    assert labeled([*names, "2"], repair=False).labels.classes == (*sorted(names), "2")
    assert labeled(["inf", "10", "9"], repair=False).labels.classes == ("10", "9", "inf")


def test_free_text_is_refused_quickly() -> None:
    draw = np.random.default_rng(0)
    words = ["".join(chr(97 + i) for i in draw.integers(0, 26, 6)) for _ in range(400)]
    texts = [" ".join(draw.choice(words, 150)) for _ in range(500)]
    start = time.process_time()
    with pytest.raises(ValueError, match=r"column 'label' of data frame has 500 different labels"):
        labeled(texts)
    with pytest.raises(ValueError, match="different labels"):
        labeled([f"{'x' * 100_000}{i}" for i in range(60)])
    assert time.process_time() - start < 5


def test_answers_of_propall_are_neither_labels_nor_features() -> None:
    frame = pd.DataFrame(
        {"x": [1.5, 2, 4] * 5, "label": ["a", "b", "a"] * 5, "propall_label": ["a", "b", "a"] * 5}
    )
    table = open_table(frame, LabelSource(label="label"))
    assert find_label_copies(table, ("label",)) == {}


def test_several_choices_need_a_name(tmp_path) -> None:
    def result(name, label):
        return {"type": "choices", "from_name": name, "value": {"choices": [label]}}

    results = [result("animal", "cat"), result("color", "gray")]
    tasks = [{"data": {"x": i}, "annotations": [{"result": results}]} for i in range(3)]
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(tasks))
    with pytest.raises(ValueError, match=r"tasks.json .* has the choices 'animal', 'color'; choose one"):
        open_table(path, guess_source(read_table(path)))
    path.write_text(json.dumps([{"data": {"x": 1}, "annotations": []}]))
    with pytest.raises(ValueError, match=r"label: tasks.json .*: no annotation has choices"):
        open_table(path, guess_source(read_table(path)))
