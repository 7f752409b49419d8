"""Options that the commands for tables share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from propall.cli.option_groups import Setting

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from propall.tables.fitting import FitOptions
    from propall.tables.label_columns import LabelSource

LABELS, FEATURES, MODEL, OUTPUT = "Labels", "Features", "Model", "Output"

TableFile = Annotated[
    Path, typer.Argument(help="CSV, TSV, Parquet, Feather, JSON lines, Excel or a Label Studio export.")
]
ModelFolder = Annotated[
    Path, typer.Option("--model", "-m", help="Model folder written by `propall fit`.", rich_help_panel=MODEL)
]
OutFile = Annotated[
    Path,
    typer.Option(
        "--out", "-o", help="File to write: the input table with added columns.", rich_help_panel=OUTPUT
    ),
]
EMBEDDINGS_HELP = "Precomputed features: a .npy file with one row per table row."


@dataclass(frozen=True)
class LabelOptions:
    """Where the labels are in a table, and how they are written."""

    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            "-l",
            help="Column of labels: one (cat), several candidates (cat|dog), excluded ones (!cat), or empty.",
            rich_help_panel=LABELS,
        ),
    ] = None
    annotators: Annotated[
        str | None,
        typer.Option(help="One column per annotator, separated by commas.", rich_help_panel=LABELS),
    ] = None
    votes: Annotated[
        str | None,
        typer.Option(
            help="One column per class with 0/1 or a number of votes, separated by commas.",
            rich_help_panel=LABELS,
        ),
    ] = None
    item: Annotated[
        str | None,
        typer.Option(help="Column with the item's name, if each row is one answer.", rich_help_panel=LABELS),
    ] = None
    annotator: Annotated[
        str | None,
        typer.Option(
            help="Column with the annotator's name, if each row is one answer.", rich_help_panel=LABELS
        ),
    ] = None
    hierarchy: Annotated[
        Path | None,
        typer.Option(
            help="Class hierarchy: nested .json, .csv of parent and child, or .txt of paths a/b/c.",
            rich_help_panel=LABELS,
        ),
    ] = None
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
    def are_given(self) -> bool:
        """Whether the options say where the labels are."""
        return bool(self.label or self.annotators or self.votes)

    def source(self) -> LabelSource:
        """The label source that these options describe."""
        from propall.tables.label_columns import LabelSource, read_hierarchy

        return LabelSource(
            label=self.label,
            annotators=_names(self.annotators),
            votes=_names(self.votes),
            item=self.item,
            annotator=self.annotator,
            separator=self.separator,
            rule=int(self.rule) if self.rule.isdigit() else self.rule,  # type: ignore[arg-type]
            classes=self.classes or None,
            hierarchy=None if self.hierarchy is None else read_hierarchy(self.hierarchy),
            unlabelled=self.unlabeled,
            repair=self.repair,
        )


@dataclass(frozen=True)
class FeatureOptions:
    """What a model learns from."""

    ignore: Annotated[
        str | None,
        typer.Option(
            help="Columns to exclude from the features, separated by commas.", rich_help_panel=FEATURES
        ),
    ] = None
    images: Annotated[
        str | None,
        typer.Option(
            help="Column of image files; the model learns from these only.", rich_help_panel=FEATURES
        ),
    ] = None
    embeddings: Annotated[Path | None, typer.Option(help=EMBEDDINGS_HELP, rich_help_panel=FEATURES)] = None
    features: Annotated[
        tuple[str, ...], Setting("Columns to learn from, separated by commas; by default all but the labels")
    ] = ()
    image_size: Annotated[int, Setting("Height and width that images are resized to", minimum=8)] = 32

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `fit_table`."""
        from propall.tables.images import ImageColumn

        return {
            "columns": list(self.features) or None,
            "without": _names(self.ignore),
            "images": None if self.images is None else ImageColumn(self.images, self.image_size),
            "embedding": load_embeddings(self.embeddings),
        }


@dataclass(frozen=True)
class TrainingOptions:
    """How a model is trained."""

    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Method (see `propall methods`; default: propall); repeat to search over several.",
            rich_help_panel=MODEL,
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
    folds: Annotated[int | None, Setting("Cross-validation folds (default: 5; 3 for images)", minimum=2)] = (
        None
    )
    search: Annotated[bool, Setting("Search over settings by cross-validation, without true labels")] = True
    seed: Annotated[int, Setting("Random seed")] = 0
    device: Annotated[str, Setting("auto (a GPU if available), cpu, cuda, cuda:1, ...")] = "auto"

    def fit_options(self, *, verbose: bool) -> FitOptions:
        """The options of `fit_table`."""
        from propall.tables.fitting import FitOptions

        return FitOptions(
            methods=tuple(self.method or ("propall",)),
            nets=self.net,
            epochs=self.epochs,
            members=self.members,
            folds=self.folds,
            search=self.search,
            seed=self.seed,
            device=self.device,
            verbose=verbose,
        )


@dataclass(frozen=True)
class OutputOptions:
    """What is printed, and whether a page is written."""

    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the last line only.", rich_help_panel=OUTPUT)
    ] = False
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of text.", rich_help_panel=OUTPUT)
    ] = False
    page: Annotated[bool, Setting("Write a report as an HTML page")] = True


def _names(text: str | None) -> tuple[str, ...]:
    from propall.cli.terminal import split_words

    return tuple(split_words(text or ""))


def load_embeddings(path: Path | None) -> NDArray[Any] | None:
    """Precomputed features from a file, if there are any."""
    from propall.tables.fitting import load_embedding

    return None if path is None else load_embedding(path)
