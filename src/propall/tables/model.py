"""A model of a person's table in one folder: tensors and JSON, sealed by digests, never executed."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file

from propall import __version__, atomic_files, counter_rng
from propall.estimators.classifier import PartialLabelClassifier
from propall.estimators.resolution import Resolution
from propall.labels.parsing import as_text
from propall.tables.features import Features
from propall.tables.label_source import LabelSource
from propall.training.checkpoint import write_tensors

#: Version of the layout of the folder; a higher one is refused.
LAYOUT = 1
#: The files of a model, the list of them last.
CLASSIFIER, HELD_OUT, CONTENTS = "classifier.safetensors", "held_out.safetensors", "model.json"
#: Files that `propall fit` adds: the report page, and the options that repeat the fit.
PAGE, OPTIONS = "report.html", "options.json"


@dataclass
class HeldOut:
    """What models said about training rows that they had not seen.

    Attributes:
        keys: (n,) a number for the contents of each row's cells.
        log_probabilities: (n, k) of every class.
    """

    keys: NDArray[np.int64]
    log_probabilities: NDArray[np.float32]


@dataclass
class TableModel:
    """A classifier with all that turns a table's rows into its features.

    Attributes:
        classifier: fitted, with class names as text.
        features: how the columns are read.
        labels: where the labels of the training table stood.
        account: what was done, as plain JSON.
        held_out: answers about the training rows from models that had not seen them.
    """

    classifier: PartialLabelClassifier
    features: Features
    labels: LabelSource
    account: dict[str, Any] = field(default_factory=dict)
    held_out: HeldOut | None = None

    @property
    def classes(self) -> NDArray[Any]:
        """Class names, in the order of the columns of probabilities."""
        return self.classifier.classes_

    def log_probabilities(
        self, frame: pd.DataFrame, *, embedding: NDArray[Any] | None = None, folder: Path | None = None
    ) -> NDArray[np.float64]:
        """Logs of the probabilities of all classes for rows of a table.

        Args:
            frame: a table with the columns the model was fitted with.
            embedding: precomputed features, where it was fitted with some.
            folder: where relative paths of images start from.
        """
        X = self.features.transform(frame, embedding=embedding, folder=folder)
        return self.classifier.predict_log_proba(X).astype(np.float64)

    def predict(self, frame: pd.DataFrame, **given: Any) -> NDArray[Any]:
        """The likeliest class of every row; see `log_probabilities` for what may be given."""
        names: NDArray[Any] = self.classes[self.log_probabilities(frame, **given).argmax(1)]
        return names

    def resolve(
        self, frame: pd.DataFrame, candidates: Any, *, embedding: NDArray[Any] | None = None, **given: Any
    ) -> tuple[Resolution, NDArray[np.bool_]]:
        """The likeliest candidate of every row, and which rows the model was fitted on.

        A row that the model was fitted on is answered by those models of the cross-validation that had not
        seen it, so that all confidences mean the same.

        Args:
            frame: a table with the columns the model was fitted with.
            candidates: their candidate sets, in any form the classifier takes.
            embedding: precomputed features, where it was fitted with some.
            given: see `log_probabilities`.
        """
        logs = self.log_probabilities(frame, embedding=embedding, **given)
        seen = np.zeros(len(frame), dtype=bool)
        if self.held_out is not None:
            place = {int(key): i for i, key in enumerate(self.held_out.keys)}
            keys = self.keys(frame, embedding, given.get("folder"))
            at = np.array([place.get(int(key), -1) for key in keys], dtype=np.int64)
            seen = at >= 0
            logs[seen] = self.held_out.log_probabilities[at[seen]]
        return Resolution(logs, self.classifier.candidate_matrix(candidates), self.classes), seen

    def keys(
        self, frame: pd.DataFrame, embedding: NDArray[Any] | None = None, folder: Path | None = None
    ) -> NDArray[np.int64]:
        """A number for the contents of each row: its cells, precomputed features or image."""
        cells = [frame[column.name].map(as_text) for column in self.features.columns]
        if self.features.images is not None:
            # By what is in the file: other images may have the same names in another folder.
            files = frame[self.features.images.name].map(lambda cell: (folder or Path()) / as_text(cell))
            cells.append(files.map(_digest))
        if embedding is not None:
            rows = np.ascontiguousarray(embedding, dtype=np.float32)
            cells.append(pd.Series([row.tobytes().hex() for row in rows], index=frame.index))
        joined = ["\x1f".join(row) for row in zip(*cells, strict=True)]
        digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in joined]
        return np.frombuffer(b"".join(digests), dtype=np.int64)

    def save(self, folder: str | Path) -> Path:
        """Write the model to a folder; one that holds an older model is replaced as a whole."""
        folder = place_for_model(folder)
        with atomic_files.replacing_folder(folder) as part:
            self._write(part)
        return folder

    def _write(self, part: Path) -> None:
        self.classifier.save(part / CLASSIFIER)
        if self.held_out is not None:
            tensors = {
                "keys": torch.from_numpy(np.array(self.held_out.keys)),
                "log_probabilities": torch.from_numpy(np.array(self.held_out.log_probabilities)),
            }
            write_tensors(part / HELD_OUT, tensors)
        contents = {
            "layout": LAYOUT,
            "version": __version__,
            "classes": self.classes.tolist(),
            "labels": self.labels.as_dict(),
            "features": self.features.as_dict(),
            "account": self.account,
            "files": {path.name: _digest(path) for path in sorted(part.iterdir())},
        }
        text = json.dumps(contents, indent=1, ensure_ascii=False)
        sealed = json.dumps({"digest": counter_rng.digest(text)}) + "\n" + text + "\n"
        (part / CONTENTS).write_text(sealed, encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model that `save` wrote; a damaged, edited or newer one is refused, nothing is executed."""
        folder = Path(folder)
        contents = _contents(folder)
        for name, digest in contents["files"].items():
            path = folder / name
            if Path(name).name != name or not path.is_file():
                raise ValueError(f"model: {path} is missing; use a whole copy of the folder.")
            if _digest(path) != digest:
                raise ValueError(
                    f"model: {path} was cut short or changed after it was saved; use a whole copy."
                )
        classifier = PartialLabelClassifier.load(folder / CLASSIFIER)
        held_out = None
        if HELD_OUT in contents["files"]:
            try:
                tensors = load_file(folder / HELD_OUT)
            except SafetensorError as error:
                raise ValueError(f"model: {folder / HELD_OUT} cannot be read ({error}).") from error
            held_out = HeldOut(tensors["keys"].numpy(), tensors["log_probabilities"].numpy())
        return cls(
            classifier,
            Features.from_dict(contents["features"]),
            LabelSource.from_dict(contents["labels"]),
            contents["account"],
            held_out,
        )


def place_for_model(folder: str | Path) -> Path:
    """The folder, if a model can be written there: it is new, empty, or holds an older model and no more."""
    folder = Path(folder)
    if folder.exists():
        inside = [path.name for path in folder.iterdir()] if folder.is_dir() else [folder.name]
        foreign = sorted(set(inside) - {CLASSIFIER, HELD_OUT, CONTENTS, PAGE, OPTIONS})
        if foreign:
            raise ValueError(f"out: {folder} holds {foreign[0]!r}, no part of a model; name a new folder.")
    return folder


def _contents(folder: Path) -> Mapping[str, Any]:
    path = folder / CONTENTS
    if not path.is_file():
        what = "no folder of that name" if not folder.exists() else f"no {CONTENTS} in it"
        raise ValueError(f"model: {folder} is no propall model: {what}. Make one with `propall fit`.")
    try:
        seal, _, text = path.read_text(encoding="utf-8").partition("\n")
        digest = json.loads(seal)["digest"]
        contents = json.loads(text)
        layout, version = int(contents["layout"]), str(contents["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"model: {path} is not a whole, unchanged propall model ({error}).") from error
    # Before the digest: a newer version may seal in another way.
    if layout > LAYOUT:
        raise ValueError(
            f"model: {folder} was written by propall {version} in layout {layout}; this version "
            f"({__version__}) reads up to {LAYOUT}. Upgrade propall."
        )
    if digest != counter_rng.digest(text.removesuffix("\n")):
        raise ValueError(f"model: {path} was changed after it was saved; use an unchanged copy.")
    return contents  # type: ignore[no-any-return]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
