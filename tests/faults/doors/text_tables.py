"""Text tables: CSV, JSON lines and JSON, plain or compressed, read by `propall inspect`."""

import csv
import gzip
import io
import itertools
import json
import random
import unicodedata
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

from tests.faults.harness import Case, Door, run_command
from tests.faults.mutations import byte_mutations, json_mutations, text_mutations
from tests.fixtures.tables import birds

HEADING, ROWS, _ = birds(40)


def csv_text() -> str:
    """A valid table as CSV text."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([HEADING, *ROWS])
    return out.getvalue()


def records() -> list[dict[str, object]]:
    """A valid table as JSON records."""
    return [dict(zip(HEADING, row, strict=True)) for row in ROWS]


def inspect(path: Path) -> None:
    """`propall inspect FILE --label species`."""
    run_command("inspect", str(path), "--label", "species")


def _csv(count: int, seed: int) -> Iterator[Case]:
    half = count // 2
    yield from byte_mutations("CSV", csv_text().encode(), ".csv", half, seed)
    yield from text_mutations("CSV", csv_text(), ".csv", count - half, seed)


def _json(count: int, seed: int) -> Iterator[Case]:
    third = count // 3
    yield from json_mutations("JSON", records(), ".json", third, seed)
    yield from byte_mutations("JSON", json.dumps(records()).encode(), ".json", third, seed)
    lines = "\n".join(map(json.dumps, records()))
    yield from byte_mutations("JSON lines", lines.encode(), ".jsonl", count - 2 * third, seed)


def _gzip(count: int, seed: int) -> Iterator[Case]:
    """Damaged gzip files, damaged tables that are compressed, and files with the wrong suffix."""
    yield from itertools.islice(_misnamed(), count)
    rest = max(0, count - 13)
    half, eighth = rest // 2, rest // 8
    valid = gzip.compress(csv_text().encode(), mtime=0)
    yield from byte_mutations("gzip", valid, ".csv.gz", half, seed)
    lines = "\n".join(map(json.dumps, records())).encode()
    tabs = csv_text().replace(",", "\t").encode()
    inner = itertools.chain(
        text_mutations("compressed CSV", csv_text(), ".csv.gz", rest - half - 2 * eighth, seed),
        byte_mutations("compressed TSV", tabs, ".tsv.gz", eighth, seed),
        byte_mutations("compressed JSON lines", lines, ".jsonl.gz", eighth, seed),
    )
    for case in inner:
        yield Case(case.name, gzip.compress(case.content, mtime=0), case.suffix)


def _misnamed() -> Iterator[Case]:
    plain = csv_text().encode()
    packed = gzip.compress(plain, mtime=0)
    yield Case("cut in the middle", packed[: len(packed) // 2], ".csv.gz")
    yield Case("not compressed", plain, ".csv.gz")
    yield Case("compressed without the suffix", packed, ".csv")
    yield Case("compressed twice", gzip.compress(packed, mtime=0), ".csv.gz")
    yield Case("no bytes", b"", ".csv.gz")
    yield Case("no rows", gzip.compress(b"", mtime=0), ".csv.gz")
    yield Case("two members", packed + gzip.compress(plain.split(b"\n", 1)[1], mtime=0), ".csv.gz")
    yield Case("text after the end", packed + plain, ".csv.gz")
    yield Case("a format that is not text", packed, ".parquet.gz")
    yield Case("no format", packed, ".gz")
    yield Case("500 MB of zeros", _repeated(b"\0" * (1 << 20), 500), ".csv.gz")
    yield Case("500 MB in one cell", _repeated(b"x" * (1 << 20), 500), ".csv.gz")
    yield Case("3 GB that are read as a whole", _repeated(b"x" * (1 << 20), 3000), ".jsonl.gz")


def _repeated(block: bytes, times: int) -> bytes:
    # One member per block, all the same, so that the blocks are compressed once.
    return gzip.compress(b"x,species\n", mtime=0) + gzip.compress(block, mtime=0) * times


def _inspect_in_parts(path: Path) -> None:
    """`propall inspect FILE --label species` as for a large file, with parts of 400 bytes if it is small."""
    from propall.tables import streaming

    streaming.LARGE_BYTES = 1
    if path.stat().st_size < 100_000:
        streaming.read_parts.__kwdefaults__["size"] = 400
    inspect(path)


WORDS = {
    "cp1251": "чайка ворона журавль серый",
    "koi8-r": "чайка ворона журавль серый",
    "shift_jis": "カモメ 烏 鶴 灰色",
    "euc_jp": "カモメ 烏 鶴 灰色",
    "gb18030": "海鸥 乌鸦 鹤 灰色",
    "big5": "海鷗 烏鴉 鶴 灰色",
    "euc_kr": "갈매기 까마귀 두루미 회색",
    "cp1250": "žluťoučký kůň łódź świnia",
    "cp1252": "Möwe Krähe Fée blessé",
    "utf-16": "чайка カモメ Möwe 鶴",
    "utf-32": "чайка カモメ Möwe 鶴",
    "utf-8-sig": "чайка カモメ Möwe 鶴",
}


def _encodings(count: int, seed: int) -> Iterator[Case]:
    draw = random.Random(f"encodings {seed}")
    for number in range(count):
        encoding = draw.choice(list(WORDS))
        words = WORDS[encoding].split()
        rows = [f"{i},{draw.choice(words)} {draw.choice(('a', 'note', ''))}," for i in range(12)]
        rows = [row + words[i % 3] for i, row in enumerate(rows)]
        text = "\n".join(["x,text,species", *rows])
        yield Case(f"{encoding} (seed {seed}, input {number})", text.encode(encoding), ".csv")


def _summary(path: Path) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        run_command("inspect", str(path), "--label", "species", "--json")
    return out.getvalue()


def _check_letters(case: Case, summary: str) -> str:
    encoding, contents = case.name.split()[0], json.loads(summary)
    # Western and Central European letters cannot always be told apart; a remark then says so.
    if encoding == "cp1250" and any(remark["kind"] == "encoding" for remark in contents["remarks"]):
        return ""
    strange = {row["name"] for row in contents["labels"]["classes"]} - set(WORDS[encoding].split())
    return f"{encoding} was read as {sorted(strange)}" if strange else ""


#: Characters that make no visible difference, at least at the ends of a label.
INVISIBLE = tuple("\u200b\ufeff\u00ad\u200e\u200f\u202a\u202c\u2060\u2066\u00a0")
NAMES = ("café", "Ångström", "größe")


def _unicode_labels(count: int, seed: int) -> Iterator[Case]:
    draw = random.Random(f"labels {seed}")
    for number in range(count):
        rows = []
        for i in range(30):
            written = unicodedata.normalize(draw.choice(("NFC", "NFD")), NAMES[i % 3])
            sign = draw.choice(INVISIBLE)
            places = (0, len(written)) if sign == "\u00a0" else range(len(written) + 1)
            at = draw.choice(places)
            rows.append(f"{i % 7},{written[:at]}{sign}{written[at:]}")
        text = "\n".join(["x,species", *rows])
        yield Case(f"labels (seed {seed}, input {number})", text.encode(), ".csv")


def _check_classes(case: Case, summary: str) -> str:
    found = [row["name"] for row in json.loads(summary)["labels"]["classes"]]
    names = {unicodedata.normalize("NFC", name) for name in NAMES}
    return "" if set(found) == names else f"classes are {found}"


def _quotes(count: int, seed: int) -> Iterator[Case]:
    """Tables of 60 rows in which a quotation mark is missing, or belongs there."""
    draw = random.Random(f"quotes {seed}")
    for number in range(count):
        rows = [[str(i), f"text {i}", draw.choice(("cat", "dog"))] for i in range(60)]
        for row in rows:
            for j in (1, 2):
                if draw.random() < 0.3:
                    row[j] = f'"{row[j]}"'
        at, column = draw.randrange(60), draw.randrange(3)
        word = draw.choice(('"open', '"', 'a"b', '"a""b"', '"two\nlines"', '"a"b', '""x', '"x,y'))
        rows[at][column] = word
        text = "\n".join(["x,text,species", *map(",".join, rows)]) + draw.choice(("", "\n"))
        name = f"{word!r} in row {at}, column {column} (seed {seed}, input {number})"
        yield Case(name, text.encode(), ".csv")


def _check_rows(case: Case, summary: str) -> str:
    rows = json.loads(summary)["rows"]
    return "" if rows == 60 else f"{rows} rows of 60"


def _extremes(count: int, seed: int) -> Iterator[Case]:
    """Tables of unusual size: long cells and headers, many columns, many short and empty lines, free text."""
    draw = random.Random(f"extremes {seed}")
    numbers = ("1e308", "-1e308", "1e999", "9" * 400, "nan", "inf", "-0", "1e-320", "0x10", "1_000", "٣")
    for number in range(count):
        kind = draw.choice(("cell", "columns", "trailing", "lines", "text", "numbers", "labels", "header"))
        size = draw.choice((1_000, 20_000, 100_000))
        rows = [[str(i), draw.choice(("cat", "dog"))] for i in range(40)]
        header = ["x", "species"]
        if kind == "cell":
            rows[draw.randrange(40)][draw.randrange(2)] = "long " * (size // 5)
        elif kind == "header":
            header[0] = "h" * size
        elif kind == "columns":
            width = min(size, 3000)
            header += [f"c{i}" for i in range(width)]
            rows = [[*row, *(draw.choice("123") for _ in range(width))] for row in rows[:12]]
        elif kind == "trailing":
            header += [""] * size
            rows = [[*row, *[""] * draw.choice((0, size))] for row in rows[:6]]
        elif kind == "lines":
            rows += [draw.choice(([""], [" "], ["1"], ["", ""])) for _ in range(size)]
        elif kind == "text":
            letters = "abcdefghij "
            rows = [[str(i), "".join(draw.choices(letters, k=min(size, 2000)))] for i in range(300)]
        elif kind == "numbers":
            rows = [[draw.choice((*numbers, row[0])), row[1]] for row in rows]
        elif kind == "labels":
            start = "label" * (size // 5)
            rows = [[row[0], start + draw.choice(("a", "b", "ab", "xyz"))] for row in rows]
        text = "\n".join(",".join(row) for row in [header, *rows])
        yield Case(f"{kind} of {size} (seed {seed}, input {number})", text.encode(), ".csv")


DOORS = [
    Door("CSV", inspect, _csv),
    Door("JSON", inspect, _json),
    Door("gzip", inspect, _gzip),
    Door("gzip in parts", _inspect_in_parts, _gzip),
    Door("encodings", _summary, _encodings, _check_letters),
    Door("Unicode labels", _summary, _unicode_labels, _check_classes),
    Door("quotation marks", _summary, _quotes, _check_rows),
    Door("extreme tables", inspect, _extremes),
]
