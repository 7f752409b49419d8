"""A model of a table, saved as a folder of tensors and JSON with digests; loading it executes no code."""

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypedDict

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from propall import __version__, atomic_files, counter_rng
from propall.estimators.classifier import PartialLabelClassifier
from propall.estimators.mixture import ClassifierMixture
from propall.estimators.persistence import load_fitted
from propall.estimators.resolution import Resolution
from propall.labels.annotators import CrowdAnswers, EarlierAnswers
from propall.labels.parsing import as_text
from propall.schema import check_json
from propall.tables.arrow_text import joined
from propall.tables.consensus import KnownAnnotators
from propall.tables.features import Features
from propall.tables.label_columns import LabeledRows
from propall.tables.label_source import LabelSource
from propall.training.checkpoint import write_tensors

#: Version of the folder layout; folders with a higher one are rejected.
LAYOUT = 1
#: Files of a model; the last one lists the others.
CLASSIFIER, HELD_OUT, CONTENTS = "classifier.safetensors", "held_out.safetensors", "model.json"
#: File of a model that was fitted on annotators' answers.
ANNOTATORS = "annotators.safetensors"
#: Files that `propall fit` adds: the report page, and the options that repeat the fit.
PAGE, OPTIONS = "report.html", "options.json"


@dataclass(frozen=True)
class HeldOut:
    """Out-of-fold predictions for the training rows, and (n,) hashes of the rows' contents."""

    keys: NDArray[np.int64]
    log_probabilities: NDArray[np.float32]

    def rows_of(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the training row with each key, the last of several; -1 if there is none."""
        place = np.searchsorted(self.keys, keys, side="right", sorter=self._order) - 1
        rows = self._order[np.maximum(place, 0)]
        return np.where((place >= 0) & (self.keys[rows] == keys), rows, -1)

    @functools.cached_property
    def _order(self) -> NDArray[np.int64]:
        # A search in sorted keys needs a fraction of the memory of a dict.
        return np.argsort(self.keys, kind="stable")


class _Contents(TypedDict):
    """JSON of a saved model."""

    layout: int
    version: str
    classes: list[str]
    labels: dict[str, Any]
    features: dict[str, Any]
    account: dict[str, Any]
    files: dict[str, str]


@dataclass
class TableModel:
    """A classifier together with the conversion of table rows into its features.

    Examples:
        >>> import pandas as pd
        >>> from propall.tables.fitting import FitOptions, fit_table
        >>> from propall.tables.label_columns import open_table
        >>> from propall.tables.label_source import LabelSource
        >>> labels = ["cat", "cat|dog", "dog", "dog|cat"]
        >>> frame = pd.DataFrame({"size": [1.0, 1.2, 3.0, 3.1] * 10, "label": labels * 10})
        >>> table = open_table(frame, LabelSource(label="label"))
        >>> options = FitOptions(methods=("cc",), nets=("linear",), epochs=100, members=1, search=False)
        >>> model = fit_table(table, options).model
        >>> model.predict(frame)[:4].tolist()
        ['cat', 'cat', 'dog', 'dog']
    """

    classifier: PartialLabelClassifier | ClassifierMixture  # fitted; class names are strings
    features: Features
    labels: LabelSource  # where they were in the training table
    account: dict[str, Any] = field(default_factory=dict)  # settings and results of the fit, as JSON values
    held_out: HeldOut | None = None
    annotators: KnownAnnotators | None = None  # of the training table, if it has named ones

    @property
    def classes(self) -> NDArray[Any]:
        """Class names, in the order of the probability columns."""
        return self.classifier.classes_

    @property
    def is_unfinished(self) -> bool:
        """Whether the fit was interrupted, so that the model itself must resolve its training rows."""
        return self.held_out is None and "streamed" not in self.account

    @property
    def is_of_0_1_0(self) -> bool:
        """Whether version 0.1.0 fitted the model, which weighed annotators' answers differently."""
        return bool(self.account) and "trust" not in self.account

    def log_probabilities(self, frame: pd.DataFrame, **inputs: Any) -> NDArray[np.float64]:
        """Return the log-probabilities of all classes for rows of a table.

        Args:
            frame: the rows.
            inputs: further arguments of `Features.transform`.
        """
        X = self.features.transform(frame, **inputs)
        return self.classifier.predict_log_proba(X).astype(np.float64)

    def predict(self, frame: pd.DataFrame, **inputs: Any) -> NDArray[Any]:
        """Return the most probable class of every row; `inputs` are arguments of `log_probabilities`."""
        names: NDArray[Any] = self.classes[self.log_probabilities(frame, **inputs).argmax(1)]
        return names

    def resolve(
        self,
        frame: pd.DataFrame,
        candidates: Any,
        *,
        embedding: NDArray[Any] | None = None,
        folder: Path | None = None,
        prepared: pd.DataFrame | None = None,
    ) -> tuple[Resolution, NDArray[np.int64]]:
        """Select the most probable candidate of every row.

        Training rows are resolved by the cross-validation models that were not fitted on them, so that
        probabilities of all rows are comparable.

        Returns:
            The resolution, and (n,) the training row that each row equals, -1 for new rows.
        """
        logs = self.log_probabilities(frame, embedding=embedding, folder=folder, prepared=prepared)
        rows = np.full(len(frame), -1)
        if self.held_out is not None:
            rows = self.held_out.rows_of(self.keys(frame, embedding, folder))
            seen = rows >= 0
            logs[seen] = self.held_out.log_probabilities[rows[seen]]
        return Resolution(logs, self.classifier.candidate_matrix(candidates), self.classes), rows

    def earlier_answers(self, labeled: LabeledRows, rows: NDArray[np.int64]) -> EarlierAnswers | None:
        """Return the answers of a table's annotators in the fit, except for those that are in the table.

        Args:
            labeled: the labels of the table.
            rows: (n,) the training row that each row equals, see `resolve`.
        """
        if self.annotators is None or self.held_out is None:
            return None
        return self.annotators.answers_elsewhere(labeled, rows, self.held_out.rows_of(self.held_out.keys))

    def keys(
        self, frame: pd.DataFrame, embedding: NDArray[Any] | None = None, folder: Path | None = None
    ) -> NDArray[np.int64]:
        """Hash the contents of each row: its cells, precomputed features or image."""
        columns = [frame[column.name] for column in self.features.columns]
        rows = joined(columns, "\x1f") if self.features.images is None and embedding is None else None
        return _row_keys(self._joined_cells(frame, embedding, folder) if rows is None else rows)

    def _joined_cells(
        self, frame: pd.DataFrame, embedding: NDArray[Any] | None, folder: Path | None
    ) -> list[str]:
        cells = [frame[column.name].map(as_text) for column in self.features.columns]
        if self.features.images is not None:
            # The contents of the file: another folder may have different images of the same names.
            files = frame[self.features.images.name].map(lambda cell: (folder or Path()) / as_text(cell))
            cells.append(files.map(_digest))
        if embedding is not None:
            rows = np.ascontiguousarray(embedding, dtype=np.float32)
            cells.append(pd.Series([row.tobytes().hex() for row in rows], index=frame.index))
        return ["\x1f".join(row) for row in zip(*cells, strict=True)]

    def save(self, folder: str | Path, *, attachments: Mapping[str, str] | None = None) -> Path:
        """Write the model to a folder; an older model there is replaced when the new one is complete.

        Args:
            folder: a new folder, or one with an older model.
            attachments: text of further files by name: `PAGE`, `OPTIONS`.
        """
        folder = check_model_folder(folder)
        with atomic_files.replacing_folder(folder) as part:
            self.classifier.save(part / CLASSIFIER)
            if self.held_out is not None:
                held_out = self.held_out
                arrays = {"keys": held_out.keys, "log_probabilities": held_out.log_probabilities}
                tensors = {name: torch.tensor(array) for name, array in arrays.items()}
                write_tensors(part / HELD_OUT, tensors)
            if self.annotators is not None:
                _write_annotators(part / ANNOTATORS, self.annotators)
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
            first_line = json.dumps({"digest": counter_rng.digest(text)})
            (part / CONTENTS).write_text(f"{first_line}\n{text}\n", encoding="utf-8")
            for name, attachment in (attachments or {}).items():
                (part / name).write_text(attachment, encoding="utf-8")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model written by `save`; damaged, modified and newer ones are rejected."""
        folder = Path(folder)
        while True:
            before = _identity(folder)
            try:
                return cls._load(folder)
            except ValueError:
                # Its files may be of two models if another process replaced it meanwhile.
                if _identity(folder) == before:
                    raise

    @classmethod
    def _load(cls, folder: Path) -> Self:
        contents = _read_contents(folder)
        path = folder / CONTENTS
        try:
            check_json(contents, _Contents, "contents")
            features = Features.from_dict(contents["features"])
            labels = LabelSource.from_dict(contents["labels"])
        except ValueError as error:
            raise _invalid(path, error) from error
        for name, digest in contents["files"].items():
            file = folder / name
            if Path(name).name != name or not file.is_file():
                raise ValueError(f"model: {file} is missing. Use a complete copy of the folder.")
            if _digest(file) != digest:
                raise ValueError(f"model: {file} was modified after it was saved. Use an unmodified copy.")
        if CLASSIFIER not in contents["files"]:
            raise ValueError(f"model: {path} lists no {CLASSIFIER}. Use a complete copy of the folder.")
        classifier = load_fitted(folder / CLASSIFIER)
        if classifier.classes_.tolist() != contents["classes"]:
            raise _invalid(path, "its classes are not those of the classifier")
        if features.out_shape != classifier.in_shape_:
            raise _invalid(path, "its features are not those of the classifier")
        held_out = (
            _read_held_out(folder / HELD_OUT, len(classifier.classes_))
            if HELD_OUT in contents["files"]
            else None
        )
        annotators = None
        if ANNOTATORS in contents["files"]:
            n = 0 if held_out is None else len(held_out.keys)
            annotators = _read_annotators(folder / ANNOTATORS, n, len(classifier.classes_))
        return cls(classifier, features, labels, contents["account"], held_out, annotators)


def check_model_folder(folder: str | Path) -> Path:
    """Return the folder; raise ValueError if it contains anything but an older model."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out: {folder} is a file; expected a folder for the model. Use a new folder.")
    if folder.exists():
        names = [path.name for path in folder.iterdir()]
        foreign = sorted(set(names) - {CLASSIFIER, HELD_OUT, ANNOTATORS, CONTENTS, PAGE, OPTIONS})
        if foreign:
            inside = f"{foreign[0]!r}, which is not part of a model"
            raise ValueError(f"out: {folder} contains {inside}. Use a new folder.")
    return folder


def _read_contents(folder: Path) -> Mapping[str, Any]:
    path = folder / CONTENTS
    if not path.is_file():
        reason = f"it has no {CONTENTS}" if folder.exists() else "it does not exist"
        raise ValueError(f"model: {folder} is not a propall model: {reason}. Create one with `propall fit`.")
    try:
        first_line, _, text = path.read_text(encoding="utf-8").partition("\n")
        digest = json.loads(first_line)["digest"]
        contents = json.loads(text)
        layout, version = int(contents["layout"]), str(contents["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"model: {path} is not a complete, unmodified propall model ({error}).") from error
    # Before the digest, which a newer version may compute differently.
    if layout > LAYOUT:
        raise ValueError(
            f"model: {folder} was written by propall {version} in layout {layout}; this version "
            f"({__version__}) reads up to {LAYOUT}. Upgrade propall."
        )
    if digest != counter_rng.digest(text.removesuffix("\n")):
        raise ValueError(f"model: {path} was modified after it was saved. Use an unmodified copy.")
    return contents  # type: ignore[no-any-return]


def _read_held_out(path: Path, n_classes: int) -> HeldOut:
    try:
        tensors = load_file(path)
        keys, logs = tensors["keys"].numpy(), tensors["log_probabilities"].numpy()
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"model: {path} cannot be read ({error}). Use an unmodified copy.") from error
    if keys.ndim != 1 or logs.shape != (len(keys), n_classes) or keys.dtype != np.int64:
        raise _invalid(path, f"shapes {keys.shape} and {logs.shape} do not fit {n_classes} classes")
    return HeldOut(keys, logs)


def _write_annotators(path: Path, annotators: KnownAnnotators) -> None:
    table, entries = annotators.table, annotators.table.answers.votes.tocoo()
    annotator, label = np.divmod(entries.col, table.answers.n_classes)
    answers = np.stack([entries.row, annotator, label], axis=1).astype(np.int32)
    arrays = {
        "answers": answers,
        "probabilities": table.probabilities.astype(np.float32),
        "weights": table.weights.astype(np.float32),
    }
    names = json.dumps(annotators.names)
    write_tensors(path, {name: torch.tensor(array) for name, array in arrays.items()}, {"names": names})


def _read_annotators(path: Path, n_rows: int, n_classes: int) -> KnownAnnotators:
    try:
        with safe_open(path, framework="pt") as file:
            arrays = [file.get_tensor(name).numpy() for name in ("answers", "probabilities", "weights")]
            names = json.loads((file.metadata() or {})["names"])
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"model: {path} cannot be read ({error}). Use an unmodified copy.") from error
    answers, probabilities, weights = arrays
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise _invalid(path, "its names of annotators are not a list of texts")
    if answers.ndim != 2 or answers.shape[1] != 3 or answers.dtype != np.int32:
        raise _invalid(path, f"answers are {answers.dtype} of shape {answers.shape}")
    for values, shape in ((probabilities, (n_rows, n_classes)), (weights, (n_rows,))):
        if values.dtype != np.float32 or values.shape != shape or not ((values >= 0) & (values <= 1)).all():
            raise _invalid(path, f"{values.dtype} of shape {values.shape} are not {shape} shares")
    try:
        rows, annotators, labels = answers.T
        crowd = CrowdAnswers.from_lists(rows, annotators, labels, (n_rows, len(names), n_classes))
    except ValueError as error:
        raise _invalid(path, error) from error
    return KnownAnnotators(tuple(names), EarlierAnswers(crowd, probabilities, weights))


def _invalid(path: Path, reason: object) -> ValueError:
    text = str(reason).rstrip(".")
    return ValueError(f"model: {path} is not a valid propall model ({text}). Use an unmodified copy.")


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        state = folder.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino


def _row_keys(rows: Iterable[str]) -> NDArray[np.int64]:
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in rows]
    return np.frombuffer(b"".join(digests), dtype=np.int64)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
