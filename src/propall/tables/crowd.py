"""Labels from annotators' answers alone, and what the answers say about annotators and rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall import atomic_files
from propall.labels.annotators import ErrorModel, Posterior, combine_answers
from propall.tables.consensus import crowd_answers, decide
from propall.tables.file_formats import table_stem
from propall.tables.formulas import map_columns
from propall.tables.label_columns import LabeledRows, LabeledTable
from propall.tables.label_source import USUAL_NAMES, LabelSource
from propall.tables.reading import DataNote, RawTable
from propall.tables.resolution import ResolvedTable
from propall.tables.summary import Agreement, measure_agreement
from propall.wording import guard_formula

#: Usual names of the columns of a table in long form.
ITEM_NAMES = ("item", "task", "image", "example", "question", "row", "id")
ANNOTATOR_NAMES = ("annotator", "worker", "rater", "user", "who", "performer")
ANSWER_NAMES = ("answer", *USUAL_NAMES)
#: Number of rows that are suggested for another answer.
QUESTIONS = 50
#: Smallest expected gain of a question.
MIN_GAIN = 0.001
#: Number of annotators, the most accurate ones, who may be asked again.
ASKABLE = 100
#: Number of products in the search for these rows; beyond it, the least certain rows are looked at.
MAX_PRODUCTS = 10**9
#: Whom to ask if all annotators of a row have answered, or are not known.
SOMEBODY = "somebody new"
#: A confusion with fewer expected answers than this may be chance.
MIN_CONFUSED = 2.0
#: Column of the number of answers to other rows of the fit, if there are any.
EARLIER = "answers_in_fit"


def guess_answer_columns(
    raw: RawTable, item: str | None = None, annotator: str | None = None
) -> LabelSource | None:
    """Return the columns of item, annotator and answer if those that are not given have usual names.

    If the first two are known, the only other column holds the answers, whatever its name is.
    """
    names = [str(name) for name in raw.frame.columns]
    by_name = {name.lower(): name for name in names if name not in (item, annotator)}
    usual = (ITEM_NAMES, ANNOTATOR_NAMES, ANSWER_NAMES)
    guesses = [next((by_name[n] for n in group if n in by_name), None) for group in usual]
    item, annotator = item or guesses[0], annotator or guesses[1]
    others = [name for name in names if name not in (item, annotator)]
    answer = guesses[2] or (others[0] if len(others) == 1 else None)
    if item is None or annotator is None or answer is None:
        return None
    return LabelSource(label=answer, item=item, annotator=annotator)


def combine_table(
    table: LabeledTable,
    *,
    errors: ErrorModel = "shrunk",
    class_priors: Literal["estimated", "uniform"] = "estimated",
) -> ResolvedTable:
    """Estimate the true label of every row from annotators' answers alone."""
    labeled = table.labeled
    answers = None if labeled is None else crowd_answers(labeled)
    if labeled is None or answers is None:
        raise ValueError(
            "annotators: the labels are one column, not answers of annotators. Name one column per "
            "annotator, columns of votes, or the columns of item, annotator and answer."
        )
    posterior = combine_answers(None, answers, errors=errors, class_priors=class_priors)
    classes = labeled.labels.decode(range(labeled.labels.n_classes))
    consensus = decide(posterior, labeled, labeled.labels.to_numpy(), classes)
    nothing = np.zeros(len(labeled.rows), dtype=bool)
    notes = list(table.notes)
    if posterior.is_assumed:
        text = (
            "no row has two answers, so nothing shows who is reliable; an accuracy of "
            f"{100 * posterior.accuracy[0]:.0f} % is assumed. Ask a second annotator about some rows, or fit "
            "a model"
        )
        notes.append(DataNote("nothing to compare", text))
    item = None if table.source is None else table.source.item
    return ResolvedTable(
        table.raw, labeled, consensus, nothing, notes=notes, resolver="the answers", item=item
    )


@dataclass(frozen=True)
class CrowdReport:
    """Who is reliable, who confuses what, how far annotators agree, and which rows to ask about again."""

    annotators: pd.DataFrame  # one row per annotator, most accurate first
    confusions: pd.DataFrame  # one row per annotator and pair of classes, most frequent first
    questions: pd.DataFrame  # one row per row to ask about, largest expected gain first
    agreement: Agreement

    @property
    def frames(self) -> tuple[pd.DataFrame, ...]:
        """The tables in the order of `crowd_files`."""
        return self.annotators, self.confusions, self.questions

    def check_files(self, out: Path) -> None:
        """Raise ValueError if `write` would replace a file that is not an earlier report."""
        for path, frame in zip(crowd_files(out), self.frames, strict=True):
            if path.is_file() and _columns(_header(path)) != _columns(frame.columns):
                raise ValueError(
                    f"out: the report beside {out} would replace {path}, which is another table; choose "
                    "another name."
                )

    def write(self, out: Path) -> list[Path]:
        """Write three CSV files next to a file, with its name as prefix."""
        paths = crowd_files(out)
        for path, frame in zip(paths, self.frames, strict=True):
            inert = map_columns(frame, guard_formula, list(frame.columns)).rename(columns=guard_formula)
            atomic_files.write_text(path, inert.to_csv(index=False, float_format="%.6g"))
        return paths


def _header(path: Path) -> list[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline().strip().split(",")


def _columns(names: Iterable[str]) -> list[str]:
    return [name for name in names if name not in ("item", EARLIER)]  # which not every report has


def crowd_files(out: Path) -> list[Path]:
    """Return the files that `CrowdReport.write` writes next to a file."""
    return [
        out.with_name(f"{table_stem(out)}_{name}.csv") for name in ("annotators", "confusions", "questions")
    ]


def report_crowd(resolved: ResolvedTable, *, most: int = QUESTIONS) -> CrowdReport | None:
    """Summarize the annotators of a resolved table; None if there are none."""
    posterior, labeled = resolved.consensus.posterior, resolved.labeled
    if posterior is None or labeled.counts is None:
        return None
    names = [name for name, _ in resolved.annotators]
    classes = [str(name) for name in resolved.resolution.classes]
    confusions = _confusions(posterior, labeled.answers, labeled.counts, names, classes)
    return CrowdReport(
        _reliability(posterior, names, confusions),
        confusions,
        _questions(resolved, posterior, names, most),
        measure_agreement(labeled.counts, labeled.answers, labeled.annotators),
    )


def _reliability(posterior: Posterior, names: list[str], confusions: pd.DataFrame) -> pd.DataFrame:
    worst = confusions.drop_duplicates("annotator").set_index("annotator")
    texts = (worst["true"] + " answered as " + worst["answered"]).to_dict()
    frame = pd.DataFrame(
        {
            "annotator": names,
            "answers": posterior.n_answers.astype(int),
            EARLIER: posterior.n_earlier.astype(int),
            "accuracy": posterior.accuracy,
            "standard_error": posterior.standard_error,
            "most_frequent_confusion": [texts.get(name, "") for name in names],
        }
    )
    if not posterior.n_earlier.any():
        frame = frame.drop(columns=EARLIER)
    return frame.sort_values(["accuracy", "answers"], ascending=False, kind="stable", ignore_index=True)


def _confusions(
    posterior: Posterior,
    answers: NDArray[np.integer] | None,
    counts: NDArray[np.int64],
    names: list[str],
    classes: list[str],
) -> pd.DataFrame:
    """Pairs of classes that an annotator confuses, with the expected number of such answers."""
    q, k = posterior.probabilities, len(classes)
    rows: list[tuple[Any, ...]] = []
    if posterior.is_assumed:
        names = []  # confusions that follow from an assumption are not shown
    for a, name in enumerate(names):
        if answers is None:
            expected = q.T @ counts
        else:
            asked = np.flatnonzero(answers[:, a] >= 0)
            given = np.eye(k)[answers[asked, a]]
            expected = q[asked].T @ given
        np.fill_diagonal(expected, 0.0)
        matrix = posterior.matrices[posterior.matrix_of[a]]
        for y, z in np.argwhere(expected >= MIN_CONFUSED):
            rows.append((name, classes[y], classes[z], matrix[y, z], expected[y, z]))
    columns = ["annotator", "true", "answered", "probability", "answers"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.sort_values("answers", ascending=False, kind="stable", ignore_index=True)


def _questions(resolved: ResolvedTable, posterior: Posterior, names: list[str], most: int) -> pd.DataFrame:
    """The rows on which another answer is expected to help most, and who should give it."""
    labeled = resolved.labeled
    best = posterior.probabilities.max(1)
    askable = np.argsort(-posterior.accuracy, kind="stable")[:ASKABLE]
    looked_at = MAX_PRODUCTS // (len(askable) * posterior.class_priors.size**2)
    order = np.argsort(best, kind="stable")[: max(most, looked_at)]
    order = order[best[order] < 1 - 1e-6] if most else order[:0]
    step = max(most, 1000)
    rows, whom, gains = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
    for start in range(0, len(order), step):
        # No answer can gain more than is missing to certainty, so that the rows from here on need no look.
        if len(rows) == most and gains[-1] >= 1 - best[order[start]]:
            break
        block = order[start : start + step]
        asked, gain = _whom_to_ask(posterior, labeled, block, askable)
        rows, whom, gains = (np.concatenate(pair) for pair in ((rows, block), (whom, asked), (gains, gain)))
        first = np.argsort(-gains, kind="stable")[:most]
        first = first[gains[first] >= MIN_GAIN]
        rows, whom, gains = rows[first], whom[first], gains[first]
    frame = pd.DataFrame(
        {
            "row": resolved.raw.frame.index[labeled.rows[rows]].astype(int) + 1,
            "label": resolved.resolution.classes[posterior.probabilities[rows].argmax(1)].astype(str),
            "probability": best[rows],
            "ask": [names[a] if a >= 0 else SOMEBODY for a in whom],
            "expected_gain": gains,
        }
    )
    if (item := _item_column(resolved)) is not None:
        frame.insert(1, "item", resolved.raw.frame.iloc[labeled.rows[rows]][item].astype(str).to_list())
    return frame


def _whom_to_ask(
    posterior: Posterior, labeled: LabeledRows, rows: NDArray[np.int64], askable: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Who should answer on each row, -1 for somebody new, and the expected gain."""
    unknown, of_somebody = np.full(len(rows), -1), posterior.expected_gain_of_somebody(rows)
    if labeled.answers is None:
        return unknown, of_somebody
    # Somebody who has answered would say the same again.
    has_answered = labeled.answers[np.ix_(rows, askable)] >= 0
    gain = np.where(has_answered, -1.0, posterior.expected_gain(rows, askable))
    whom, value = askable[gain.argmax(1)], gain.max(1)
    everybody_has = value < 0
    return np.where(everybody_has, unknown, whom), np.where(everybody_has, of_somebody, value)


def _item_column(resolved: ResolvedTable) -> str | None:
    names = [str(name) for name in resolved.raw.frame.columns]
    if resolved.item in names:
        return resolved.item
    return next((name for name in names if name.lower() in ITEM_NAMES), None)


def with_usual_answers(raw: RawTable, item: str | None = None, annotator: str | None = None) -> LabelSource:
    """Return columns of usual names; raise ValueError if there are none."""
    guess = guess_answer_columns(raw, item, annotator)
    if guess is None:
        raise ValueError(
            "annotators: which columns hold the answers? Use --annotators A,B,C for one column per "
            "annotator, --votes A,B,C for one column per class, or --label ANSWER --item ITEM --annotator "
            "WHO for one answer per line."
        )
    return guess
