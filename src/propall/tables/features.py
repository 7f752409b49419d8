"""Columns as features: detect the kind of each, encode it with scikit-learn, save the encoder as JSON."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Self, TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from propall.estimators.folds import MAX_COPIES
from propall.labels.inputs import is_missing
from propall.labels.parsing import as_text
from propall.schema import Between, check_json
from propall.tables.arrow_text import (
    count_distinct,
    count_texts,
    distinct_texts,
    is_arrow_text,
    plain_numbers,
)
from propall.tables.formulas import is_answer_column
from propall.tables.images import ImageColumn
from propall.tables.reading import DataNote, holds_numbers, note_rows
from propall.wording import list_names, plural

Kind = Literal["number", "date", "category", "text"]
#: Format of numbers and dates: `1.5`, `1,5` or 2023-12-31; `1,234`; 31.12.2023; 12/31/2023.
Form = Literal["usual", "thousands", "day first", "month first"]

#: Cells that mean a missing value.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "<na>", "?", "-", "--", "."})
#: A column is numeric if this share of its cells is; the other cells are then read as missing.
MOSTLY = 0.9
#: Maximum number of one-hot columns of a category, and of terms of a text column.
CATEGORIES, TERMS = 50, 1000
#: Larger numbers are read as missing: no measurement, and their variance overflows.
LARGEST = 1e100
#: Dates are encoded as days since then.
EPOCH, DAY = pd.Timestamp("1970-01-01", tz="UTC"), pd.Timedelta(days=1)


@dataclass(frozen=True)
class FeatureColumn:
    """A table column and how it is encoded.

    Numbers and dates are standardized, categories one-hot encoded, and text is encoded as TF-IDF.
    """

    name: str
    kind: Kind
    gaps: bool = False  # whether values were missing; numbers and dates then get an indicator column
    values: tuple[str, ...] = ()  # the categories, or the terms of a text column
    form: Form = "usual"
    unit: str = ""  # of numbers such as `45%`, `$1.50` or `7.5 cm`

    def read(self, cells: "pd.Series[Any]") -> NDArray[Any]:
        """Parse the cells: floats with NaN for missing values, or text."""
        if self.kind == "number":
            return as_numbers(_without_unit(cells, self.unit) if self.unit else cells, self.form)
        return as_days(cells, self.form) if self.kind == "date" else as_words(cells)

    @property
    def encoding(self) -> str:
        """A short description of the encoding."""
        if self.kind == "category":
            return f"one-hot, {len(self.values)} values"
        if self.kind == "text":
            return f"TF-IDF of {len(self.values)} terms"
        imputed = ", missing values imputed by the median and flagged" if self.gaps else ""
        unit = "days" if self.kind == "date" else self.unit
        return f"standardized{f' ({unit})' if unit else ''}{imputed}"


class _ColumnState(TypedDict):
    name: str
    kind: Kind
    gaps: bool
    values: list[str]
    form: Form
    unit: NotRequired[str]


class _ImageState(TypedDict):
    name: str
    size: Annotated[int, Between(1, 4096)]
    mean: tuple[float, float, float]
    scale: tuple[float, float, float]


class _FeaturesState(TypedDict):
    """What `Features.as_dict` returns."""

    columns: list[_ColumnState]
    median: NotRequired[list[float]]
    mean: NotRequired[list[float]]
    scale: NotRequired[list[float]]
    idf: NotRequired[dict[str, list[float]]]
    embedding: NotRequired[tuple[list[float], list[float]]]
    images: NotRequired[_ImageState]


@dataclass
class Features:
    """A fitted encoder from table rows to features."""

    columns: tuple[FeatureColumn, ...]
    transformer: ColumnTransformer | None = None  # fitted on these columns
    embedding: tuple[NDArray[Any], NDArray[Any]] | None = None  # mean and scale of precomputed features
    images: ImageColumn | None = None
    notes: list[DataNote] = field(default_factory=list)  # columns that were left out or repaired

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
        """Detect the kind of each column and fit its encoding.

        By default, all columns are used, or none if embeddings or images are given. The column separator of
        the file decides what commas in numbers mean.
        """
        if images is not None and (embedding is not None or columns):
            raise ValueError(
                "images: cannot be combined with columns or embeddings; leave those out, or pass embeddings "
                "of the images together with the columns."
            )
        if columns is None and (embedding is not None or images is not None):
            columns = ()
        names = [str(c) for c in frame.columns if str(c) not in without] if columns is None else list(columns)
        notes: list[DataNote] = []
        if columns is None:
            names = without_answers(names, notes)
        requested = columns is not None
        detected = [
            detect_kind(frame[name], notes, requested=requested, separator=separator) for name in names
        ]
        usable = tuple(column for column in detected if column is not None)
        if images is not None:
            images = images.fit(frame, folder or Path())
        if not usable and embedding is None and images is None:
            raise no_features(names, lambda name: frame[name], notes)
        features = cls(usable, None, None, images, notes)
        if usable:
            features._fit_transformer(frame)
        if embedding is not None:
            values = _checked_embedding(embedding, len(frame), None)
            scale = values.std(0)
            features.embedding = (values.mean(0), np.where(scale > 0, scale, 1.0))
        return features

    def _fit_transformer(self, frame: pd.DataFrame) -> None:
        prepared = self.prepared(frame)
        columns = []
        for column in self.columns:
            fitted = (
                with_terms(column, prepared[column.name], self.notes) if column.kind == "text" else column
            )
            if fitted is not None:
                columns.append(fitted)
        self.columns = tuple(columns)
        self.transformer = _transformer(self.columns).fit(prepared)

    def prepared(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The columns used, with cells parsed by `FeatureColumn.read`."""
        absent = [column.name for column in self.columns if column.name not in frame.columns]
        if absent:
            raise ValueError(
                f"features: the table has no column {', '.join(map(repr, absent))}, which the model was "
                "fitted with; add it under this name."
            )
        cells = {column.name: column.read(frame[column.name]) for column in self.columns}
        return pd.DataFrame(cells, index=frame.index)

    def transform(
        self,
        frame: pd.DataFrame,
        *,
        embedding: NDArray[Any] | None = None,
        folder: Path | None = None,
        prepared: pd.DataFrame | None = None,
    ) -> NDArray[np.float32]:
        """Encode rows as (n, d) features, or (n, 3, size, size) for images.

        Args:
            frame: the rows.
            embedding: precomputed features of the rows.
            folder: base of relative paths of images.
            prepared: the result of `prepared`, if it is known.
        """
        if self.images is not None:
            return self.images.transform(frame, folder or Path())
        parts: list[NDArray[Any]] = []
        if self.transformer is not None:
            prepared = self.prepared(frame) if prepared is None else prepared
            parts.append(np.asarray(self.transformer.transform(prepared)))
        if (embedding is None) != (self.embedding is None):
            got, fitted = ("missing", "with") if embedding is None else ("unexpected", "without")
            raise ValueError(f"embeddings: {got}; the model was fitted {fitted} embeddings.")
        if embedding is not None and self.embedding is not None:
            mean, scale = self.embedding
            parts.append((_checked_embedding(embedding, len(frame), len(mean)) - mean) / scale)
        return np.hstack(parts).astype(np.float32)

    def minima(self, prepared: pd.DataFrame, embedding: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """Minimum of every column before it is standardized; NaN for columns that are not numbers.

        Args:
            prepared: the result of `prepared`.
            embedding: precomputed features of the rows, whose columns follow those of the table.
        """
        minima = [prepared[c.name].min() if c.kind == "number" else np.nan for c in self.columns]
        return np.array(minima if embedding is None else [*minima, *embedding.min(0)], dtype=np.float64)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of one encoded row."""
        if self.images is not None:
            return (3, self.images.size, self.images.size)
        width = 0
        for column in self.columns:
            width += len(column.values) if column.kind in ("category", "text") else 1 + column.gaps
        return (width + (0 if self.embedding is None else len(self.embedding[0])),)

    def check_new_rows(self, frame: pd.DataFrame, prepared: pd.DataFrame | None = None) -> list[DataNote]:
        """Report cells of new rows that cannot be parsed or hold a category that was not fitted.

        Args:
            frame: the rows.
            prepared: the result of `prepared`, if it is known.
        """
        prepared = self.prepared(frame) if prepared is None else prepared
        notes: list[DataNote] = []
        for column in self.columns:
            cells = prepared[column.name]
            if column.kind in ("number", "date") and np.isfinite(cells.to_numpy()).all():
                continue
            gaps = find_gaps(frame[column.name])
            if column.kind in ("number", "date"):
                _report_unreadable(column, frame[column.name], cells.to_numpy(), gaps, notes)
            elif column.kind == "category":
                new = (~cells.isin(column.values)).to_numpy() & ~gaps
                names = list_names(list(dict.fromkeys(cells[new])), 3)
                text = f"{column.name!r}: {names} has no column in the model; encoded as all zeros"
                note_rows(notes, "unknown category", text, "noted", frame.index[new])
        return notes

    def describe(self) -> list[tuple[str, str, str]]:
        """Name, kind and encoding of all inputs."""
        rows: list[tuple[str, str, str]] = [(c.name, c.kind, c.encoding) for c in self.columns]
        if self.embedding is not None:
            rows.append(("embeddings", "numbers", f"{len(self.embedding[0])} columns, standardized"))
        if self.images is not None:
            rows.append((self.images.name, "images", self.images.encoding))
        return rows

    def as_dict(self) -> dict[str, Any]:
        """The fitted state as plain JSON; `from_dict` restores it exactly."""
        columns = [asdict(column) for column in self.columns]
        for column in columns:
            if not column["unit"]:
                del column["unit"]
        values: dict[str, Any] = {"columns": columns}
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
            values["images"] = asdict(self.images)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Restore from `as_dict`, without the training rows; raise ValueError for values that do not fit."""
        check_json(values, _FeaturesState, "features")
        columns = tuple(
            FeatureColumn(c["name"], c["kind"], c["gaps"], tuple(c["values"]), c["form"], c.get("unit", ""))
            for c in values["columns"]
        )
        _check_sizes(columns, values)
        transformer = _restored_transformer(columns, values) if columns else None
        embedding, images = values.get("embedding"), values.get("images")
        if images is not None:
            mean, scale = tuple(images["mean"]), tuple(images["scale"])
            images = ImageColumn(images["name"], images["size"], mean, scale)
        mean_and_scale = None if embedding is None else (np.array(embedding[0]), np.array(embedding[1]))
        return cls(columns, transformer, mean_and_scale, images)


def without_answers(names: Sequence[str], notes: list[DataNote]) -> list[str]:
    """Return the names without those of columns that propall added, with a note on these."""
    answers = list(filter(is_answer_column, names))
    if answers:
        text = f"{list_names(answers)} were added by propall; a model would learn from its own answers"
        notes.append(DataNote("own answers", text, "column left out"))
    return [name for name in names if name not in answers]


def with_terms(column: FeatureColumn, texts: "pd.Series[Any]", notes: list[DataNote]) -> FeatureColumn | None:
    """Return a text column with its terms; None, with a note, if no word is frequent enough."""
    vectorizer = _vectorizer(None, min_df=2 if len(texts) >= 100 else 1)
    try:
        vectorizer.fit(texts)
    except ValueError:
        text = f"no word in {column.name!r} occurs more than once"
        notes.append(DataNote("text without words", text, "column left out"))
        return None
    return replace(column, values=tuple(vectorizer.get_feature_names_out().tolist()))


def no_features(
    names: Sequence[str], cells: "Callable[[str], pd.Series[Any]]", notes: Sequence[DataNote]
) -> ValueError:
    """Return the error about a table of which no column is usable; `cells` returns a column."""
    reasons = [note.text for note in notes if note.action == "column left out"]
    hint = "Choose columns with --options features=COLUMN,..."
    image_column = next((name for name in names if _has_image_files(cells(name))), None)
    if image_column is not None:
        hint = f"To learn from images, use --images {shlex.quote(image_column)}"
    why = f"no usable column is left{': ' * bool(reasons)}{'; '.join(reasons)}"
    return ValueError(f"features: {why}. {hint}.")


def report_duplicates(group: NDArray[np.int64], rows: pd.Index) -> list[DataNote]:
    """Report rows whose features equal those of another row: those with the same number in `group`."""
    times = np.bincount(group)[group]
    copies = rows[(times > 1) & (times <= MAX_COPIES)]
    notes: list[DataNote] = []
    text = f"{len(copies)} rows have the same features as another row"
    note_rows(notes, "duplicate rows", text, "held out together", copies)
    return notes


def _transformer(columns: Sequence[FeatureColumn]) -> ColumnTransformer:
    """Build the unfitted transformer of these columns."""
    numeric = [column for column in columns if column.kind in ("number", "date")]
    categories = [column for column in columns if column.kind == "category"]
    gaps = [column.name for column in numeric if column.gaps]
    parts: list[tuple[str, Any, Any]] = []
    if numeric:
        impute = SimpleImputer(strategy="median", keep_empty_features=True)
        steps = Pipeline([("impute", impute), ("scale", StandardScaler())])
        parts.append(("numbers", steps, [column.name for column in numeric]))
    if gaps:
        parts.append(("gaps", MissingIndicator(features="all", error_on_new=False), gaps))
    if categories:
        values = [np.array(column.values, dtype=object) for column in categories]
        encoder = OneHotEncoder(categories=values, handle_unknown="ignore", sparse_output=False)
        parts.append(("categories", encoder, [column.name for column in categories]))
    for column in columns:
        if column.kind == "text":
            parts.append((f"text {column.name}", _vectorizer(column.values or None), column.name))
    return ColumnTransformer(parts, sparse_threshold=0.0, verbose_feature_names_out=False)


def _vectorizer(terms: Sequence[str] | None, min_df: int = 1) -> TfidfVectorizer:
    return TfidfVectorizer(
        vocabulary=None if terms is None else list(terms),
        max_features=TERMS if terms is None else None,
        min_df=min_df,
        sublinear_tf=True,
        strip_accents="unicode",
        token_pattern=r"(?u)\b\w+\b",
    )


def _check_sizes(columns: Sequence[FeatureColumn], values: Mapping[str, Any]) -> None:
    """Raise ValueError unless the saved numbers belong to the saved columns."""
    if not columns and "embedding" not in values and "images" not in values:
        raise ValueError("features: there are no columns")
    if len({column.name for column in columns}) < len(columns):
        raise ValueError("features: a column is repeated")
    numeric = sum(column.kind in ("number", "date") for column in columns)
    sizes = {name: (len(values.get(name, ())), numeric) for name in ("median", "mean", "scale")}
    for column in columns:
        if column.kind == "text":
            idf = values.get("idf", {}).get(column.name, ())
            sizes[f"idf of {column.name!r}"] = (len(idf), len(column.values))
        listed = column.kind in ("category", "text")
        if listed and not 0 < len(set(column.values)) == len(column.values):
            raise ValueError(f"features: the values of {column.name!r} are missing or repeated")
    unknown = set(values.get("idf", {})) - {column.name for column in columns if column.kind == "text"}
    if unknown:
        raise ValueError(f"features: idf has {sorted(unknown)[0]!r}, which is not a text column")
    if "embedding" in values:
        sizes["embedding"] = (len(values["embedding"][1]), len(values["embedding"][0]))
    for name, (size, expected) in sizes.items():
        if size != expected:
            raise ValueError(f"features: {name} has {plural(size, 'value')}; expected {expected}")


def _restored_transformer(columns: Sequence[FeatureColumn], values: Mapping[str, Any]) -> ColumnTransformer:
    # Fitting a placeholder row gives the parts their shapes; the fitted values are then written over it.
    placeholder: dict[str, Any] = {"number": 0.0, "date": 0.0, "text": "word"}
    row = {c.name: [c.values[0] if c.kind == "category" else placeholder[c.kind]] for c in columns}
    transformer = _transformer(columns).fit(pd.DataFrame(row))
    named = transformer.named_transformers_
    if "numbers" in named:
        named["numbers"]["impute"].statistics_ = np.array(values["median"])
        scaler = named["numbers"]["scale"]
        scaler.mean_, scaler.scale_ = np.array(values["mean"]), np.array(values["scale"])
        scaler.var_ = scaler.scale_**2
    for name, idf in values.get("idf", {}).items():
        named[f"text {name}"].idf_ = np.array(idf)
    return transformer


def _checked_embedding(values: NDArray[Any], rows: int, width: int | None) -> NDArray[np.float64]:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or len(values) != rows or (width is not None and values.shape[1] != width):
        expected = f"({rows}, {'d' if width is None else width})"
        raise ValueError(f"embeddings: got shape {values.shape}; expected {expected}, one row per table row.")
    values = np.where(np.abs(values) < LARGEST, values, np.nan)
    bad = np.isnan(values).any(1)
    if bad.any():
        raise ValueError(
            f"embeddings: {plural(int(bad.sum()), 'row')} with NaN or infinity (first: "
            f"{int(bad.argmax()) + 1}); recompute them, or drop these rows from both files."
        )
    return values


# Parsing the cells of a column.


def is_gap(value: Any) -> bool:
    """Whether a cell means a missing value."""
    return value.strip().lower() in MISSING if isinstance(value, str) else is_missing(value)


def find_gaps(column: "pd.Series[Any]") -> NDArray[np.bool_]:
    """Return which cells of a column mean a missing value."""
    if holds_numbers(column):
        return column.isna().to_numpy()
    if is_arrow_text(column):
        if plain_numbers(column) is not None:
            return np.zeros(len(column), dtype=bool)
        distinct = distinct_texts(column)
        return np.array([is_gap(text) for text in distinct.texts], dtype=bool)[distinct.codes]
    if (repeated := _distinct_cells(column)) is not None:
        codes, cells = repeated
        return find_gaps(cells)[codes]
    return np.fromiter(map(is_gap, column), dtype=bool, count=len(column))


def count_words(column: "pd.Series[Any]") -> Counter[str]:
    """Count the texts of cells that are not missing, in the order of their first cells."""
    return Counter({text: count for text, count in count_texts(column).items() if not is_gap(text)})


def count_distinct_words(column: "pd.Series[Any]", gaps: NDArray[np.bool_]) -> int:
    """Count the different texts of cells that are not missing."""
    distinct = count_distinct(column) if is_arrow_text(column) and not gaps.any() else None
    return len(count_words(column)) if distinct is None else distinct


def holds_mostly(words: Counter[str], test: Callable[[str], object], share: float = MOSTLY) -> bool:
    """Whether a test holds for at least this share of words; ends as soon as that is impossible."""
    failures, allowed = 0, (1 - share) * words.total() + 1e-9
    for word, count in words.items():
        failures += 0 if test(word) else count
        if failures > allowed:
            return False
    return bool(words)


def as_numbers(column: "pd.Series[Any]", form: Form = "usual") -> NDArray[np.float64]:
    """Parse numbers; other cells are NaN. `1,500` is 1.5, or 1500 if commas separate thousands."""
    if pd.api.types.is_bool_dtype(column.dtype) or pd.api.types.is_numeric_dtype(column.dtype):
        numbers = column.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        plain = plain_numbers(column) if is_arrow_text(column) else None
        if plain is None and is_arrow_text(column):
            return _by_distinct(column, lambda cells: as_numbers(cells, form))
        plain = _plain_numbers(column.to_numpy()) if plain is None else plain
        cells = (_number(value, form) for value in column)
        numbers = np.fromiter(cells, np.float64, len(column)) if plain is None else plain
    # NaN fails the comparison, too.
    return np.where(np.abs(numbers) < LARGEST, numbers, np.nan)


def _by_distinct(
    column: "pd.Series[Any]", function: "Callable[[pd.Series[Any]], NDArray[Any]]"
) -> NDArray[Any]:
    """Apply a function of cells to the different texts of a column of Arrow text only."""
    distinct = distinct_texts(column)
    cells = pd.Series(distinct.texts, dtype=object)
    values: NDArray[Any] = function(cells)[distinct.codes]
    return values


def _plain_numbers(cells: NDArray[Any]) -> NDArray[np.float64] | None:
    """Parse a column of plain numbers at once, which is much faster; None if it has other cells."""
    try:
        numbers: NDArray[np.float64] = cells.astype(np.float64)
        # Python parses 1_000 as a number, but in a file it is not one.
        return None if "_" in "".join(cells) else numbers
    except (TypeError, ValueError, OverflowError):
        return None


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
        # Python parses 1_000 as a number, but in a file it is not one.
        return np.nan if "_" in text else _float(text)
    return np.nan if is_missing(value) else _float(value)


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _form_of_numbers(name: str, words: Collection[str], separator: str | None, notes: list[DataNote]) -> Form:
    """Detect what commas in numbers mean, with a note if they are ambiguous."""
    with_comma = [word for word in words if re.fullmatch(r"[+-]?[\d.,]*,[\d.,]*", word)]
    if not with_comma or not all(map(_THOUSANDS.fullmatch, with_comma)):
        return "usual"
    others = [word for word in words if "," not in word and np.isfinite(_float(word))]
    certain = any(word.count(",") > 1 or "." in word for word in with_comma) or any("." in w for w in others)
    # In a comma-separated file, a decimal comma would need quotes in every cell.
    thousands = certain or (separator == "," and bool(others))
    meaning = "separate thousands" if thousands else "are decimal commas"
    notes.append(DataNote("commas", f"{name!r}: commas as in {with_comma[0]!r} {meaning}", "repaired"))
    return "thousands" if thousands else "usual"


_AMOUNT = r"[+-]?\d[\d.,]*(?:[eE][+-]?\d+)?"
_WITH_UNIT = re.compile(
    rf"(?P<sign>[+-]?)(?P<before>[€$£¥])\s*(?P<price>{_AMOUNT})"
    rf"|(?P<amount>{_AMOUNT})(?:\s*(?P<symbol>[%‰€$£¥]|°[CF]?)|\s+(?P<word>[^\s\d.,+-]{{1,6}}))"
)


def _split_unit(text: str) -> tuple[str, str]:
    """Split `45%`, `-$1.50` or `7.5 cm` into number and unit; the unit of other texts is empty."""
    match = _WITH_UNIT.fullmatch(text.strip())
    if match is None:
        return text, ""
    if match["before"]:
        return match["sign"] + match["price"], match["before"]
    return match["amount"], match["symbol"] or match["word"]


def _without_unit(column: "pd.Series[Any]", unit: str) -> "pd.Series[Any]":
    """The cells without this unit; those with another one stay as they are, which are no numbers."""

    def number(cell: Any) -> Any:
        text, written = _split_unit(cell) if isinstance(cell, str) else (cell, "")
        return text if written == unit else cell

    return column.astype(object).map(number)


def _unit_of_numbers(words: Counter[str]) -> str:
    """The unit of nearly all texts; empty if there is none."""
    if not holds_mostly(words, lambda word: _split_unit(word)[1]):
        return ""
    units: Counter[str] = Counter()
    for word, count in words.items():
        units[_split_unit(word)[1]] += count
    unit, count = units.most_common(1)[0]
    return unit if count >= MOSTLY * words.total() else ""


_OTHER_DATE = re.compile(r"(\d{1,2})([./])(\d{1,2})\2(\d{4})([T ].*)?")


def _form_of_dates(words: Counter[str]) -> Form | None:
    """Detect the order of day and month in dates with the year last; None if ambiguous."""
    matches = [(match, count) for word, count in words.items() if (match := _OTHER_DATE.fullmatch(word))]
    days, months = (sum(count for match, count in matches if int(match[part]) > 12) for part in (1, 3))
    if days == months:
        return "day first" if all(match[2] == "." for match, _ in matches) else None
    return "day first" if days > months else "month first"


def _year_first(cell: Any, form: Form) -> Any:
    match = _OTHER_DATE.fullmatch(cell.strip()) if isinstance(cell, str) else None
    if match is None:
        return cell
    day, month = (match[1], match[3]) if form == "day first" else (match[3], match[1])
    return f"{match[4]}-{month:0>2}-{day:0>2}{match[5] or ''}"


def as_days(column: "pd.Series[Any]", form: Form = "usual") -> NDArray[np.float64]:
    """Parse dates as days since 1970; other cells are NaN."""
    if is_arrow_text(column):
        return _by_distinct(column, lambda cells: as_days(cells, form))
    if (distinct := _distinct_cells(column)) is not None:
        codes, cells = distinct
        return as_days(cells, form)[codes]
    if form != "usual":
        column = column.map(lambda cell: _year_first(cell, form))
    dates = pd.to_datetime(column.where(~column.map(is_gap)), errors="coerce", utc=True, format="ISO8601")
    return np.asarray((dates - EPOCH) / DAY, dtype=np.float64)


def _distinct_cells(column: "pd.Series[Any]") -> "tuple[NDArray[np.int64], pd.Series[Any]] | None":
    """Position of every cell among the distinct ones, if there are few; only for text or dates."""
    if len(column) < 1000 or pd.api.types.infer_dtype(column, skipna=True) not in ("string", "date"):
        return None  # 1, 1.0 and True are equal, but not as text
    codes, cells = pd.factorize(column, use_na_sentinel=False)
    if 4 * len(cells) > len(column):
        return None
    return np.asarray(codes), pd.Series(np.asarray(cells, dtype=object), dtype=object)


def as_words(column: "pd.Series[Any]") -> NDArray[np.object_]:
    """Parse text; missing values are empty."""
    if is_arrow_text(column):
        return _by_distinct(column, as_words)
    if (distinct := _distinct_cells(column)) is not None:
        codes, cells = distinct
        return as_words(cells)[codes]
    return np.array(["" if is_gap(value) else as_text(value) for value in column], dtype=object)


#: Reason and description of a column that only numbers the rows.
ROW_NUMBERS = ("row numbers", "numbers the rows; --options features=... can include it")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")


def detect_kind(
    column: "pd.Series[Any]", notes: list[DataNote], *, requested: bool = False, separator: str | None = None
) -> FeatureColumn | None:
    """Detect the kind of a column; None, with a note, if it is not usable as a feature.

    Args:
        column: the cells.
        notes: notes on the column are added to them.
        requested: whether the column was named as a feature.
        separator: of the file's columns, which decides what commas in numbers mean.
    """
    name = str(column.name)
    gaps = find_gaps(column)

    def leave_out(reason: str, text: str) -> FeatureColumn | None:
        notes.append(DataNote(reason, f"{name!r} {text}", "column left out"))
        return None

    if gaps.all():
        return leave_out("empty column", "has no values")
    text = f"{name!r}: {int(gaps.sum())} of {len(gaps)} values are missing"
    note_rows(notes, "missing values", text, "noted", column.index[gaps])
    if holds_numbers(column) and column.nunique() > 1:
        # No date, text or comma: what follows would find the same, much more slowly.
        numbers = as_numbers(column)
        is_row_number = not requested and not gaps.any() and _are_row_numbers(numbers)
        if not is_row_number and np.isfinite(numbers)[~gaps].mean() >= MOSTLY:
            return _report_unreadable(FeatureColumn(name, "number"), column, numbers, gaps, notes)
    plain = plain_numbers(column) if is_arrow_text(column) else None
    if plain is not None and np.abs(plain).max() < LARGEST and plain.min() < plain.max():
        # Several numbers, all readable: no date, no category, no text, and no comma.
        if not requested and _are_row_numbers(plain):
            return leave_out(*ROW_NUMBERS)
        return FeatureColumn(name, "number")
    words = count_words(column)
    distinct, total = len(words), words.total()
    if distinct == 1:
        return leave_out("constant column", f"is {next(iter(words))!r} in every row")
    is_date = pd.api.types.is_datetime64_any_dtype(column.dtype)
    if is_date or holds_mostly(words, _DATE.fullmatch):
        return _report_unreadable(FeatureColumn(name, "date"), column, as_days(column), gaps, notes)
    if holds_mostly(words, _OTHER_DATE.fullmatch):
        order = _form_of_dates(words)
        if order is None:
            text = "has dates whose day and month may be swapped; write them as 2023-12-31"
            return leave_out("ambiguous dates", text)
        dates = FeatureColumn(name, "date", form=order)
        return _report_unreadable(dates, column, as_days(column, order), gaps, notes)
    commas: list[DataNote] = []
    unit = _unit_of_numbers(words)
    amounts = [_split_unit(word)[0] for word in words] if unit else words
    form = _form_of_numbers(name, amounts, separator, commas)
    numbers = FeatureColumn(name, "number", form=form, unit=unit).read(column)
    readable = np.isfinite(numbers)
    # Infinity is what a division by zero leaves in a column of numbers; it says nothing against them.
    infinite = sum(count for word, count in words.items() if np.isinf(_float(word)))
    if readable[~gaps].sum() >= MOSTLY * max(1, (~gaps).sum() - infinite):
        if not requested and _are_row_numbers(numbers[~gaps]) and not gaps.any():
            return leave_out(*ROW_NUMBERS)
        notes += commas
        if unit:
            notes.append(DataNote("unit", f"{name!r}: read as numbers with the unit {unit!r}", "repaired"))
        numeric = FeatureColumn(name, "number", form=form, unit=unit)
        return _report_unreadable(numeric, column, numbers, gaps, notes)
    length = sum(len(word.split()) * count for word, count in words.items())
    if length >= 3 * total and distinct > CATEGORIES / 2:
        return FeatureColumn(name, "text", bool(gaps.any()))
    if distinct > max(20, total / 2) and not requested:
        text = f"has {distinct} different values in {total} rows, like an identifier"
        return leave_out("identifier", text)
    ranked = sorted(words, key=lambda word: (-words[word], word))
    if len(ranked) > CATEGORIES:
        text = f"{name!r}: the {len(ranked) - CATEGORIES} rarest of {len(ranked)} values get no column"
        notes.append(DataNote("rare values", text))
    kept = sorted(ranked[:CATEGORIES])
    return FeatureColumn(name, "category", bool(gaps.any()), tuple([""] * bool(gaps.any()) + kept))


def _report_unreadable(
    column: FeatureColumn,
    cells: "pd.Series[Any]",
    numbers: NDArray[np.float64],
    gaps: NDArray[np.bool_],
    notes: list[DataNote],
) -> FeatureColumn:
    """Add a note on cells that are not missing but unreadable; return the column with its `gaps` set."""
    bad = ~np.isfinite(numbers) & ~gaps
    written = list(dict.fromkeys(map(as_text, cells[bad])))
    shown = ", ".join(map(repr, written[:3]))
    # A number that is too large is one, but cannot be used.
    kind = f"usable {column.kind}" if any(map(np.isfinite, map(_float, cells[bad]))) else column.kind
    problem = f"is not a {kind}" if len(written) == 1 else f"are not {kind}s"
    text = f"{column.name!r}: {shown} {problem}; read as missing"
    note_rows(notes, "unreadable values", text, "repaired", cells.index[bad])
    return replace(column, gaps=bool((gaps | bad).any()))


def _has_image_files(column: "pd.Series[Any]") -> bool:
    endings = r"(?i).*\.(png|jpe?g|gif|bmp|webp|tiff?)"
    return bool(column.map(as_text).str.fullmatch(endings).mean() >= MOSTLY)


def _are_row_numbers(numbers: NDArray[np.float64]) -> bool:
    # Integers that increase from row to row: a count, or consecutive keys.
    steps = np.diff(numbers)
    return len(numbers) > 20 and bool((steps == np.floor(steps)).all() and (steps > 0).all())
