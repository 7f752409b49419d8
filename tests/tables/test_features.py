"""Encoding of columns, and the encoder saved to JSON and restored."""

import json

import numpy as np
import pandas as pd
import pytest

from propall.tables.features import Features, as_days, as_numbers, detect_kind
from propall.tables.images import ImageColumn
from propall.tables.reading import DataNote


def mixed(n=120):
    draw = np.random.default_rng(0)
    words = ["red bill", "black tip of wing", "long tail in flight", "pink legs and feet"]
    return pd.DataFrame(
        {
            "no": range(1, n + 1),
            "wing": [f"{x:.1f}" for x in draw.normal(300, 20, n)],
            "bill": [f"{x:.1f}".replace(".", ",") for x in draw.normal(30, 2, n)],
            "colour": draw.choice(["grey", "white", "black"], n),
            "seen": pd.date_range("2020-01-01", periods=n).astype(str),
            "notes": [f"{draw.choice(words)} and {draw.choice(words)} number {i}" for i in range(n)],
            "ring": [f"R{i:05d}" for i in range(n)],
            "place": ["harbour"] * n,
            "alive": draw.random(n) < 0.5,
            "typed": draw.normal(size=n),
            "void": [None] * n,
        },
        dtype=object,
    )


def soiled():
    frame = mixed()
    frame.loc[3, "wing"] = "about 300"
    frame.loc[4, "wing"] = ""
    frame.loc[5, "colour"] = "NA"
    frame.loc[6, "typed"] = np.inf
    frame.loc[7, "notes"] = None
    frame.loc[8, "seen"] = "last week"
    return frame


def test_what_columns_are() -> None:
    features = Features.fit(mixed())
    assert {c.name: c.kind for c in features.columns} == {
        "wing": "number",
        "bill": "number",
        "colour": "category",
        "seen": "date",
        "notes": "text",
        "alive": "number",
        "typed": "number",
    }
    left_out = {note.kind for note in features.notes if note.action == "column left out"}
    assert left_out == {"row numbers", "identifier", "constant column", "empty column"}


def test_the_numbers_are_scikit_learn_s() -> None:
    frame = mixed()
    X = Features.fit(frame, columns=["wing", "colour"]).transform(frame)
    wing = frame["wing"].astype(float).to_numpy()
    np.testing.assert_allclose(X[:, 0], (wing - wing.mean()) / wing.std(), rtol=1e-5)
    np.testing.assert_array_equal(X[:, 1:], pd.get_dummies(frame["colour"]).to_numpy())
    assert X.dtype == np.float32


def test_unreadable_cells_are_missing_and_reported() -> None:
    frame = soiled()
    features = Features.fit(frame)
    unreadable = {r.text.split(":")[0]: r.rows for r in features.notes if r.kind == "unreadable values"}
    assert unreadable == {"'wing'": (3,), "'seen'": (8,), "'typed'": (6,)}
    X = features.transform(frame)
    assert np.isfinite(X).all()
    gaps = features.transformer.named_transformers_["gaps"]
    marked = gaps.transform(features.prepared(frame)[gaps.feature_names_in_])
    flagged = {
        name: np.flatnonzero(column).tolist()
        for name, column in zip(gaps.feature_names_in_, marked.T, strict=True)
    }
    assert flagged == {"wing": [3, 4], "seen": [8], "typed": [6]}
    wing = as_numbers(frame["wing"])
    assert (
        X[3, 0]
        == X[4, 0]
        == np.float32((np.nanmedian(wing) - features.as_dict()["mean"][0]) / features.as_dict()["scale"][0])
    )


@pytest.mark.parametrize("make", [mixed, soiled])
def test_through_json_and_back_to_the_last_digit(make) -> None:
    frame = make()
    features = Features.fit(frame)
    again = Features.from_dict(json.loads(json.dumps(features.as_dict())))
    np.testing.assert_array_equal(again.transform(frame), features.transform(frame))
    other = mixed(30).assign(colour="mauve", wing="", notes="never heard of")
    np.testing.assert_array_equal(again.transform(other), features.transform(other))
    assert again.columns == features.columns


def test_new_rows_need_the_same_columns_and_nothing_else() -> None:
    features = Features.fit(mixed())
    assert (
        features.transform(mixed(5)[["typed", "wing", "bill", "colour", "seen", "notes", "alive"]]).shape[0]
        == 5
    )
    with pytest.raises(ValueError, match="the table has no column 'wing', 'notes'"):
        features.transform(mixed(5).drop(columns=["wing", "notes"]))


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1", " 2.5 ", "3,5", "-1e3", "TRUE"], [1, 2.5, 3.5, -1000, 1]),
        (["x", "", None, "nan", "inf", "1_000", "1,000,000"], [np.nan] * 7),
    ],
)
def test_numbers(cells, numbers) -> None:
    np.testing.assert_array_equal(as_numbers(pd.Series(cells, dtype=object)), numbers)


def test_typed_columns() -> None:
    np.testing.assert_array_equal(as_numbers(pd.Series([1, None], dtype="Int64")), [1, np.nan])
    np.testing.assert_array_equal(as_numbers(pd.Series([True, False])), [1, 0])
    dates = pd.Series(pd.to_datetime(["1970-01-02", None]))
    np.testing.assert_array_equal(as_days(dates), [1, np.nan])
    np.testing.assert_array_equal(as_days(pd.Series(["1970-01-02T12:00", "?"], dtype=object)), [1.5, np.nan])


@pytest.mark.parametrize("make", [str, float])
def test_numbers_of_which_many_are_infinite(make) -> None:
    cells = [make("inf") if i % 4 == 0 else make("-inf") if i % 4 == 1 else make(i / 8) for i in range(80)]
    features = Features.fit(pd.DataFrame({"ratio": pd.Series(cells, dtype=object)}))
    assert [(column.name, column.kind) for column in features.columns] == [("ratio", "number")]


def test_rare_values_share_no_column() -> None:
    frame = pd.DataFrame({"c": [f"v{i % 70}" for i in range(700)]}, dtype=object)
    features = Features.fit(frame)
    assert features.transform(frame).shape == (700, 50)
    assert "rare values" in {note.kind for note in features.notes}


def test_embeddings_with_and_without_columns() -> None:
    frame, E = mixed(), np.random.default_rng(1).normal(2, 3, (120, 4))
    alone = Features.fit(frame, embedding=E)
    np.testing.assert_allclose(
        alone.transform(frame, embedding=E), (E - E.mean(0)) / E.std(0), rtol=1e-5, atol=1e-6
    )
    both = Features.fit(frame, columns=["wing"], embedding=E)
    again = Features.from_dict(json.loads(json.dumps(both.as_dict())))
    np.testing.assert_array_equal(again.transform(frame, embedding=E), both.transform(frame, embedding=E))
    with pytest.raises(ValueError, match="missing; the model was fitted with"):
        both.transform(frame)
    with pytest.raises(ValueError, match=r"shape \(120, 3\); expected \(120, 4\)"):
        both.transform(frame, embedding=E[:, :3])
    E[7, 0] = np.nan
    with pytest.raises(ValueError, match=r"1 row with NaN or infinity .first: 8."):
        Features.fit(frame, embedding=E)


def test_nothing_to_learn_from() -> None:
    with pytest.raises(ValueError, match="no usable column is left"):
        Features.fit(pd.DataFrame({"c": ["x"] * 9}))


def test_images(tmp_path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    (tmp_path / "pictures").mkdir()
    draw = np.random.default_rng(0)
    names = []
    for i in range(4):
        shape = (20, 30, 3) if i else (24, 24)
        mode = draw.integers(0, 256, shape).astype(np.uint8)
        image.fromarray(mode).save(tmp_path / "pictures" / f"{i}.png")
        names.append(f"pictures/{i}.png")
    frame = pd.DataFrame({"file": names})
    features = Features.fit(frame, images=ImageColumn("file", 16), folder=tmp_path)
    X = features.transform(frame, folder=tmp_path)
    assert X.shape == (4, 3, 16, 16)
    np.testing.assert_allclose(X.mean((0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(X.std((0, 2, 3)), 1, atol=1e-5)
    again = Features.from_dict(json.loads(json.dumps(features.as_dict())))
    np.testing.assert_array_equal(again.transform(frame, folder=tmp_path), X)
    (tmp_path / "pictures" / "2.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"row 3: .*2.png cannot be read as an image"):
        features.transform(frame, folder=tmp_path)


@pytest.mark.parametrize(
    ("cells", "separator", "numbers", "note"),
    [
        (["1,234", "987", "12,500"], ",", [1234, 987, 12500], "'1,234' separate thousands"),
        (["1,234", "987", "12,500"], ";", [1.234, 987, 12.5], "'1,234' are decimal commas"),
        (["1,234", "987", "12,500,000"], ";", [1234, 987, 12500000], "separate thousands"),
        (["1,234.5", "987", "12,500"], None, [1234.5, 987, 12500], "separate thousands"),
        (["1,234", "98.7", "12,500"], None, [1234, 98.7, 12500], "separate thousands"),
        (["1,234", "2,345", "3,456"], ",", [1.234, 2.345, 3.456], "are decimal commas"),
        (["1,234", "98,7", "12"], ",", [1.234, 98.7, 12], None),
        (["0,234", "987", "12,500"], ",", [0.234, 987, 12.5], None),
    ],
)
def test_commas_in_numbers(cells, separator, numbers, note) -> None:
    frame = pd.DataFrame({"price": cells}, dtype=object)
    features = Features.fit(frame, separator=separator)
    assert features.prepared(frame)["price"].tolist() == numbers
    again = Features.from_dict(json.loads(json.dumps(features.as_dict())))
    assert again.prepared(frame)["price"].tolist() == numbers
    texts = [r.text for r in features.notes if r.kind == "commas"]
    assert len(texts) == (note is not None)
    assert note is None or note in texts[0]


@pytest.mark.parametrize(
    "cells",
    [
        ["31.12.2023", "1.2.2024", "03.04.2024"],
        ["31/12/2023", "1/2/2024", "03/04/2024"],
        ["12/31/2023", "2/1/2024", "04/03/2024"],
        ["31.12.2023 00:00", "1.2.2024 00:00", "03.04.2024 00:00"],
        ["1.12.2023", "1.2.2024", "03.04.2024"],
    ],
)
def test_dates_with_the_year_last(cells) -> None:
    frame = pd.DataFrame({"seen": cells}, dtype=object)
    features = Features.from_dict(json.loads(json.dumps(Features.fit(frame).as_dict())))
    first = "2023-12-01" if cells[0] == "1.12.2023" else "2023-12-31"
    iso = pd.Series([first, "2024-02-01", "2024-04-03"], dtype=object)
    assert features.columns[0].kind == "date"
    assert features.prepared(frame)["seen"].tolist() == as_days(iso).tolist()


def test_dates_that_may_be_two_are_left_out() -> None:
    frame = pd.DataFrame({"seen": ["1/2/2024", "3/4/2024", "5/6/2024"], "x": [1.5, 2.5, 3.0]}, dtype=object)
    features = Features.fit(frame)
    assert [column.name for column in features.columns] == ["x"]
    assert (
        str(features.notes[0])
        == "'seen' has dates whose day and month may be swapped; write them as 2023-12-31"
    )


def test_an_integer_that_no_float_can_hold_is_no_number():
    column = pd.Series([10**400, 1, 2.5], dtype=object)
    assert np.isnan(as_numbers(column)).tolist() == [True, False, False]


def test_numbers_may_have_a_unit() -> None:
    rng = np.random.default_rng(0)
    share, price, wing = rng.integers(0, 101, 60), rng.uniform(900, 5000, 60).round(2), rng.uniform(5, 9, 60)
    frame = pd.DataFrame(
        {
            "share": [f"{v}%" for v in share],
            "price": [f"-${v:,.2f}" for v in price],
            "wing": [f"{v:.2f} cm" for v in wing],
            "plain": rng.normal(size=60).astype(str),
        }
    )
    frame.loc[3, "wing"] = "70 mm"  # another unit: not readable
    frame.loc[4, "wing"], wing[4] = "8.25", 8.25  # no unit
    frame.loc[5, "share"] = ""
    for table in (frame, frame.astype("string[pyarrow]")):
        features = Features.fit(table)
        read = {column.name: column.read(table[column.name]) for column in features.columns}
        np.testing.assert_array_equal(np.delete(read["share"], 5), np.delete(share, 5))
        np.testing.assert_array_equal(read["price"], -price)
        np.testing.assert_allclose(np.delete(read["wing"], 3), np.delete(wing, 3), atol=0.006)
        assert np.isnan(read["wing"][3])
        assert [column.unit for column in features.columns] == ["%", "$", "cm", ""]
        assert features.describe()[1] == ("price", "number", "standardized ($)")
        restored = Features.from_dict(features.as_dict())
        np.testing.assert_array_equal(restored.transform(table), features.transform(table))
    assert "unit" not in features.as_dict()["columns"][3]


@pytest.mark.parametrize(
    "cells",
    [
        [f"S-{i:05d}" for i in range(60)],  # codes
        [f"{i}{'ab'[i % 2]}" for i in range(60)],  # house numbers
        [f"{i} {('cm', 'mm')[i % 2]}" for i in range(60)],  # several units
        [f"{i}%" if i % 2 else str(i / 100) for i in range(60)],  # shares of 100 and of 1
        ["3 m", "x", "y"] * 20,
    ],
)
def test_texts_with_digits_are_no_numbers_with_a_unit(cells) -> None:
    column = detect_kind(pd.Series(cells, name="c", dtype=object), [])
    assert column is None or column.kind != "number"


def test_unreadable_values_are_named_once() -> None:
    notes: list[DataNote] = []
    detect_kind(pd.Series([*map(str, range(60)), "inf", "inf", "inf"], name="ratio", dtype=object), notes)
    assert [note.text for note in notes] == ["'ratio': 'inf' is not a number; read as missing"]
