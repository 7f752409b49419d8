"""Columns to numbers: what kind each is, the scikit-learn transformer that reads it, and that one as JSON."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from propall.estimators.search import COPIES
from propall.labels.parsing import is_missing
from propall.tables.images import ImageColumn
from propall.tables.label_columns import as_text
from propall.tables.reading import Remark
from propall.wording import listed

Kind = Literal["number", "date", "category", "text"]
#: How numbers and dates are written: `1.5` or `1,5` and 2023-12-31, `1,234`, 31.12.2023, 12/31/2023.
Form = Literal["usual", "thousands", "day first", "month first"]

#: Words in a cell that stand for a missing value.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "<na>", "?", "-", "--", "."})
#: A column is numbers if this share of its cells is; the others are then missing.
MOSTLY = 0.9
#: Most values of a category that get a column of their own, and most terms of a text column.
CATEGORIES, TERMS = 50, 1000
#: Dates are counted in days from here.
EPOCH, DAY = pd.Timestamp("1970-01-01", tz="UTC"), pd.Timedelta(days=1)


@dataclass(frozen=True)
class FeatureColumn:
    """A column of the table and how it is read.

    Attributes:
        name: of the column.
        kind: numbers and dates are standardised, categories get a column each, text is weighted by TF-IDF.
        gaps: whether values were missing; a column of 0 and 1 then says where.
        values: the categories, or the terms of a text.
        form: how its numbers or dates are written.
    """

    name: str
    kind: Kind
    gaps: bool = False
    values: tuple[str, ...] = ()
    form: Form = "usual"

    def read(self, cells: "pd.Series[Any]") -> NDArray[Any]:
        """The cells, clean: numbers as numbers, words as words, gaps as gaps."""
        if self.kind == "number":
            return as_numbers(cells, self.form)
        return as_days(cells, self.form) if self.kind == "date" else as_words(cells)

    def says(self) -> str:
        """What becomes of it, in words."""
        if self.kind == "category":
            return f"one column for each of {len(self.values)} values"
        if self.kind == "text":
            return f"TF-IDF of {len(self.values)} terms"
        filled = ", gaps filled with the median and marked" if self.gaps else ""
        return f"standardised{' (days)' if self.kind == 'date' else ''}{filled}"


@dataclass
class Features:
    """What a row's columns become.

    Attributes:
        columns: the columns that are used.
        transformer: scikit-learn's, fitted.
        embedding: mean and scale of precomputed features that stand beside the columns.
        images: the column of image files, the size they are brought to, mean and scale of each channel.
        remarks: columns that were left out or repaired.
    """

    columns: tuple[FeatureColumn, ...]
    transformer: ColumnTransformer | None = None
    embedding: tuple[NDArray[Any], NDArray[Any]] | None = None
    images: ImageColumn | None = None
    remarks: list[Remark] = field(default_factory=list)

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        *,
        columns: Sequence[str] | None = None,
        without: Sequence[str] = (),
        embedding: NDArray[Any] | None = None,
        images: ImageColumn | None = None,
        folder: Path | None = None,
        separator: str | None = None,
    ) -> Self:
        """Find out what each column is, and learn how to read it.

        Args:
            frame: rows to learn from.
            columns: the only ones to use; all by default, none beside embeddings and images.
            without: columns that are not features, such as the labels.
            embedding: (n, d) precomputed features of the rows.
            images: a column of image files.
            folder: where relative paths of images start from.
            separator: between the columns of the file, if it has one: commas in numbers depend on it.
        """
        if images is not None and (embedding is not None or columns):
            raise ValueError(
                "images: they are learnt from alone; leave out columns and embeddings, or compute embeddings "
                "of the images and give those with the columns."
            )
        if columns is None and (embedding is not None or images is not None):
            columns = ()
        wanted = (
            [str(c) for c in frame.columns if str(c) not in without] if columns is None else list(columns)
        )
        remarks: list[Remark] = []
        found = []
        for name in wanted:
            kind = _kind_of(frame[name], remarks, asked=columns is not None, separator=separator)
            if kind is not None:
                found.append(kind)
        if images is not None:
            images = images.fit(frame, folder or Path())
        if not found and embedding is None and images is None:
            why = [remark.text for remark in remarks if remark.action == "column left out"]
            pictures = [name for name in wanted if _names_images(frame[name])]
            hint = f"Learn from images with --images {shlex.quote(pictures[0])}" if pictures else ""
            raise ValueError(
                f"features: no column is left to learn from{': ' * bool(why)}{'; '.join(why)}. "
                f"{hint or 'Name some with --features'}."
            )
        read = cls(tuple(found), None, None, images, remarks)
        if found:
            read._fit_transformer(frame)
        if embedding is not None:
            values = _checked_embedding(embedding, len(frame), None)
            scale = values.std(0)
            read.embedding = (values.mean(0), np.where(scale > 0, scale, 1.0))
        return read

    def _fit_transformer(self, frame: pd.DataFrame) -> None:
        prepared = self.prepared(frame)
        texts = [column for column in self.columns if column.kind == "text"]
        for column in texts:
            vectorizer = _vectorizer(None, least=2 if len(frame) >= 100 else 1)
            try:
                vectorizer.fit(prepared[column.name])
                known = replace(column, values=tuple(vectorizer.get_feature_names_out().tolist()))
                self.columns = tuple(known if c is column else c for c in self.columns)
            except ValueError:
                self.columns = tuple(c for c in self.columns if c is not column)
                text = f"{column.name!r} has no words that occur more than once"
                self.remarks.append(Remark("wordless text", text, "column left out"))
        self.transformer = _transformer(self.columns).fit(prepared)

    def prepared(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The used columns with clean cells, see `FeatureColumn.read`."""
        absent = [column.name for column in self.columns if column.name not in frame.columns]
        if absent:
            raise ValueError(
                f"features: the table lacks {', '.join(map(repr, absent))}, which the model was fitted with; "
                "add the column under this name."
            )
        return pd.DataFrame(
            {column.name: column.read(frame[column.name]) for column in self.columns}, index=frame.index
        )

    def transform(
        self, frame: pd.DataFrame, *, embedding: NDArray[Any] | None = None, folder: Path | None = None
    ) -> NDArray[np.float32]:
        """Features of the rows: (n, d), or (n, 3, size, size) for images."""
        if self.images is not None:
            return self.images.transform(frame, folder or Path())
        parts: list[NDArray[Any]] = []
        if self.transformer is not None:
            parts.append(np.asarray(self.transformer.transform(self.prepared(frame))))
        if (embedding is None) != (self.embedding is None):
            given, fitted = ("none", "with") if embedding is None else ("some", "without")
            raise ValueError(f"embeddings: {given} given; the model was fitted {fitted} them.")
        if embedding is not None and self.embedding is not None:
            mean, scale = self.embedding
            parts.append((_checked_embedding(embedding, len(frame), len(mean)) - mean) / scale)
        return np.hstack(parts).astype(np.float32)

    def unfamiliar(self, frame: pd.DataFrame) -> list[Remark]:
        """Cells of other rows that cannot be read, or hold a category that was not there to learn from."""
        prepared = self.prepared(frame)
        remarks: list[Remark] = []
        for column in self.columns:
            cells, gaps = prepared[column.name], frame[column.name].map(is_gap).to_numpy(dtype=bool)
            if column.kind in ("number", "date"):
                _with_unreadable(
                    column.name, column.kind, frame[column.name], cells.to_numpy(), gaps, remarks
                )
            elif column.kind == "category":
                new = (~cells.isin(column.values)).to_numpy() & ~gaps
                if new.any():
                    names = listed(list(dict.fromkeys(cells[new])), 3)
                    rows = tuple(int(row) for row in frame.index[new])
                    text = (
                        f"{column.name!r}: {names} got no column in the fit; read as none of those that did"
                    )
                    remarks.append(Remark("unknown category", text, "noted", rows))
        return remarks

    def says(self) -> list[tuple[str, str, str]]:
        """Name, kind and treatment of everything that is used."""
        rows: list[tuple[str, str, str]] = [(c.name, c.kind, c.says()) for c in self.columns]
        if self.embedding is not None:
            rows.append(("embeddings", "numbers", f"{len(self.embedding[0])} columns, standardised"))
        if self.images is not None:
            rows.append((self.images.name, "images", self.images.says()))
        return rows

    def as_dict(self) -> dict[str, Any]:
        """Everything that was learnt, as plain JSON; `from_dict` reads it back to the last digit."""
        values: dict[str, Any] = {
            "columns": [
                {"name": c.name, "kind": c.kind, "gaps": c.gaps, "values": list(c.values), "form": c.form}
                for c in self.columns
            ]
        }
        if self.transformer is not None:
            named = self.transformer.named_transformers_
            if "numbers" in named:
                numbers = named["numbers"]
                values["median"] = numbers["impute"].statistics_.tolist()
                values["mean"] = numbers["scale"].mean_.tolist()
                values["scale"] = numbers["scale"].scale_.tolist()
            values["idf"] = {
                c.name: named[f"text {c.name}"].idf_.tolist() for c in self.columns if c.kind == "text"
            }
        if self.embedding is not None:
            values["embedding"] = [part.tolist() for part in self.embedding]
        if self.images is not None:
            values["images"] = self.images.as_dict()
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Rebuild from `as_dict`: the same transformer, fitted, without the rows it was fitted on."""
        columns = tuple(
            FeatureColumn(c["name"], c["kind"], c["gaps"], tuple(c["values"]), c.get("form", "usual"))
            for c in values["columns"]
        )
        embedding = values.get("embedding")
        read = cls(
            columns, None, None if embedding is None else (np.array(embedding[0]), np.array(embedding[1]))
        )
        if "images" in values:
            read.images = ImageColumn.from_dict(values["images"])
        if columns:
            read.transformer = _refitted(columns, values)
        return read


def on_copies(alike: NDArray[np.int64], rows: pd.Index) -> list[Remark]:
    """A remark on rows that have the same features as another, if there are any.

    Args:
        alike: a number from 0 on for each row, the same for equal ones.
        rows: their places in the file.
    """
    times = np.bincount(alike)[alike]
    copies = (times > 1) & (times <= COPIES)
    if not copies.any():
        return []
    text = f"{int(copies.sum())} rows have the same features as another"
    return [Remark("repeated rows", text, "held out together", tuple(int(row) for row in rows[copies]))]


def _transformer(columns: Sequence[FeatureColumn]) -> ColumnTransformer:
    """The transformer of these columns, not yet fitted; all that can be said beforehand is said."""

    def of(*kinds: str) -> list[str]:
        return [column.name for column in columns if column.kind in kinds]

    numbers, categories = of("number", "date"), of("category")
    gaps = [c.name for c in columns if c.gaps and c.kind in ("number", "date")]
    parts: list[tuple[str, Any, Any]] = []
    if numbers:
        steps = [
            ("impute", SimpleImputer(strategy="median", keep_empty_features=True)),
            ("scale", StandardScaler()),
        ]
        parts.append(("numbers", Pipeline(steps), numbers))
    if gaps:
        parts.append(("gaps", MissingIndicator(features="all", error_on_new=False), gaps))
    if categories:
        values = [np.array(c.values, dtype=object) for c in columns if c.kind == "category"]
        encoder = OneHotEncoder(categories=values, handle_unknown="ignore", sparse_output=False)
        parts.append(("categories", encoder, categories))
    for column in columns:
        if column.kind == "text":
            parts.append((f"text {column.name}", _vectorizer(column.values or None), column.name))
    return ColumnTransformer(parts, sparse_threshold=0.0, verbose_feature_names_out=False)


def _vectorizer(terms: Sequence[str] | None, least: int = 1) -> TfidfVectorizer:
    return TfidfVectorizer(
        vocabulary=None if terms is None else list(terms),
        max_features=TERMS if terms is None else None,
        min_df=least,
        sublinear_tf=True,
        strip_accents="unicode",
        token_pattern=r"(?u)\b\w+\b",
    )


def _refitted(columns: Sequence[FeatureColumn], values: Mapping[str, Any]) -> ColumnTransformer:
    # A stand-in row gives the parts their shapes; then what was learnt is written over it.
    stand_in: dict[str, Any] = {"number": 0.0, "date": 0.0, "text": "word"}
    row = {c.name: [c.values[0] if c.kind == "category" else stand_in[c.kind]] for c in columns}
    transformer = _transformer(columns).fit(pd.DataFrame(row))
    named = transformer.named_transformers_
    if "numbers" in named:
        named["numbers"]["impute"].statistics_ = np.array(values["median"])
        scaler = named["numbers"]["scale"]
        scaler.mean_, scaler.scale_ = np.array(values["mean"]), np.array(values["scale"])
        scaler.var_ = scaler.scale_**2
    for name, idf in values["idf"].items():
        named[f"text {name}"].idf_ = np.array(idf)
    return transformer


def _checked_embedding(values: NDArray[Any], rows: int, width: int | None) -> NDArray[np.float64]:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or len(values) != rows or (width is not None and values.shape[1] != width):
        expected = f"({rows}, {'d' if width is None else width})"
        raise ValueError(
            f"embeddings: shape {values.shape}; expected {expected}, one row for each of the table."
        )
    bad = ~np.isfinite(values).all(1)
    if bad.any():
        raise ValueError(
            f"embeddings: {int(bad.sum())} rows hold NaN or infinity (first: {int(bad.argmax()) + 1}); "
            "compute them again or drop these rows from both files."
        )
    return values


# Cells of one column, whatever they are written as.


def is_gap(value: Any) -> bool:
    """Whether a cell is empty or says that nothing is known."""
    return value.strip().lower() in MISSING if isinstance(value, str) else is_missing(value)


def as_numbers(column: "pd.Series[Any]", form: Form = "usual") -> NDArray[np.float64]:
    """Numbers; what is none is NaN. `1,500` is 1.5, or 1500 where commas separate thousands."""
    if pd.api.types.is_bool_dtype(column.dtype) or pd.api.types.is_numeric_dtype(column.dtype):
        numbers = column.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        numbers = np.array([_number(value, form) for value in column], dtype=np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)


_COMMA = re.compile(r"[+-]?\d+,\d+")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")


def _number(value: Any, form: Form = "usual") -> float:
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in ("true", "false"):
            return float(text.lower() == "true")
        if form == "thousands":
            text = text.replace(",", "") if _THOUSANDS.fullmatch(text) else text
        elif _COMMA.fullmatch(text):
            text = text.replace(",", ".")
        # Python reads 1_000 as a number; files do not mean one by it.
        return np.nan if "_" in text else _float(text)
    return np.nan if is_missing(value) else _float(value)


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan


def _form_of_numbers(name: str, words: Sequence[str], separator: str | None, remarks: list[Remark]) -> Form:
    """What commas in numbers mean, with a remark where they may mean two things."""
    with_comma = [word for word in words if re.fullmatch(r"[+-]?[\d.,]*,[\d.,]*", word)]
    if not with_comma or not all(map(_THOUSANDS.fullmatch, with_comma)):
        return "usual"
    others = [word for word in words if "," not in word and np.isfinite(_float(word))]
    certain = any(word.count(",") > 1 or "." in word for word in with_comma) or any("." in w for w in others)
    # A decimal comma would have to be quoted in every cell of a file whose columns commas separate.
    thousands = certain or (separator == "," and bool(others))
    means = "separate thousands" if thousands else "are decimal commas"
    remarks.append(Remark("commas", f"{name!r}: commas as in {with_comma[0]!r} {means}", "repaired"))
    return "thousands" if thousands else "usual"


_OTHER_DATE = re.compile(r"(\d{1,2})([./])(\d{1,2})\2(\d{4})([T ].*)?")


def _form_of_dates(words: "pd.Series[Any]") -> Form | None:
    """The order of day and month where the year comes last; None where it cannot be told."""
    found = [match for word in words if (match := _OTHER_DATE.fullmatch(word))]
    days, months = (sum(int(match[part]) > 12 for match in found) for part in (1, 3))
    if days == months:
        return "day first" if all(match[2] == "." for match in found) else None
    return "day first" if days > months else "month first"


def _year_first(cell: Any, form: Form) -> Any:
    match = _OTHER_DATE.fullmatch(cell.strip()) if isinstance(cell, str) else None
    if match is None:
        return cell
    day, month = (match[1], match[3]) if form == "day first" else (match[3], match[1])
    return f"{match[4]}-{month:0>2}-{day:0>2}{match[5] or ''}"


def as_days(column: "pd.Series[Any]", form: Form = "usual") -> NDArray[np.float64]:
    """Dates as days since 1970; what is none is NaN."""
    if form != "usual":
        column = column.map(lambda cell: _year_first(cell, form))
    dates = pd.to_datetime(column.where(~column.map(is_gap)), errors="coerce", utc=True, format="ISO8601")
    return np.asarray((dates - EPOCH) / DAY, dtype=np.float64)


def as_words(column: "pd.Series[Any]") -> NDArray[np.object_]:
    """Text; empty where it is missing."""
    return np.array(["" if is_gap(value) else as_text(value) for value in column], dtype=object)


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")


def _kind_of(
    column: "pd.Series[Any]", remarks: list[Remark], *, asked: bool, separator: str | None = None
) -> FeatureColumn | None:
    """What a column is; None, with a remark, where it cannot help."""
    name = str(column.name)
    gaps = column.map(is_gap).to_numpy(dtype=bool)
    present = column[~gaps]
    if not len(present):
        remarks.append(Remark("empty column", f"{name!r} has no values", "column left out"))
        return None
    if gaps.any():
        text = f"{name!r}: {int(gaps.sum())} of {len(gaps)} values are missing"
        remarks.append(Remark("missing values", text, "noted", tuple(int(r) for r in column.index[gaps])))
    words = present.map(as_text)
    distinct = words.nunique()
    if distinct == 1:
        text = f"{name!r} is {words.iloc[0]!r} everywhere"
        remarks.append(Remark("constant column", text, "column left out"))
        return None
    if (
        pd.api.types.is_datetime64_any_dtype(column.dtype)
        or words.map(_DATE.fullmatch).notna().mean() >= MOSTLY
    ):
        return _with_unreadable(name, "date", column, as_days(column), gaps, remarks)
    if words.map(_OTHER_DATE.fullmatch).notna().mean() >= MOSTLY:
        order = _form_of_dates(words)
        if order is None:
            text = f"{name!r} looks like dates; write them as 2023-12-31"
            remarks.append(Remark("ambiguous dates", text, "column left out"))
            return None
        return _with_unreadable(name, "date", column, as_days(column, order), gaps, remarks, order)
    commas: list[Remark] = []
    form = _form_of_numbers(name, words.tolist(), separator, commas)
    numbers = as_numbers(column, form)
    readable = np.isfinite(numbers)
    if readable[~gaps].mean() >= MOSTLY:
        if not asked and _counts_rows(numbers[~gaps]) and not gaps.any():
            text = f"{name!r} numbers the rows; --features can include it"
            remarks.append(Remark("row numbers", text, "column left out"))
            return None
        remarks += commas
        return _with_unreadable(name, "number", column, numbers, gaps, remarks, form)
    if words.map(lambda text: len(text.split())).mean() >= 3 and distinct > CATEGORIES / 2:
        return FeatureColumn(name, "text", bool(gaps.any()))
    if distinct > max(20, len(present) / 2) and not asked:
        text = f"{name!r} has {distinct} different values in {len(present)} rows, as names of things have"
        remarks.append(Remark("no category", text, "column left out"))
        return None
    values = words.value_counts(sort=False)
    ranked = sorted(values.index, key=lambda value: (-values[value], value))
    if len(ranked) > CATEGORIES:
        text = (
            f"{name!r}: {len(ranked) - CATEGORIES} rarer of {len(ranked)} values get no column of their own"
        )
        remarks.append(Remark("rare values", text))
    kept = sorted(ranked[:CATEGORIES])
    return FeatureColumn(name, "category", bool(gaps.any()), tuple([""] * bool(gaps.any()) + kept))


def _with_unreadable(
    name: str,
    kind: Kind,
    column: "pd.Series[Any]",
    numbers: NDArray[np.float64],
    gaps: NDArray[np.bool_],
    remarks: list[Remark],
    form: Form = "usual",
) -> FeatureColumn:
    bad = ~np.isfinite(numbers) & ~gaps
    if bad.any():
        shown = ", ".join(repr(as_text(value)) for value in column[bad].iloc[:3])
        what = f"is no {kind}" if bad.sum() == 1 else f"are no {kind}s"
        text = f"{name!r}: {shown} {what}; read as missing"
        remarks.append(
            Remark("unreadable values", text, "repaired", tuple(int(r) for r in column.index[bad]))
        )
    return FeatureColumn(name, kind, bool((gaps | bad).any()), form=form)


def _names_images(column: "pd.Series[Any]") -> bool:
    endings = r"(?i).*\.(png|jpe?g|gif|bmp|webp|tiff?)"
    return bool(column.map(as_text).str.fullmatch(endings).mean() >= MOSTLY)


def _counts_rows(numbers: NDArray[np.float64]) -> bool:
    # Whole numbers that grow from row to row: a count, or keys that were given out in turn.
    steps = np.diff(numbers)
    return len(numbers) > 20 and bool((steps == np.floor(steps)).all() and (steps > 0).all())
