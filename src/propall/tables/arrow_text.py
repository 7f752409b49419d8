"""Text columns that Arrow keeps: a tenth of the memory of Python strings, parsed and written in C++.

Only where the answer is the same: a text that is not plain, a column with anything but numbers, or a table
with a cell that needs quotation marks is left to the general code, which notes what it repairs.
"""

import csv
import io
import re
from collections import Counter
from importlib.util import find_spec
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.labels.parsing import as_text

#: Shorter texts are split into Python strings.
MIN_LENGTH = 1 << 20
#: Largest line of a plain text.
MAX_LINE = 1 << 23


def split_plain(text: str, separator: str) -> pd.DataFrame | None:
    """Split plain CSV text into columns of Arrow text; None if it is short or not plain.

    A text is plain if it has no quotation marks, every line has as many cells as the header, no row is blank,
    and the columns have names of their own.
    """
    if len(text) < MIN_LENGTH or find_spec("pyarrow") is None or not _may_be_plain(text):
        return None
    names = [name.strip() for name in text[: text.index("\n")].split(separator)]
    if not all(names) or len(set(names)) < len(names):
        return None
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(text.encode()),
            read_options=arrow_csv.ReadOptions(column_names=names, skip_rows=1, block_size=MAX_LINE),
            parse_options=arrow_csv.ParseOptions(delimiter=separator, quote_char=False),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), null_values=[], strings_can_be_null=False
            ),
        )
    except (pa.ArrowException, UnicodeEncodeError):
        return None  # some line has more or fewer cells
    if not table.num_rows or _may_have_blank_rows(table):
        return None
    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return frame


def _may_be_plain(text: str) -> bool:
    if '"' in text or "\n" not in text or text.startswith("\ufeff"):
        return False
    return "\r" not in text or text.count("\r") == text.count("\r\n")


def _may_have_blank_rows(table: Any) -> bool:
    from pyarrow import compute

    blank: Any = None
    for column in table.columns:
        # Every blank cell lacks these characters; so do some others, which the general reader sorts out.
        lacking = compute.invert(compute.match_substring_regex(column, "[!-~]"))
        blank = lacking if blank is None else compute.and_(blank, lacking)
        if not compute.any(blank).as_py():
            return False
    return True


def is_arrow_text(column: "pd.Series[Any]") -> bool:
    """Whether a column came from `split_plain`; it then has no missing values."""
    if not isinstance(column.dtype, pd.ArrowDtype):
        return False
    import pyarrow as pa

    return bool(pa.types.is_string(column.dtype.pyarrow_dtype))


def _chunks(column: "pd.Series[Any]") -> Any:
    return column.array.__arrow_array__()


def plain_numbers(column: "pd.Series[Any]") -> NDArray[np.float64] | None:
    """Parse a column of finite numbers; None if any cell is something else, or written in another way."""
    import pyarrow as pa
    from pyarrow import compute

    cells = _chunks(column)
    for prepare in (lambda cells: cells, compute.ascii_trim_whitespace):
        try:
            numbers: NDArray[np.float64] = np.asarray(compute.cast(prepare(cells), pa.float64()))
        except pa.ArrowException:
            continue
        return numbers if np.isfinite(numbers).all() else None
    return None


def count_texts(column: "pd.Series[Any]") -> Counter[str]:
    """Count the texts of the cells of any column (`as_text`), in the order of their first cells."""
    if not is_arrow_text(column):
        return Counter(map(as_text, column))
    distinct = distinct_texts(column)
    texts: Counter[str] = Counter()
    for text, count in zip(distinct.texts, distinct.counts, strict=True):
        texts[text.strip()] += count
    return texts


class DistinctTexts(NamedTuple):
    """The different texts of a column in the order of their first cells, and which one each cell holds."""

    texts: list[str]
    codes: NDArray[np.int64]

    @property
    def counts(self) -> list[int]:
        """Number of cells with each text."""
        counts: list[int] = np.bincount(self.codes, minlength=len(self.texts)).tolist()
        return counts


def distinct_texts(column: "pd.Series[Any]") -> DistinctTexts:
    """Return the different texts of a column of Arrow text."""
    encoded = _chunks(column).combine_chunks().dictionary_encode()
    return DistinctTexts(encoded.dictionary.to_pylist(), np.asarray(encoded.indices, dtype=np.int64))


def count_distinct(column: "pd.Series[Any]") -> int | None:
    """Count the different texts of a column of Arrow text; None if spaces around them may matter."""
    from pyarrow import compute

    cells = _chunks(column)
    if compute.any(compute.match_substring_regex(cells, _MAY_BE_STRIPPED)).as_py():
        return None
    count: int = compute.count_distinct(cells).as_py()
    return count


#: Texts that Python's `strip` may change.
_MAY_BE_STRIPPED = r"^[^!-~]|[^!-~]$"


def joined(columns: "list[pd.Series[Any]]", separator: str) -> list[str] | None:
    """Join the cells of each row; None if a column is not Arrow text or a cell has spaces around it."""
    if not columns or not all(map(is_arrow_text, columns)):
        return None
    from pyarrow import compute

    cells = [_chunks(column) for column in columns]
    if any(compute.any(compute.match_substring_regex(part, _MAY_BE_STRIPPED)).as_py() for part in cells):
        return None
    texts: list[str] = compute.binary_join_element_wise(*cells, separator).to_pylist()
    return texts


def begins_with(column: "pd.Series[Any]", signs: str) -> NDArray[np.bool_]:
    """Return which cells of a column of Arrow text begin with one of these signs."""
    from pyarrow import compute

    matches = compute.match_substring_regex(_chunks(column), f"^[{re.escape(signs)}]")
    return np.asarray(matches)


def write_plain(frame: pd.DataFrame, file: BinaryIO, separator: str, *, header: bool) -> bool:
    """Write rows to a CSV file as pandas writes them; False, with nothing written, if a cell needs quotes.

    Most columns must be Arrow text; others are converted one cell after the other.
    """
    texts = [is_arrow_text(frame.iloc[:, i]) for i in range(frame.shape[1])]
    if frame.shape[1] < 2 or sum(texts) * 2 < len(texts):
        return False
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    columns = [
        _chunks(frame.iloc[:, i]) if is_text else pa.array(_as_written(frame.iloc[:, i]), pa.string())
        for i, is_text in enumerate(texts)
    ]
    table = pa.table(columns, names=[str(i) for i in range(len(columns))])
    buffer = io.BytesIO()
    if header:
        head = io.StringIO()
        csv.writer(head, delimiter=separator, lineterminator="\n").writerow(frame.columns)
        buffer.write(head.getvalue().encode())
    options = arrow_csv.WriteOptions(include_header=False, delimiter=separator, quoting_style="none")
    try:
        arrow_csv.write_csv(table, buffer, options)
    except pa.ArrowInvalid:
        return False
    file.write(buffer.getbuffer())
    return True


def _as_written(column: "pd.Series[Any]") -> list[str]:
    """Return cells as `DataFrame.to_csv` writes them."""
    if column.dtype.kind == "f":
        return ["" if number != number else repr(number) for number in column.tolist()]
    return ["" if cell is None or cell != cell else str(cell) for cell in column.tolist()]
