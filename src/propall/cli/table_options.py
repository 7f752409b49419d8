"""Options that the commands for tables share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from propall.cli.option_groups import Setting
from propall.cli.terminal import split_words

if TYPE_CHECKING:
    from propall.estimators.workers import Workers
    from propall.tables.fitting import FitOptions
    from propall.tables.label_source import LabelSource

LABELS, FEATURES, MODEL, OUTPUT = "Labels", "Features", "Model", "Output"
_label, _feature, _model, _output = (
    partial(typer.Option, rich_help_panel=panel) for panel in (LABELS, FEATURES, MODEL, OUTPUT)
)

TableFile = Annotated[
    Path,
    typer.Argument(
        help="CSV, TSV, Parquet, Feather, JSON lines, Excel, a Label Studio export, or a folder of Parquet "
        "or CSV files. Text files may be compressed: .csv.gz."
    ),
]
Encoding = Annotated[
    str | None,
    _label("--encoding", help="Text encoding of the table, such as cp1251; by default it is recognized."),
]
ModelFolder = Annotated[Path, _model("--model", "-m", help="Model folder written by `propall fit`.")]
OutFile = Annotated[Path, _output("--out", "-o", help="File to write: the table with added columns.")]
Embeddings = Annotated[
    Path | None, _feature(help="Precomputed features: a .npy file with one row per table row.")
]
Probabilities = Annotated[bool, _output("--probabilities", help="Also write the probability of every class.")]
Quiet = Annotated[bool, _output("--quiet", "-q", help="Print the last line only.")]
JsonOutput = Annotated[bool, _output("--json", help="Print JSON instead of text.")]


@dataclass(frozen=True)
class LabelOptions:
    """Where the labels are in a table, and how they are written."""

    label: Annotated[
        str | None,
        _label(
            "--label",
            "-l",
            help="Column of labels: one (cat), several candidates (cat|dog), excluded ones (!cat), or empty.",
        ),
    ] = None
    annotators: Annotated[str | None, _label(help="One column per annotator, separated by commas.")] = None
    votes: Annotated[
        str | None,
        _label(help="One column of votes (0/1 or a number) per class, separated by commas."),
    ] = None
    scores: Annotated[
        str | None, _label(help="One column of a model's probabilities per class, separated by commas.")
    ] = None
    lists: Annotated[
        str | None,
        _label(help="Column of lists of class names, such as a language model writes; needs classes=..."),
    ] = None
    item: Annotated[str | None, _label(help="Column with the item's name, if each row is one answer.")] = None
    annotator: Annotated[
        str | None, _label(help="Column with the annotator's name, if each row is one answer.")
    ] = None
    hierarchy: Annotated[
        Path | None,
        _label(help="Class hierarchy: nested .json, .csv of parent and child, .txt of paths a/b/c."),
    ] = None
    encoding: Encoding = None
    sets: Annotated[
        str, Setting("Candidates by --scores: top_k=2, or mass=0.9 for classes that have this probability")
    ] = "mass=0.9"
    separator: Annotated[str, Setting("Separator between the labels of a cell")] = "|"
    rule: Annotated[
        str, Setting("How answers become candidates: union, plurality, or a minimum number of votes")
    ] = "union"
    classes: Annotated[
        tuple[str, ...],
        Setting('Class names, separated by commas ("a, b" is one); by default those in the table'),
    ] = ()
    unlabeled: Annotated[
        Literal["keep", "drop"], Setting("Rows without a label: keep (every class is possible) or drop")
    ] = "keep"
    repair: Annotated[bool, Setting("Fix obvious label typos")] = True

    @property
    def name_columns(self) -> bool:
        """Whether the options say where the labels are."""
        return bool(self.label or self.annotators or self.votes or self.scores or self.lists)

    def source(self) -> LabelSource:
        """The label source that these options describe."""
        from propall.tables.label_source import LabelSource, read_hierarchy

        return LabelSource(
            label=self.label,
            annotators=_names(self.annotators),
            votes=_names(self.votes),
            scores=_names(self.scores),
            lists=self.lists,
            sets=self.sets,
            item=self.item,
            annotator=self.annotator,
            separator=self.separator,
            rule=int(self.rule) if self.rule.isdigit() else self.rule,  # type: ignore[arg-type]
            classes=self.classes or None,
            hierarchy=None if self.hierarchy is None else read_hierarchy(self.hierarchy),
            unlabeled=self.unlabeled,
            repair=self.repair,
        )


@dataclass(frozen=True)
class ColumnOptions:
    """Which columns of a table are not features."""

    ignore: Annotated[
        str | None, _feature(help="Columns to exclude from the features, separated by commas.")
    ] = None

    @property
    def ignored(self) -> tuple[str, ...]:
        """Names of the columns to exclude."""
        return _names(self.ignore)


@dataclass(frozen=True)
class FeatureOptions(ColumnOptions):
    """What a model learns from."""

    images: Annotated[
        str | None, _feature(help="Column of image files; the model learns from these only.")
    ] = None
    embeddings: Embeddings = None
    features: Annotated[
        tuple[str, ...], Setting("Columns to learn from, separated by commas; by default all but the labels")
    ] = ()
    image_size: Annotated[int, Setting("Height and width that images are resized to", minimum=8)] = 32

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `fit_table`."""
        from propall.tables.fitting import load_embedding
        from propall.tables.images import ImageColumn

        return {
            "columns": list(self.features) or None,
            "without": self.ignored,
            "images": None if self.images is None else ImageColumn(self.images, self.image_size),
            "embedding": load_embedding(self.embeddings),
        }


@dataclass(frozen=True)
class TrainingOptions:
    """How a model is trained."""

    method: Annotated[
        list[str] | None,
        _model(help="Use this method (see `propall methods`); repeat to search over several."),
    ] = None
    effort: Annotated[
        Literal["quick", "normal", "best"],
        _model(help="How many kinds of models to compare, if no method or network is given."),
    ] = "normal"
    time_limit: Annotated[
        float | None,
        _model(help="Seconds after which no further model is tried, if several kinds are.", min=0),
    ] = None
    strict: Annotated[bool, Setting("Stop if a row cannot be used, instead of leaving it out")] = False
    trust: Annotated[
        str | None,
        _model(
            help="Share of correct labels, if known; auto to estimate it, full to believe every label "
            "(default: auto for annotators and models, full for one label column)."
        ),
    ] = None
    net: Annotated[
        tuple[str, ...],
        Setting("Network: linear, mlp, small_cnn, ...; several to search over; the default suits the table"),
    ] = ()
    epochs: Annotated[
        int | None, Setting("Number of epochs; the default depends on the number of rows", minimum=1)
    ] = None
    members: Annotated[int | None, Setting("Ensemble size (default: 5; 3 for images)", minimum=1)] = None
    folds: Annotated[int | None, Setting("Number of folds (default: 5; 3 for images)", minimum=2)] = None
    views: Annotated[bool, Setting("Train on augmented views of images")] = False
    search: Annotated[bool, Setting("Search over settings by cross-validation, without true labels")] = True
    seed: Annotated[int, Setting("Random seed")] = 0
    device: Annotated[str, Setting("auto (a GPU if available), cpu, cuda, cuda:1, ...")] = "auto"
    memory: Annotated[
        str | None,
        Setting("Memory for the fit, such as 500MB; larger tables are fitted in parts (default: 2GiB)"),
    ] = None

    @property
    def memory_limit(self) -> int:
        """Memory in bytes above which a table is fitted in parts."""
        from propall.tables.larger_than_memory import MEMORY, parse_size

        return MEMORY if self.memory is None else parse_size(self.memory)

    def fit_options(self, *, verbose: bool, report: Callable[[str], None] | None = None) -> FitOptions:
        """The options of `fit_table`."""
        from propall.tables.fitting import FitOptions
        from propall.tables.trust import parse_trust

        return FitOptions(
            methods=tuple(self.method or ()),
            nets=self.net,
            epochs=self.epochs,
            members=self.members,
            folds=self.folds,
            views=self.views,
            search=self.search,
            effort=self.effort,
            time_limit=self.time_limit,
            trust=parse_trust(self.trust),
            seed=self.seed,
            device=self.device,
            verbose=verbose,
            strict=self.strict,
            report=report,
        )


@dataclass(frozen=True)
class WorkerOptions:
    """Processes that share the work on a folder of tables."""

    workers: Annotated[
        str, Setting("Processes that share the work on a folder of tables: 2, or ray:2 on a Ray cluster")
    ] = "1"

    @property
    def are_used(self) -> bool:
        """Whether anything but this process works."""
        return self.workers != "1"

    def processes(self) -> Workers:
        """The processes that these options describe."""
        from propall.estimators.workers import Workers

        match = re.fullmatch(r"(ray:)?([1-9]\d{0,3})", self.workers)
        if match is None:
            raise ValueError(
                f"workers: got {self.workers!r}; expected a number of processes, or ray: and a number."
            )
        return Workers(int(match[2]), "ray" if match[1] else "local")


@dataclass(frozen=True)
class CrowdOptions:
    """How annotators' answers are combined."""

    errors: Annotated[
        Literal["shrunk", "dawid_skene", "one_coin"],
        Setting("Annotators' errors: shrunk (a matrix each, as far as known), dawid_skene or one_coin"),
    ] = "shrunk"
    class_priors: Annotated[
        Literal["estimated", "uniform"], Setting("uniform if all classes are known to be equally frequent")
    ] = "estimated"
    questions: Annotated[int, Setting("Number of rows suggested for another answer", minimum=1)] = 50


@dataclass(frozen=True)
class OutputOptions:
    """What to print, and whether to write a report page."""

    quiet: Quiet = False
    json: JsonOutput = False
    page: Annotated[bool, Setting("Write a report as an HTML page")] = True


@dataclass(frozen=True)
class ResolveOptions(OutputOptions):
    """Output options of `resolve`."""

    alternatives: Annotated[int, Setting("Number of alternative labels per row", minimum=1)] = 3


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(split_words(text or ""))
