"""Commands for a person's own file: look at it, learn from it, resolve it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from propall.cli.app import app
from propall.cli.terminal import (
    AsJson,
    join_words,
    note_aside,
    open_console,
    plain_table,
    print_json,
    split_words,
)
from propall.wording import duration, plural

TableFile = Annotated[
    Path, typer.Argument(help="CSV, TSV, Parquet, Feather, JSON lines, Excel, or a Label Studio export.")
]
LABELS = "Labels"
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label",
        "-l",
        help="Column whose cells hold a label, several (cat|dog), what is ruled out (!cat), or nothing.",
        rich_help_panel=LABELS,
    ),
]
Annotators = Annotated[
    str | None,
    typer.Option(help="One column per person, separated by commas.", rich_help_panel=LABELS),
]
Votes = Annotated[
    str | None,
    typer.Option(help="One column per class with 0/1 or votes, separated by commas.", rich_help_panel=LABELS),
]
Item = Annotated[
    str | None,
    typer.Option(
        help="Column that names the item, where the file has a line per answer.", rich_help_panel=LABELS
    ),
]
Annotator = Annotated[
    str | None,
    typer.Option(
        help="Column that names who answered, where the file has a line per answer.", rich_help_panel=LABELS
    ),
]
Separator = Annotated[str, typer.Option(help="What stands between two labels.", rich_help_panel=LABELS)]
Combine = Annotated[
    str,
    typer.Option(
        help="How answers become candidates: union, plurality, or a least number of votes.",
        rich_help_panel=LABELS,
    ),
]
Classes = Annotated[
    str | None,
    typer.Option(
        help='All class names, separated by commas ("a, b" is one); those seen otherwise.',
        rich_help_panel=LABELS,
    ),
]
Hierarchy = Annotated[
    Path | None,
    typer.Option(
        help="Which labels stand below which: nested .json, .csv of parent and child, .txt of paths a/b/c.",
        rich_help_panel=LABELS,
    ),
]


class Unlabelled(StrEnum):
    """What becomes of rows without a label."""

    keep = "keep"
    drop = "drop"


WithoutLabel = Annotated[
    Unlabelled,
    typer.Option(
        "--unlabelled", help="Rows without a label: any class is possible, or drop.", rich_help_panel=LABELS
    ),
]
Repair = Annotated[
    bool,
    typer.Option(
        "--repair/--no-repair", help="Put right clear slips of the pen in labels.", rich_help_panel=LABELS
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the last line only.")]


def _label_source(
    label: str | None,
    annotators: str | None,
    votes: str | None,
    item: str | None,
    annotator: str | None,
    separator: str,
    rule: str,
    classes: str | None,
    hierarchy: Path | None,
    unlabelled: Unlabelled,
    repair: bool,
) -> Any:
    from propall.tables.label_columns import LabelSource, read_hierarchy

    combine: Any = int(rule) if rule.isdigit() else rule
    return LabelSource(
        label=label,
        annotators=tuple(split_words(annotators or "")),
        votes=tuple(split_words(votes or "")),
        item=item,
        annotator=annotator,
        separator=separator,
        rule=combine,
        classes=tuple(split_words(classes)) if classes else None,
        hierarchy=None if hierarchy is None else read_hierarchy(hierarchy),
        unlabelled=unlabelled.value,
        repair=repair,
    )


@app.command()
def inspect(
    file: TableFile,
    label: LabelColumn = None,
    annotators: Annotators = None,
    votes: Votes = None,
    item: Item = None,
    annotator: Annotator = None,
    separator: Separator = "|",
    rule: Combine = "union",
    classes: Classes = None,
    hierarchy: Hierarchy = None,
    unlabelled: WithoutLabel = Unlabelled.keep,
    repair: Repair = True,
    json_output: AsJson = False,
) -> None:
    """What a file holds: columns, label sets, labels that occur together, agreement, and what is odd."""
    from propall.tables.label_columns import guess_source, likely_label, open_table
    from propall.tables.reading import read
    from propall.tables.summary import summarise

    source = _label_source(
        label, annotators, votes, item, annotator, separator, rule, classes, hierarchy, unlabelled, repair
    )
    if not source.is_given:
        source = guess_source(read(file))
    table = open_table(file, source)
    found = summarise(table)
    if json_output:
        print_json(found.as_dict())
        return
    console = open_console()
    _print_columns(console, found)
    if source is None:
        _print_remarks(console, found.remarks)
        hint = likely_label(table.sheet)
        _say(
            console,
            f"\nWhich column holds the labels?{hint} Say --label COLUMN, --annotators A,B,C or "
            "--votes A,B,C.",
        )
        return
    _print_labels(console, found)
    _print_remarks(console, found.remarks)
    words = " ".join([shlex.quote(str(file)), *_options_of(source, hierarchy)])
    good, then = "have labels", ""
    if found.has_features:
        good, then = "can be learnt from", f" Next: propall fit {words} --out model"
    _say(
        console,
        f"\n{found.used} of {plural(found.rows, 'row')} {good}: {len(found.classes)} classes, "
        f"{_candidates(found.mean_size)} a row.{then}",
    )


def _print_columns(console: Any, found: Any) -> None:
    _say(
        console,
        f"{found.source}: {plural(found.rows, 'row')}, {plural(len(found.columns), 'column')}\n",
        style="bold",
    )
    table = plain_table(
        "column", "used as", "missing", "distinct", "example", numbers=("missing", "distinct")
    )
    for column in found.columns:
        example = column.example if len(column.example) <= 48 else column.example[:47] + "…"
        table.add_row(
            _plain(column.name), column.role, str(column.missing), str(column.distinct), _plain(example)
        )
    console.print(table, highlight=False)


def _print_labels(console: Any, found: Any) -> None:
    _say(console, f"\nLabels: {found.where}", style="bold")
    written = ", ".join(f"{kind} {rows}" for kind, rows in found.kinds.items())
    sizes = ", ".join(f"{size} in {plural(rows, 'row')}" for size, rows in found.sizes.items())
    _say(console, f"as written  {written}")
    _say(console, f"candidates  {sizes}")
    _say(console, f"no information in {plural(found.uninformative, 'row')}: every class is possible\n")
    columns = ("alone", "among others", "ruled out")
    table = plain_table("class", *columns, numbers=columns)
    for row in found.classes[:MOST_SHOWN]:
        table.add_row(_plain(row.name), str(row.alone), str(row.among), str(row.ruled_out))
    console.print(table, highlight=False)
    if len(found.classes) > MOST_SHOWN:
        _say(console, f"and {len(found.classes) - MOST_SHOWN} more classes; all with --json")
    if found.never_alone:
        names = ", ".join(found.never_alone[:8]) + (", ..." if len(found.never_alone) > 8 else "")
        _say(console, f"never alone: {names}")
    if found.pairs:
        console.print()
        table = plain_table(
            "often together", "rows", "of the rarer one's", numbers=("rows", "of the rarer one's")
        )
        for pair in found.pairs:
            table.add_row(_plain(f"{pair.one}, {pair.other}"), str(pair.rows), f"{100 * pair.share:.0f} %")
        console.print(table, highlight=False)
    if found.agreement is not None:
        own = found.agreement
        _say(
            console,
            f"\nAgreement: {100 * own.pairwise:.1f} % of pairs of answers are the same, Krippendorff's alpha "
            f"{own.alpha:.2f} (1 is full agreement, 0 is chance)",
        )
        if own.annotators:
            table = plain_table(
                "annotator", "answers", "with the others", numbers=("answers", "with the others")
            )
            for name, answers, share in own.annotators:
                table.add_row(_plain(name), str(answers), f"{100 * share:.1f} %")
            console.print(table, highlight=False)


#: Classes that are listed on a terminal.
MOST_SHOWN = 30
#: Rows of a fold, fewer than which tell nothing.
FEW_A_FOLD = 10


def _print_remarks(console: Any, remarks: Sequence[Any]) -> None:
    from propall.tables.reading import ACTIONS

    if not remarks:
        return
    console.print()
    table = plain_table("what", "done", "which")
    for remark in sorted(remarks, key=lambda remark: ACTIONS.index(remark.action)):
        table.add_row(remark.kind, remark.action, _plain(str(remark)))
    console.print(table, highlight=False)


def _plain(text: str) -> Any:
    from rich.text import Text

    return Text(text)


def _say(console: Any, text: str, **how: Any) -> None:
    """Print words as they are: brackets and numbers of a file are no markup, and lines wrap by themselves."""
    console.print(text, highlight=False, markup=False, soft_wrap=True, **how)


def _candidates(mean: float) -> str:
    size = f"{mean:.2f}".rstrip("0").rstrip(".")
    return f"{size} candidate{'' if size == '1' else 's'}"


def _options_of(source: Any, hierarchy: Path | None) -> list[str]:
    """The words that say where the labels stand, as they were typed."""
    usual = type(source)(label="label")
    given = {
        "label": source.label,
        "annotators": join_words(source.annotators),
        "votes": join_words(source.votes),
        "item": source.item,
        "annotator": source.annotator,
        "separator": source.separator if source.separator != usual.separator else None,
        "rule": str(source.rule) if source.rule != usual.rule else None,
        "classes": join_words(source.classes or ()),
        "hierarchy": None if hierarchy is None else str(hierarchy),
        "unlabelled": source.unlabelled if source.unlabelled != usual.unlabelled else None,
    }
    words = [f"--{name} {shlex.quote(value)}" for name, value in given.items() if value]
    return words if source.repair else [*words, "--no-repair"]


FEATURES, TRAINING = "Features", "Training"
FeatureNames = Annotated[
    str | None,
    typer.Option(
        "--features", help="Learn from these columns only, separated by commas.", rich_help_panel=FEATURES
    ),
]
Ignored = Annotated[
    str | None,
    typer.Option(
        "--ignore", help="Columns not to learn from, separated by commas.", rich_help_panel=FEATURES
    ),
]
Images = Annotated[
    str | None,
    typer.Option(help="Column of image files, which are learnt from instead.", rich_help_panel=FEATURES),
]
ImageSize = Annotated[
    int, typer.Option(min=8, help="Height and width images are brought to.", rich_help_panel=FEATURES)
]
Embeddings = Annotated[
    Path | None,
    typer.Option(help="Precomputed features: .npy, a row for each of the file.", rich_help_panel=FEATURES),
]
FitMethods = Annotated[
    list[str] | None,
    typer.Option(
        "--method", help="A name from `propall methods`; repeat for a choice.", rich_help_panel=TRAINING
    ),
]
FitNets = Annotated[
    list[str] | None,
    typer.Option("--net", help="linear, mlp, small_cnn, ...; repeat for a choice.", rich_help_panel=TRAINING),
]
FitEpochs = Annotated[
    int | None,
    typer.Option(min=1, help="Passes over the rows; by default what suits them.", rich_help_panel=TRAINING),
]
Members = Annotated[
    int | None,
    typer.Option(min=1, help="Networks of the ensemble; 5, of images 3.", rich_help_panel=TRAINING),
]
Folds = Annotated[
    int | None, typer.Option(min=2, help="Parts held out in turn; 5, of images 3.", rich_help_panel=TRAINING)
]
Search = Annotated[
    bool,
    typer.Option(
        "--search/--no-search", help="Choose among settings without true labels.", rich_help_panel=TRAINING
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Makes results repeatable.", rich_help_panel=TRAINING)]
FitDevice = Annotated[
    str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, ...", rich_help_panel=TRAINING)
]
ModelFolder = Annotated[Path, typer.Option("--model", "-m", help="Folder that `propall fit` wrote.")]
WithPage = Annotated[bool, typer.Option("--page/--no-page", help="Write the page of the report.")]


def _fit_options(
    methods: list[str] | None,
    nets: list[str] | None,
    epochs: int | None,
    members: int | None,
    folds: int | None,
    search: bool,
    seed: int,
    device: str,
    quiet: bool,
) -> Any:
    from propall.tables.fitting import FitOptions

    return FitOptions(
        methods=tuple(methods or ("propall",)),
        nets=tuple(nets or ()),
        epochs=epochs,
        members=members,
        folds=folds,
        search=search,
        seed=seed,
        device=device,
        verbose=not quiet,
    )


def _check_out(out: Path, file: Path) -> None:
    """What would be noticed only after the work is noticed before it."""
    from propall.tables.writing import format_of

    format_of(out)
    if out.exists() and out.resolve() == file.resolve():
        raise ValueError(f"out: {out} is the file that is read; name another, so that nothing is lost.")


def _fit(
    file: Path,
    source: Any,
    features: tuple[str | None, str | None, str | None, int, Path | None],
    options: Any,
    first_model: Any = None,
) -> Any:
    from propall.tables.fitting import fit_table, load_embedding
    from propall.tables.images import ImageColumn
    from propall.tables.label_columns import guess_source, open_table
    from propall.tables.reading import read

    if not source.is_given:
        source = guess_source(read(file)) or source
    names, ignored, images, image_size, embeddings = features
    return fit_table(
        open_table(file, source),
        options,
        columns=None if names is None else split_words(names),
        without=split_words(ignored or ""),
        embedding=None if embeddings is None else load_embedding(embeddings),
        images=None if images is None else ImageColumn(images, image_size),
        first_model=first_model,
    )


@app.command()
def fit(
    file: TableFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder the model is written to.")],
    label: LabelColumn = None,
    annotators: Annotators = None,
    votes: Votes = None,
    item: Item = None,
    annotator: Annotator = None,
    separator: Separator = "|",
    rule: Combine = "union",
    classes: Classes = None,
    hierarchy: Hierarchy = None,
    unlabelled: WithoutLabel = Unlabelled.keep,
    repair: Repair = True,
    features: FeatureNames = None,
    ignore: Ignored = None,
    images: Images = None,
    image_size: ImageSize = 32,
    embeddings: Embeddings = None,
    method: FitMethods = None,
    net: FitNets = None,
    epochs: FitEpochs = None,
    members: Members = None,
    folds: Folds = None,
    search: Search = True,
    seed: Seed = 0,
    device: FitDevice = "auto",
    page: WithPage = True,
    quiet: Quiet = False,
    json_output: AsJson = False,
) -> None:
    """Learn a model from a file with ambiguous labels; its settings are chosen without true labels.

    Interrupted while it chooses, it leaves a model in the default setting.
    """
    from propall.tables.model import CONTENTS, PAGE, place_for_model

    source = _label_source(
        label, annotators, votes, item, annotator, separator, rule, classes, hierarchy, unlabelled, repair
    )
    options = _fit_options(method, net, epochs, members, folds, search, seed, device, quiet or json_output)
    replaces = (place_for_model(out) / CONTENTS).exists()
    kept = []

    def keep(model: Any) -> None:
        kept.append(model.save(out))

    try:
        fitted = _fit(file, source, (features, ignore, images, image_size, embeddings), options, keep)
    except KeyboardInterrupt:
        if kept:
            note_aside(f"{out} holds a model in the default setting, not calibrated.")
        raise
    fitted.model.save(out)
    path = None
    if page:
        from propall.report.model_pages import write_fit_page

        path = write_fit_page(out / PAGE, fitted)
    account = fitted.model.account
    if json_output:
        print_json({**account, "model": str(out), "page": None if path is None else str(path)})
        return
    from propall.tables.fitting import guessing_rate

    console = open_console()
    if not quiet:
        _print_account(console, fitted)
    where = f"Model: {out}{' (replaces the one before)' * replaces}"
    where += "" if path is None else f". Report: {path}"
    covering = f"{100 * account['held_out']['covering_rate']:.1f} %"
    guessing = f"{100 * guessing_rate(account):.0f} %"
    whole = f" of {account['rows']}" if account["used"] < account["rows"] else ""
    few = account["used"] < FEW_A_FOLD * account["folds"]
    _say(
        console,
        f"Fitted on {account['used']}{whole} row{'s' * (account['rows'] != 1)} in "
        f"{duration(fitted.seconds)}; {covering} of the predictions for rows held out are among the row's "
        f"candidates (guessing: {guessing}); this is not accuracy, which needs true labels: propall "
        "evaluate. "
        + f"Fewer than {FEW_A_FOLD} rows a fold are too few to judge or choose by. " * few
        + where,
    )


def _print_account(console: Any, fitted: Any) -> None:
    account = fitted.model.account
    _say(
        console,
        f"{account['source']}: {account['used']} of {plural(account['rows'], 'row')}, "
        f"{len(account['classes'])} classes, {_candidates(account['mean_candidates'])} a row\n",
        style="bold",
    )
    table = plain_table("column", "kind", "becomes")
    for row in account["columns"]:
        table.add_row(*map(_plain, row))
    console.print(table, highlight=False)
    _print_remarks(console, [remark for remark in fitted.remarks if remark.action != "noted"])
    chosen = account["chosen"]
    setting = ", ".join(
        f"{name.replace('_', ' ')} {_short(value)}" for name, value in chosen.items() if name != "net_options"
    )
    compared = account["settings_compared"]
    how = f"Chosen among {compared} settings" if compared > 1 else "The default setting, judged"
    _say(
        console,
        f"\n{how} on {account['folds']} folds, without true labels: {setting}; "
        f"{plural(account['members'], 'network')}.",
    )
    if account["doubted"]:
        _say(
            console,
            f"{plural(account['doubted'], 'row')} with candidates that are probably all wrong; see the "
            "report, or `propall resolve`.",
        )


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


@app.command()
def resolve(
    file: TableFile,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write: the same table with more columns.")
    ],
    model: Annotated[
        Path | None, typer.Option("--model", "-m", help="Folder that `propall fit` wrote.")
    ] = None,
    fit: Annotated[
        bool, typer.Option("--fit", help="Fit on this very file instead, and keep no model.")
    ] = False,
    label: LabelColumn = None,
    annotators: Annotators = None,
    votes: Votes = None,
    item: Item = None,
    annotator: Annotator = None,
    separator: Separator = "|",
    rule: Combine = "union",
    classes: Classes = None,
    hierarchy: Hierarchy = None,
    unlabelled: WithoutLabel = Unlabelled.keep,
    repair: Repair = True,
    features: FeatureNames = None,
    ignore: Ignored = None,
    images: Images = None,
    image_size: ImageSize = 32,
    embeddings: Embeddings = None,
    method: FitMethods = None,
    net: FitNets = None,
    epochs: FitEpochs = None,
    members: Members = None,
    folds: Folds = None,
    search: Search = True,
    seed: Seed = 0,
    device: FitDevice = "auto",
    alternatives: Annotated[int, typer.Option(min=1, help="How many other labels to name.")] = 3,
    page: WithPage = True,
    quiet: Quiet = False,
    json_output: AsJson = False,
) -> None:
    """The likeliest label among each row's candidates, how sure that is, and what else it may be.

    A row that a model was fitted on is answered by models that had not seen it. Columns that are added:
    propall_label, the likeliest candidate; propall_probability, of it among the candidates; propall_margin,
    by how much that exceeds the second; propall_doubt, the probability that the truth is no candidate;
    propall_alternatives, other classes with the model's probabilities; propall_note; propall_by, by whom.
    """
    from propall.tables import resolution
    from propall.tables.fitting import load_embedding
    from propall.tables.model import TableModel
    from propall.tables.writing import write_table

    if fit == (model is not None):
        raise ValueError("model: say either --model FOLDER or --fit.")
    _check_out(out, file)
    source = _label_source(
        label, annotators, votes, item, annotator, separator, rule, classes, hierarchy, unlabelled, repair
    )
    if model is None:
        options = _fit_options(
            method, net, epochs, members, folds, search, seed, device, quiet or json_output
        )
        fitted = _fit(file, source, (features, ignore, images, image_size, embeddings), options)
        found = resolution.resolved_by_fit(fitted)
    else:
        embedding = None if embeddings is None else load_embedding(embeddings)
        given = source if source.is_given else None
        found = resolution.resolve_file(TableModel.load(model), file, given, embedding=embedding)
    write_table(found.frame(alternatives), out, separator=found.sheet.separator)
    path = None
    if page:
        from propall.report.model_pages import write_resolve_page

        path = write_resolve_page(out.with_suffix(".html"), found)
    if json_output:
        print_json({**found.as_dict(), "out": str(out), "page": None if path is None else str(path)})
        return
    console = open_console()
    if not quiet:
        numbers = ("certain before", "resolved", "mean probability")
        table = plain_table("label", *numbers, numbers=numbers)
        for row in found.counts()[:MOST_SHOWN]:
            table.add_row(_plain(row.name), str(row.before), str(row.after), f"{row.probability:.2f}")
        console.print(table, highlight=False)
        if found.annotators:
            right = ", ".join(f"{name} {100 * share:.0f} %" for name, share in found.annotators[:MOST_SHOWN])
            _say(console, f"\nEstimated to be right: {right}")
        _print_remarks(console, [remark for remark in found.remarks if remark.action == "row dropped"])
        console.print()
    if found.unfinished:
        note_aside(
            "The fit of this model was interrupted: of rows it has seen it is surer than it should be."
        )
    where = f"Table: {out}" + ("" if path is None else f". Report: {path}")
    _say(
        console,
        f"{plural(found.ambiguous, 'ambiguous row')} resolved, {found.sure} of them with a probability of "
        f"{resolution.SURE} or more; {plural(found.doubted, 'row')} with candidates that are probably all "
        f"wrong. {where}",
    )


@app.command()
def predict(
    file: TableFile,
    model: ModelFolder,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write: the same table with more columns.")
    ],
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also the probability of every class.")
    ] = False,
    embeddings: Embeddings = None,
    quiet: Quiet = False,
    json_output: AsJson = False,
) -> None:
    """The likeliest class of every row of a file, labelled or not."""
    from propall.tables import resolution
    from propall.tables.fitting import load_embedding
    from propall.tables.model import TableModel
    from propall.tables.writing import write_table

    _check_out(out, file)
    embedding = None if embeddings is None else load_embedding(embeddings)
    found = resolution.predict_file(TableModel.load(model), file, embedding=embedding, every=probabilities)
    write_table(found.frame, out, separator=found.separator)
    if json_output:
        print_json({**found.as_dict(), "out": str(out)})
        return
    console = open_console()
    if not quiet:
        table = plain_table("label", "rows", "mean probability", numbers=("rows", "mean probability"))
        for name, rows, chance in found.counts()[:MOST_SHOWN]:
            table.add_row(_plain(name), str(rows), f"{chance:.2f}")
        console.print(table, highlight=False)
        _print_remarks(console, found.remarks)
        console.print()
    _say(
        console,
        f"{plural(len(found.labels), 'row')} predicted, mean probability {found.mean_probability:.2f}. "
        f"Table: {out}",
    )


@app.command()
def evaluate(
    file: TableFile,
    model: ModelFolder,
    truth: Annotated[str, typer.Option(help="Column of true labels; rows without one are left aside.")],
    embeddings: Embeddings = None,
    quiet: Quiet = False,
    json_output: AsJson = False,
) -> None:
    """Accuracy, recall, confusion and calibration of a model where true labels are known."""
    from propall.tables.evaluation import evaluate as judge
    from propall.tables.fitting import load_embedding
    from propall.tables.model import TableModel
    from propall.tables.reading import read

    embedding = None if embeddings is None else load_embedding(embeddings)
    found = judge(TableModel.load(model), read(file), truth, embedding=embedding)
    if json_output:
        print_json(found.as_dict())
        return
    console = open_console()
    if not quiet:
        _print_confusion(console, found)
        _print_remarks(console, found.remarks)
        console.print()
    _say(
        console,
        f"Accuracy {100 * found.accuracy:.2f} % on {plural(found.rows, 'row')}; "
        f"expected calibration error {found.reliability.error:.3f}.",
    )


def _print_confusion(console: Any, found: Any) -> None:
    shown = found.classes if len(found.classes) <= 12 else ()
    columns = ("rows", "recall %", *shown)
    table = plain_table("true class", *columns, numbers=columns)
    for i, (name, rows, share) in enumerate(found.recalls[:MOST_SHOWN]):
        cells = [str(found.confusion[i, j]) for j in range(len(shown))]
        table.add_row(_plain(name), str(rows), "" if not rows else f"{100 * share:.1f}", *cells)
    console.print(table, highlight=False)
    if shown:
        _say(console, "columns on the right: how many rows are predicted as each class\n", style="dim")
    if found.seen:
        _say(
            console,
            f"{plural(found.seen, 'row')} the model was fitted on: answered by models that had not seen "
            "them.",
        )
    if found.resolved is not None:
        _say(
            console,
            f"Of {plural(found.with_candidates, 'row')} with candidates {100 * found.resolved:.2f} % "
            f"resolve to the truth; it is among the candidates in {100 * (found.covered or 0):.2f} %.",
        )


@app.command()
def export(
    model: Annotated[Path, typer.Argument(help="Folder that `propall fit` wrote.")],
    onnx: Annotated[Path, typer.Option("--onnx", help="File to write.")],
) -> None:
    """Write a model's network as ONNX, its features and classes as JSON beside it."""
    from propall.tables.export import export_onnx
    from propall.tables.model import TableModel

    described = export_onnx(TableModel.load(model), onnx)
    typer.echo(f"{onnx}: features in, probabilities out. What the features are: {described}")
