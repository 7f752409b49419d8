"""Tables in binary formats: Excel, Parquet, Feather; embeddings as .npy; images; special files."""

import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.faults.doors.text_tables import HEADING, ROWS, csv_text, inspect
from tests.faults.harness import Case, Door, run_command
from tests.faults.mutations import byte_mutations, text_mutations

FRAME = pd.DataFrame(ROWS, columns=HEADING)


def _written(write: Any) -> bytes:
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def _excel(count: int, seed: int) -> Iterator[Case]:
    valid = _written(lambda out: FRAME.to_excel(out, index=False))
    third = count // 3
    yield from byte_mutations("Excel", valid, ".xlsx", third, seed)
    with zipfile.ZipFile(io.BytesIO(valid)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    names = sorted(parts)
    for i in range(count - third):
        name = names[i % len(names)]
        changed = byte_mutations if i % 2 else _xml_mutations
        (case,) = changed(f"Excel {name}", parts[name], ".xlsx", 1, seed * 10_000 + i)
        content = _written(lambda out, c=case, n=name: _zipped(out, {**parts, n: c.content}))
        yield Case(case.name, content, ".xlsx")


def _xml_mutations(name: str, valid: bytes, suffix: str, count: int, seed: int) -> Iterator[Case]:
    return text_mutations(name, valid.decode(), suffix, count, seed)


def _zipped(out: io.BytesIO, parts: dict[str, bytes]) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def _parquet(count: int, seed: int) -> Iterator[Case]:
    yield from byte_mutations("Parquet", _written(FRAME.to_parquet), ".parquet", count, seed)


def _feather(count: int, seed: int) -> Iterator[Case]:
    yield from byte_mutations("Feather", _written(FRAME.to_feather), ".feather", count, seed)


def _load_embeddings(path: Path) -> None:
    from propall.tables.fitting import load_embedding

    load_embedding(path)


def _npy(count: int, seed: int) -> Iterator[Case]:
    valid = _written(lambda out: np.save(out, np.random.default_rng(0).normal(size=(len(ROWS), 4))))
    half = count // 2
    yield from byte_mutations("npy", valid, ".npy", half, seed)
    end = valid.index(b"\n") + 1
    header, body = valid[:end], valid[end:]
    shapes = (
        b"(40, 4)",
        b"(40,)",
        b"(-40, 4)",
        b"(1099511627776, 8)",
        b"(40, 4, ",
        b"()",
        b"'x'",
        b"(4.5, 4)",
    )
    types = (b"<f8", b"|O", b"<U5", b"<M8[s]", b"|V8", b"xx", b"<c16", b"[('a', '<f8')]", b"<i8", b"|b1")
    for i in range(count - half):
        changed = header.replace(b"(40, 4)", shapes[i % len(shapes)]).replace(
            b"<f8", types[i // 3 % len(types)]
        )
        changed = changed[:10] + changed[10:].rstrip().ljust(len(header) - 11) + b"\n"
        yield Case(f"npy header {changed[10:80]!r} (input {i})", changed + body, ".npy")
    yield Case("npz instead of npy", _written(lambda out: np.savez(out, a=np.zeros(3))), ".npy")


def _special(path: Path) -> None:
    """Replace the input by a special file: the content says which."""
    kind = path.read_text(encoding="utf-8").split()[0]
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "unreadable":
        path.touch(mode=0o000)
    if path.suffix == ".npy":
        _load_embeddings(path)
    elif path.suffix == ".tree":
        run_command("inspect", str(_valid_table(path)), "--label", "species", "--hierarchy", str(path))
    elif path.suffix == ".toml":
        run_command("inspect", str(_valid_table(path)), "--options", str(path))
    else:
        inspect(path)


def _valid_table(path: Path) -> Path:
    table = path.with_name("table.csv")
    table.write_text(csv_text(), encoding="utf-8")
    return table


def _open_images(path: Path) -> Any:
    """Read a table of two images, one of which is the input; the other must be kept."""
    from propall.tables.images import ImageColumn

    path.with_name("whole.png").write_bytes(_image("PNG"))
    frame = pd.DataFrame({"file": ["whole.png", path.name]})
    column = ImageColumn("file", 16)
    readable, notes = column.openable(frame, path.parent)
    column.pixels(frame[readable], path.parent)
    return readable[0], notes


def _check_images(case: Case, result: Any) -> str:
    kept, notes = result
    return "" if kept and all("input" in note.text for note in notes) else "the wrong image was left out"


def _image(kind: str) -> bytes:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 255, (40, 50, 3)).astype(np.uint8)
    return _written(lambda out: Image.fromarray(pixels).save(out, kind))


def _images(count: int, seed: int) -> Iterator[Case]:
    kinds = {"PNG": ".png", "JPEG": ".jpg", "GIF": ".gif", "BMP": ".bmp", "WEBP": ".webp", "TIFF": ".tiff"}
    each = -(-count // len(kinds))
    for kind, suffix in kinds.items():
        yield from byte_mutations(kind, _image(kind), suffix, each, seed)


def _specials(count: int, seed: int) -> Iterator[Case]:
    kinds = ("fifo", "folder", "endless", "dangling", "loop")
    suffixes = (".csv", ".json", ".jsonl", ".tsv", ".xlsx", ".parquet", ".feather", ".txt", "")
    suffixes += (".npy", ".tree", ".toml", ".csv.gz")
    for i in range(min(count, len(kinds) * len(suffixes))):
        kind, suffix = kinds[i % len(kinds)], suffixes[i // len(kinds) % len(suffixes)]
        yield Case(f"{kind} as {suffix or 'no suffix'}", kind.encode(), suffix)


DOORS = [
    Door("Excel", inspect, _excel),
    Door("Parquet", inspect, _parquet),
    Door("Feather", inspect, _feather),
    Door("embeddings", _load_embeddings, _npy, names=("embedding",)),
    Door("special files", _special, _specials),
    Door("images", _open_images, _images, _check_images),
]
