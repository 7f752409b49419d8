"""Commands for a table with ambiguous labels: inspect, fit, resolve, consensus, predict, evaluate, export."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from propall.atomic_files import check_writable
from propall.cli.app import OWN_TABLE, app
from propall.cli.imports import without_garbage_collection
from propall.cli.option_groups import as_dict, as_words, grouped_command
from propall.cli.table_options import (
    LABELS,
    OUTPUT,
    ColumnOptions,
    CrowdOptions,
    Embeddings,
    Encoding,
    FeatureOptions,
    JsonOutput,
    LabelOptions,
    ModelFolder,
    OutFile,
    OutputOptions,
    Probabilities,
    Quiet,
    ResolveOptions,
    TableFile,
    TrainingOptions,
    WorkerOptions,
)
from propall.cli.terminal import print_json, print_line, print_note, print_table
from propall.wording import duration, plural

if TYPE_CHECKING:
    from propall.tables.crowd import CrowdReport
    from propall.tables.evaluation import Evaluation
    from propall.tables.fitting import Fitted
    from propall.tables.label_columns import LabeledTable
    from propall.tables.label_source import LabelSource
    from propall.tables.larger_than_memory import FittedInParts
    from propall.tables.reading import DataNote
    from propall.tables.resolution import ResolvedTable
    from propall.tables.streaming import ResolutionSummary
    from propall.tables.summary import Summary

#: Classes, and columns and notes, listed on a terminal.
MOST_CLASSES, MOST_LINES = 30, 100
#: With fewer rows per fold than this, cross-validation says little.
FEW_PER_FOLD = 10

FIT_FIRST = "Fit a model first: propall fit FILE --label COLUMN --out model; then use --model model."


@grouped_command(app, panel=OWN_TABLE)
def inspect(
    file: TableFile, labels: LabelOptions, columns: ColumnOptions, json_output: JsonOutput = False
) -> None:
    """Describe a table: columns, label sets, annotator agreement, and problems.

    Example: propall inspect birds.csv --label species
    """
    from propall.tables.label_source import suggest_label_column
    from propall.tables.summary import summarize

    labels = _with_usual_label(labels, file)
    source = labels.source() if labels.name_columns else None
    with _open_any_size(file, source, labels.encoding) as table:
        summary = summarize(table, without=columns.ignored)
        suggestion = "" if labels.name_columns else suggest_label_column(table.raw)
    if json_output:
        print_json(summary.as_dict())
        return
    _print_columns(summary)
    if not labels.name_columns:
        _print_notes(summary.notes)
        question = f"\nWhich column holds the labels?{suggestion}"
        print_line(f"{question} Use --label COLUMN, --annotators A,B,C or --votes A,B,C.")
        return
    _print_labels(summary)
    _print_notes(summary.notes)
    have, next_step = "have labels", ""
    if summary.has_features:
        have = "can be used for training"
        words = [shlex.quote(str(file)), *as_words(labels), *as_words(columns)]
        next_step = f" Next: propall fit {' '.join(words)} --out model"
    print_line(
        f"\n{summary.used} of {plural(summary.rows, 'row')} {have}: {len(summary.classes)} classes, "
        f"{_candidates(summary.mean_size)} per row.{next_step}"
    )


@grouped_command(app, panel=OWN_TABLE)
def fit(
    file: TableFile,
    labels: LabelOptions,
    features: FeatureOptions,
    training: TrainingOptions,
    parallel: WorkerOptions,
    out: Annotated[Path, typer.Option("--out", "-o", help="Model folder to write.", rich_help_panel=OUTPUT)],
    output: OutputOptions,
) -> None:
    """Fit a model to a table with ambiguous labels.

    The model's settings are chosen by cross-validation without true labels. An older model in the folder
    stays until the new one is complete. If there is none and a search is interrupted, the folder holds a
    model with default settings. The file options.json in the folder repeats the fit.

    Example: propall fit birds.csv --label species --out model
    """
    with without_garbage_collection():
        from propall.report.model_pages import fit_page
        from propall.tables.fitting import fit_table
        from propall.tables.label_columns import open_table
        from propall.tables.larger_than_memory import needs_parts
        from propall.tables.model import CONTENTS, OPTIONS, PAGE, check_model_folder

    labels = _with_usual_label(labels, file)
    replaces = (check_model_folder(out) / CONTENTS).exists()
    check_writable(out)
    saved_early = []
    verbose = not (output.quiet or output.json)
    if needs_parts(file, training.memory_limit):
        _fit_in_parts(file, labels, features, training, parallel, out, output)
        return
    if parallel.are_used:
        raise ValueError(
            f"workers: {file} is fitted in memory, by one process; several share the work on a folder of "
            "tables. Leave them out, or set --options memory=... below the size of the table."
        )
    table = open_table(file, labels.source(), encoding=labels.encoding)
    if table.labeled is not None and table.labeled.from_model and verbose:
        kinds = ("candidate sets of a model", "no single candidates")
        _print_notes([note for note in table.labeled.notes if note.kind in kinds])
    try:
        fitted = fit_table(
            table,
            training.fit_options(verbose=verbose, report=print_note if verbose else None),
            **features.arguments(),
            first_model=None if replaces else lambda model: saved_early.append(model.save(out)),
        )
    except KeyboardInterrupt:
        if saved_early:
            print_note(f"{out} holds a model with default settings; it is not calibrated.")
        raise
    account = fitted.model.account
    account["options"] = as_dict(labels, features, training)
    attachments = {OPTIONS: json.dumps(account["options"], indent=1, ensure_ascii=False) + "\n"}
    page = out / PAGE if output.page else None
    if page is not None:
        attachments[PAGE] = fit_page(fitted).to_html()
    fitted.model.save(out, attachments=attachments)
    if output.json:
        print_json({**account, "model": out, "page": page})
        return
    if not output.quiet:
        _print_fit(fitted)
    where = f"Model: {out}{' (replaces the previous one)' * replaces}{_report_at(page)}"
    print_line(f"{_fit_result(fitted)} {where}")


def _fit_in_parts(
    file: Path,
    labels: LabelOptions,
    features: FeatureOptions,
    training: TrainingOptions,
    parallel: WorkerOptions,
    out: Path,
    output: OutputOptions,
) -> None:
    """Fit a model to a table that is too large for memory."""
    from propall.report.model_pages import fit_in_parts_page
    from propall.tables.larger_than_memory import fit_in_parts
    from propall.tables.model import CONTENTS, OPTIONS, PAGE
    from propall.tables.reading import read_table
    from propall.tables.streaming import read_parts

    if features.images is not None or features.embeddings is not None:
        raise ValueError(
            f"file: {file} is fitted in parts, which works with the columns of the table only. Leave out "
            "images and embeddings, or allow more memory with --options memory=..."
        )
    verbose = not (output.quiet or output.json)
    if verbose:
        print_note(f"{file} is fitted in parts; --options memory=... sets how much memory a fit may take.")
    replaces = (out / CONTENTS).exists()
    fitted = fit_in_parts(
        partial(read_parts, file, read=partial(read_table, encoding=labels.encoding)),
        labels.source(),
        out,
        training.fit_options(verbose=verbose, report=print_note if verbose else None),
        columns=list(features.features) or None,
        without=features.ignored,
        memory=training.memory_limit,
        workers=parallel.processes(),
    )
    account = fitted.model.account
    account["options"] = as_dict(labels, features, training)
    attachments = {OPTIONS: json.dumps(account["options"], indent=1, ensure_ascii=False) + "\n"}
    page = out / PAGE if output.page else None
    if page is not None:
        attachments[PAGE] = fit_in_parts_page(fitted).to_html()
    fitted.model.save(out, attachments=attachments)
    if output.json:
        print_json({**account, "model": out, "page": page})
        return
    if not output.quiet:
        _print_fit(fitted)
    where = f"Model: {out}{' (replaces the previous one)' * replaces}{_report_at(page)}"
    print_line(f"{_fit_result(fitted)} {where}")


def _report_at(page: Path | None) -> str:
    return "" if page is None else f". Report: {page}"


def _fit_result(fitted: Fitted | FittedInParts) -> str:
    from propall.tables.fitting import guessing_rate

    account = fitted.model.account
    total = f" of {account['rows']}" if account["used"] < account["rows"] else ""
    few = f" Fewer than {FEW_PER_FOLD} rows per fold: too few to select or evaluate a model reliably."
    warning = few if account["used"] < FEW_PER_FOLD * account["folds"] else ""
    return (
        f"Fitted on {account['used']}{total} row{'s' * (account['rows'] != 1)} in "
        f"{duration(fitted.seconds)}; {100 * account['held_out']['covering_rate']:.1f} % of held-out "
        "predictions are among the row's candidates (random guessing: "
        f"{100 * guessing_rate(account):.0f} %). This is not accuracy, "
        f"which needs true labels: propall evaluate.{warning}"
    )


@grouped_command(app, panel=OWN_TABLE, hints=dict.fromkeys(("--fit", "--model"), FIT_FIRST))
def resolve(
    file: TableFile,
    *,
    model: ModelFolder,
    labels: LabelOptions,
    embeddings: Embeddings = None,
    out: OutFile,
    parallel: WorkerOptions,
    output: ResolveOptions,
) -> None:
    """Choose the most probable candidate label of each row.

    Rows that the model was fitted on are resolved by cross-validation models that did not see them. Labels
    are read from the same columns as in the fit unless given here.

    Added columns: propall_label, the most probable candidate; propall_probability, its probability among the
    candidates (of annotators and models, among all classes); propall_margin, the lead over the second;
    propall_doubt, the probability that no candidate is correct; propall_alternatives, other classes and their
    probabilities; propall_note; propall_by, which models answered.

    With annotators, three more files describe them (OUT_annotators.csv), their confusions
    (OUT_confusions.csv), and rows to ask again (OUT_questions.csv).

    Several workers share the files of a folder; --out is then a new folder, with files of the same names.

    Example: propall resolve birds.csv --model model --out resolved.csv
    """
    with without_garbage_collection():
        from propall.report.model_pages import resolve_page
        from propall.tables.crowd import crowd_files, report_crowd
        from propall.tables.fitting import load_embedding
        from propall.tables.folders import resolve_folder
        from propall.tables.model import TableModel
        from propall.tables.reading import read_table
        from propall.tables.resolution import SURE, resolve_file
        from propall.tables.streaming import can_resolve_in_parts, is_large, read_parts, resolve_to_file
        from propall.tables.writing import write_table

    source = labels.source() if labels.name_columns else None
    if parallel.are_used:
        _check_workers(embeddings, labels.encoding)
    else:
        _check_out(out, file, crowd_files(out))
    beside = _page_beside(out) if output.page and not parallel.are_used else None
    loaded, embedding = TableModel.load(model), load_embedding(embeddings)
    read = partial(read_table, encoding=labels.encoding)
    page: Path | None = None
    files: list[Path] = []
    resolved: ResolvedTable | ResolutionSummary
    if parallel.are_used:
        workers = parallel.processes()
        resolved = resolve_folder(model, file, out, workers, source, alternatives=output.alternatives)
    elif embedding is None and is_large(file) and can_resolve_in_parts(loaded, source):
        parts = partial(read_parts, file, read=read)
        resolved = resolve_to_file(loaded, parts, out, source, alternatives=output.alternatives)
        if output.page:
            print_note(f"{file} is resolved in parts, so there is no report page.")
    else:
        resolved = resolve_file(loaded, read(file), source, embedding=embedding)
        crowd_report = report_crowd(resolved) if beside is not None else None
        if crowd_report is not None:
            crowd_report.check_files(out)
        write_table(resolved.frame(output.alternatives), out, separator=resolved.raw.separator)
        page = None if beside is None else resolve_page(resolved).write(beside)
        files = [] if crowd_report is None else crowd_report.write(out)
    if output.json:
        print_json({**resolved.as_dict(), "files": files, "out": out, "page": page})
        return
    if not output.quiet:
        _print_resolved(resolved)
        if files:
            print_line(f"Also written: {', '.join(map(str, files))}")
    if resolved.unfinished:
        print_note("The fit of this model was interrupted: it is overconfident on rows it was fitted on.")
    doubted = f"; in {plural(resolved.doubted, 'row')} all candidates are probably wrong"
    print_line(
        f"{plural(resolved.ambiguous, 'ambiguous row')} resolved, {resolved.sure} of them with a probability "
        f"of at least {SURE}{doubted if resolved.doubted else ''}. Table: {out}{_report_at(page)}"
    )


@grouped_command(app, panel=OWN_TABLE)
def consensus(
    file: TableFile, labels: LabelOptions, crowd: CrowdOptions, out: OutFile, output: OutputOptions
) -> None:
    """Estimate the true label of each row from annotators' answers alone, and who is reliable.

    Columns named item, annotator and answer are recognized. To use the other columns of the table too, fit a
    model: propall fit, then propall resolve.

    Added columns are those of `propall resolve`. Three more files describe the annotators
    (OUT_annotators.csv), their confusions (OUT_confusions.csv), and rows to ask again (OUT_questions.csv).

    Example: propall consensus answers.csv --annotators ann,bob,eve --out labels.csv
    """
    with without_garbage_collection():
        from propall.report.annotator_pages import consensus_page
        from propall.tables.crowd import combine_table, crowd_files, report_crowd, with_usual_answers
        from propall.tables.label_columns import open_table
        from propall.tables.reading import read_table
        from propall.tables.resolution import SURE
        from propall.tables.writing import write_table

    page = _page_beside(out) if output.page else None
    _check_out(out, file, crowd_files(out))
    if not labels.name_columns:
        raw = read_table(file, encoding=labels.encoding)
        guess = with_usual_answers(raw, labels.item, labels.annotator)
        labels = replace(labels, label=guess.label, item=guess.item, annotator=guess.annotator)
    table = open_table(file, labels.source(), encoding=labels.encoding)
    resolved = combine_table(table, errors=crowd.errors, class_priors=crowd.class_priors)
    report = report_crowd(resolved, most=crowd.questions)
    assert report is not None
    report.check_files(out)
    write_table(resolved.frame(), out, separator=resolved.raw.separator)
    files = report.write(out)
    if page is not None:
        consensus_page(resolved).write(page)
    best = resolved.probability
    if output.json:
        alpha = report.agreement.alpha
        details = {
            "expected_correct": float(best.mean()),
            "alpha": None if alpha != alpha else alpha,
            "files": files,
            "out": out,
            "page": page,
        }
        print_json({**resolved.as_dict(), **details})
        return
    if not output.quiet:
        _print_crowd(report)
        _print_notes(resolved.notes)
        print_line(f"\nAlso written: {', '.join(map(str, files))}")
    print_line(
        f"{plural(len(best), 'row')} labeled, {100 * float(best.mean()):.1f} % expected to be correct; "
        f"{int((best >= SURE).sum())} with a probability of at least {SURE}. Table: {out}{_report_at(page)}"
    )


@grouped_command(app, panel=OWN_TABLE)
def predict(
    file: TableFile,
    *,
    model: ModelFolder,
    embeddings: Embeddings = None,
    out: OutFile,
    parallel: WorkerOptions,
    encoding: Encoding = None,
    probabilities: Probabilities = False,
    quiet: Quiet = False,
    json_output: JsonOutput = False,
) -> None:
    """Predict the class of each row, labeled or not.

    Several workers share the files of a folder; --out is then a new folder, with files of the same names.

    Example: propall predict new.csv --model model --out predicted.csv
    """
    with without_garbage_collection():
        from propall.tables.fitting import load_embedding
        from propall.tables.folders import predict_folder
        from propall.tables.model import TableModel
        from propall.tables.reading import read_table
        from propall.tables.streaming import predict_to_file, read_parts

    if parallel.are_used:
        _check_workers(embeddings, encoding)
        predicted = predict_folder(model, file, out, parallel.processes(), all_probabilities=probabilities)
    else:
        _check_out(out, file)
        embedding, read = load_embedding(embeddings), partial(read_table, encoding=encoding)
        parts = read_parts(file, read=read) if embedding is None else iter([read(file)])
        predicted = predict_to_file(
            TableModel.load(model), parts, out, embedding=embedding, all_probabilities=probabilities
        )
    if json_output:
        print_json({**predicted.as_dict(), "out": out})
        return
    if not quiet:
        rows = [(name, n, f"{mean:.2f}") for name, n, mean in predicted.counts()[:MOST_CLASSES]]
        print_table(("label", "rows", "mean probability"), rows, numbers=slice(1, None))
        _print_notes(predicted.notes)
        print_line()
    mean = f"mean probability {predicted.mean_probability:.2f}"
    print_line(f"{plural(predicted.rows, 'row')} predicted, {mean}. Table: {out}")


@app.command(rich_help_panel=OWN_TABLE)
def evaluate(
    file: TableFile,
    model: ModelFolder,
    truth: Annotated[
        str, typer.Option(help="Column of true labels; rows without one are skipped.", rich_help_panel=LABELS)
    ],
    embeddings: Embeddings = None,
    encoding: Encoding = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="HTML page to write.", rich_help_panel=OUTPUT)
    ] = None,
    quiet: Quiet = False,
    json_output: JsonOutput = False,
) -> None:
    """Measure accuracy, recall, confusion and calibration where true labels are known.

    Example: propall evaluate birds.csv --model model --truth checked --out accuracy.html
    """
    with without_garbage_collection():
        from propall.tables import evaluation
        from propall.tables.fitting import load_embedding
        from propall.tables.model import TableModel
        from propall.tables.reading import read_table

    loaded, embedding = TableModel.load(model), load_embedding(embeddings)
    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"out: {out.name} is not an HTML page; expected a name such as accuracy.html.")
    raw = read_table(file, encoding=encoding)
    result = evaluation.evaluate(loaded, raw, truth, embedding=embedding)
    if out is not None:
        from propall.report.model_pages import evaluation_page

        evaluation_page(result, raw.source, loaded.account).write(out)
    if json_output:
        print_json(result.as_dict() if out is None else {**result.as_dict(), "page": out})
        return
    if not quiet:
        _print_confusion(result)
        _print_notes(result.notes)
        print_line()
    print_line(
        f"Accuracy {100 * result.accuracy:.2f} % on {plural(result.rows, 'row')}; "
        f"expected calibration error {result.reliability.error:.3f}.{_report_at(out).removeprefix('.')}"
    )


@app.command(rich_help_panel=OWN_TABLE)
def export(
    model: Annotated[Path, typer.Argument(help="Model folder written by `propall fit`.")],
    onnx: Annotated[Path, typer.Option("--onnx", help="ONNX file to write.")],
) -> None:
    """Export a model's network to ONNX, with a JSON description of its features and classes.

    Example: propall export model --onnx model.onnx
    """
    from propall.tables.export import export_onnx
    from propall.tables.model import TableModel

    description = export_onnx(TableModel.load(model), onnx)
    typer.echo(f"{onnx}: maps features to probabilities. The features are described in {description}")


def _with_usual_label(labels: LabelOptions, file: Path) -> LabelOptions:
    """Fill in the label column by its usual name if the options do not say where the labels are."""
    from propall.tables.label_source import guess_source
    from propall.tables.reading import read_table
    from propall.tables.streaming import is_large, read_parts

    if labels.name_columns:
        return labels
    read = partial(read_table, encoding=labels.encoding)
    # The names of the columns are in the first part of a large table.
    guess = guess_source(next(read_parts(file, read=read)) if is_large(file) else read(file))
    return labels if guess is None else replace(labels, label=guess.label)


def _open_any_size(
    file: Path, source: LabelSource | None, encoding: str | None
) -> AbstractContextManager[LabeledTable]:
    """Open a table; one that is large is copied to a temporary file, of which one column is in memory."""
    from propall.tables.column_file import open_stored_table
    from propall.tables.label_columns import open_table
    from propall.tables.reading import read_table
    from propall.tables.streaming import is_large

    is_long = source is not None and source.item is not None
    if is_large(file) and not is_long and find_spec("pyarrow") is not None:
        return open_stored_table(file, source, read=partial(read_table, encoding=encoding))
    return nullcontext(open_table(file, source, encoding=encoding))


def _check_workers(embeddings: Path | None, encoding: str | None) -> None:
    """Raise an error for options that several workers do not support."""
    for name, value in (("embeddings", embeddings), ("encoding", encoding)):
        if value is not None:
            raise ValueError(f"{name}: not supported with several workers. Leave it out, or use one worker.")


def _check_out(out: Path, file: Path, beside: Sequence[Path] = ()) -> None:
    """Raise an error for an unusable output file before any work is done."""
    from propall.tables.writing import writable_format

    writable_format(out)
    check_writable(out)
    if file.is_dir() and out.resolve().parent == file.resolve():
        raise ValueError(
            f"out: {out} is in the input folder, whose files are read as one table; choose another folder."
        )
    for path in (out, *beside):
        if path.exists() and path.resolve() == file.resolve():
            what = "" if path == out else f", which a report beside {out} would replace"
            raise ValueError(
                f"out: {path} is the input file{what}; choose another name so that nothing is overwritten."
            )


def _page_beside(out: Path) -> Path:
    """Return the path of the report page beside an output; raise an error if another page has its name."""
    from propall.report.page import is_report
    from propall.tables.file_formats import table_stem

    page = out.with_name(f"{table_stem(out)}.html")
    check_writable(page)
    if page.exists() and not is_report(page):
        raise ValueError(
            f"out: the report beside {out} would replace {page}, which is not a report of propall; choose "
            "another name, or omit the report with --options page=false."
        )
    return page


def _print_columns(summary: Summary) -> None:
    size = f"{plural(summary.rows, 'row')}, {plural(len(summary.columns), 'column')}"
    print_line(f"{summary.source}: {size}\n", style="bold")
    shown = summary.columns[:MOST_LINES]
    rows = [(*row[:-1], row.example if len(row.example) <= 48 else row.example[:47] + "…") for row in shown]
    print_table(("column", "used as", "missing", "distinct", "example"), rows, numbers=slice(2, 4))
    if len(summary.columns) > MOST_LINES:
        print_line(f"and {len(summary.columns) - MOST_LINES} more columns; --json lists all")


def _print_labels(summary: Summary) -> None:
    print_line(f"\nLabels: {summary.where}", style="bold")
    written = ", ".join(f"{kind} {rows}" for kind, rows in summary.kinds.items())
    sizes = ", ".join(f"{size} in {plural(rows, 'row')}" for size, rows in summary.sizes.items())
    print_line(f"as written  {written}\ncandidates  {sizes}")
    print_line(f"no information in {plural(summary.uninformative, 'row')}: every class is possible\n")
    columns = ("class", "alone", "among others", "excluded")
    print_table(columns, summary.classes[:MOST_CLASSES], numbers=slice(1, None))
    if len(summary.classes) > MOST_CLASSES:
        print_line(f"and {len(summary.classes) - MOST_CLASSES} more classes; --json lists all")
    if summary.never_alone:
        names = ", ".join(summary.never_alone[:8]) + (", ..." if len(summary.never_alone) > 8 else "")
        print_line(f"never alone: {names}")
    if summary.pairs:
        print_line()
        pairs = [(f"{p.one}, {p.other}", p.rows, f"{100 * p.share:.0f} %") for p in summary.pairs]
        print_table(("often together", "rows", "share of the rarer one"), pairs, numbers=slice(1, None))
    if summary.agreement is not None:
        print_line(
            f"\nAgreement: {100 * summary.agreement.pairwise:.1f} % of pairs of answers are equal, "
            f"Krippendorff's alpha {summary.agreement.alpha:.2f} (1: full agreement, 0: chance)"
        )
        if summary.agreement.annotators:
            rows = [(name, n, f"{100 * share:.1f} %") for name, n, share in summary.agreement.annotators]
            print_table(("annotator", "answers", "agree with the others"), rows, numbers=slice(1, None))


def _print_fit(fitted: Fitted | FittedInParts) -> None:
    account = fitted.model.account
    print_line(
        f"{account['source']}: {account['used']} of {plural(account['rows'], 'row')}, "
        f"{len(account['classes'])} classes, {_candidates(account['mean_candidates'])} per row\n",
        style="bold",
    )
    columns = account["columns"]
    print_table(("column", "kind", "encoding"), columns[:MOST_LINES])
    if len(columns) > MOST_LINES:
        print_line(f"and {len(columns) - MOST_LINES} more columns; --json lists all")
    _print_notes([note for note in fitted.notes if note.action != "noted"])
    if "portfolio" in account:
        _print_portfolio(account)
    else:
        _print_settings(account)
    if fitted.trust is not None:
        trust = fitted.trust
        print_line(
            f"The labels are trusted to {100 * trust.share:.1f} %: {plural(trust.widened, 'row')} trained "
            f"with further candidates, {trust.narrowed} with fewer; "
            f"{_candidates(trust.mean_candidates)} per row."
        )
    if account["doubted"]:
        rows = plural(account["doubted"], "row")
        print_line(f"In {rows} all candidates are probably wrong; see the report or `propall resolve`.")


def _print_portfolio(account: Mapping[str, Any]) -> None:
    """Print every learner that was tried, with its weight and its label-free score."""
    from propall.report.model_pages import describe_log_likelihood

    fitted = sorted(
        (row for row in account["portfolio"] if not row["refusal"]), key=lambda row: -row["score"]
    )
    rows = [
        (
            row["name"],
            f"{100 * row['weight']:.0f} %" if row["weight"] else "",
            f"{row['score']:.3f}",
            f"{100 * row['covering_rate']:.1f} %",
            duration(row["seconds"]),
        )
        for row in fitted
    ]
    print_line()
    titles = ("model tried", "weight", "log-likelihood", "among candidates", "time")
    print_table(titles, rows, numbers=slice(1, None))
    mixture = f"Weighted mean: log-likelihood {account['portfolio_score']:.3f}."
    judged = "Every row was judged by members that were not trained on it, without true labels."
    if streamed := account.get("streamed"):
        training = f"on training rows it is {streamed['training_score']:.3f}"
        judged = f"Judged by {streamed['held_out_rows']} held-out rows, without true labels; {training}."
    print_line(f"{mixture} {describe_log_likelihood(account['criterion'])} {judged}")
    left_out: dict[str, list[str]] = {}
    for row in account["portfolio"]:
        if row["refusal"]:
            left_out.setdefault(row["refusal"], []).append(row["name"])
    for reason, names in left_out.items():
        print_line(f"left out ({reason.rstrip('.')}): {'; '.join(names)}")


def _print_settings(account: Mapping[str, Any]) -> None:
    chosen = ", ".join(
        f"{name.replace('_', ' ')} {f'{value:g}' if isinstance(value, float) else value}"
        for name, value in account["chosen"].items()
        if name != "net_options"
    )
    compared = account["settings_compared"]
    how = f"Chosen among {compared} settings" if compared > 1 else "Default settings, judged"
    networks = plural(account["members"], "network")
    print_line(f"\n{how} on {account['folds']} folds, without true labels: {chosen}; {networks}.")


def _print_resolved(resolved: ResolvedTable | ResolutionSummary) -> None:
    columns = ("label", "only label before", "resolved", "mean probability")
    rows = [
        (*row[:-1], f"{row.probability:.2f}" if row.after else "") for row in resolved.counts()[:MOST_CLASSES]
    ]
    print_table(columns, rows, numbers=slice(1, None))
    if resolved.annotators:
        shares = [f"{name} {100 * share:.0f} %" for name, share in resolved.annotators[:MOST_CLASSES]]
        print_line(f"\nEstimated accuracy: {', '.join(shares)}")
    _print_notes(resolved.notes)
    print_line()


def _print_crowd(report: CrowdReport) -> None:
    rows = [
        (
            row["annotator"],
            row["answers"],
            f"{100 * row['accuracy']:.1f}",
            f"{100 * row['standard_error']:.1f}",
            row["most_frequent_confusion"],
        )
        for row in report.annotators.head(MOST_CLASSES).to_dict("records")
    ]
    columns = ("annotator", "answers", "accuracy %", "±", "most frequent confusion")
    print_table(columns, rows, numbers=slice(1, 4))
    if len(report.annotators) > MOST_CLASSES:
        print_line(f"and {len(report.annotators) - MOST_CLASSES} more annotators; --json lists all")
    agreement = report.agreement
    if agreement.alpha == agreement.alpha:  # not NaN
        print_line(
            f"\nAgreement: {100 * agreement.pairwise:.1f} % of pairs of answers are equal, "
            f"Krippendorff's alpha {agreement.alpha:.2f} (1: full agreement, 0: chance)"
        )
    if len(report.questions):
        first = report.questions.iloc[0]
        gain = 100 * float(first["expected_gain"])
        item = f"{first['item']} (row {first['row']})" if "item" in first else f"row {first['row']}"
        print_line(f"Ask again first: {item}, {first['ask']}; expected gain {gain:.1f} points of probability")


def _print_confusion(result: Evaluation) -> None:
    predicted = result.classes if len(result.classes) <= 12 else ()
    rows = [
        (name, n, f"{100 * share:.1f}" if n else "", *counts[: len(predicted)])
        for (name, n, share), counts in zip(result.recalls[:MOST_CLASSES], result.confusion, strict=False)
    ]
    print_table(("true class", "rows", "recall %", *predicted), rows, numbers=slice(1, None))
    if predicted:
        print_line("columns on the right: number of rows predicted as each class\n", style="dim")
    if result.seen:
        seen = f"{plural(result.seen, 'row')} of the training data"
        print_line(f"{seen}: predicted by cross-validation models that did not see them.")
    if result.resolved is not None:
        print_line(
            f"Of {plural(result.with_candidates, 'row')} with candidates, {100 * result.resolved:.2f} % "
            f"resolve to the true label; it is among the candidates in {100 * (result.covered or 0):.2f} %."
        )


def _print_notes(notes: Sequence[DataNote]) -> None:
    from propall.tables.reading import ACTIONS

    if notes:
        print_line()
        by_severity = sorted(notes, key=lambda note: ACTIONS.index(note.action))
        rows = [(note.kind, note.action, note) for note in by_severity[:MOST_LINES]]
        print_table(("what", "action", "details"), rows)
        if len(notes) > MOST_LINES:
            print_line(f"and {len(notes) - MOST_LINES} more; --json lists all")


def _candidates(mean: float) -> str:
    size = f"{mean:.2f}".rstrip("0").rstrip(".")
    return f"{size} candidate{'' if size == '1' else 's'}"
