"""Tables of our numbers next to published ones, for the page on the state of the art."""

from collections.abc import Collection, Mapping, Sequence

from bibliography import with_citations
from methods import evidence, mean_and_deviation

from propall.data import DATASETS
from propall.nets import NETS
from propall.paper import modern
from propall.paper.modern import RowResult
from propall.paper.pages.modern import OTHER_SETS, describe_ranges, format_range
from propall.paper.tables.modern import COMPARISONS


def _rows() -> list[RowResult]:
    """All rows of the table of images with views, with their results."""
    return modern.row_results(modern.select_rows(), evidence().results)


def _setting(result: RowResult) -> str:
    spec = result.row.spec
    law = result.row.law.title
    return law if spec.data == "cifar10n" else f"{DATASETS[spec.data].title}, {law}"


def _ours(result: RowResult) -> str:
    spec = result.row.spec
    runs = f"{len(result.results)} seed" + "s" * (len(result.results) != 1)
    training = f"{NETS[spec.net].title}, {spec.recipe.epochs} epochs"
    accuracy = mean_and_deviation(result.mean, result.std)
    return f"| **{result.row.title} (ours)** | **{accuracy}** | {training} | measured, {runs} |"


def published_tables() -> str:
    """A table per setting that others have published numbers for: ours first, then theirs."""
    parts = []
    by_setting: dict[str, list[RowResult]] = {}
    for result in _rows():
        if result.row.published and "/" not in result.row.name:
            by_setting.setdefault(_setting(result), []).append(result)
    for setting, results in by_setting.items():
        others = {entry.method for result in results for entry in result.row.published} - {"ProPaLL"}
        if not others and all(result.mean is None for result in results):
            continue  # nothing but the paper's own number, which the page on the paper has
        lines = ["| method | accuracy, % | trained with | source |", "| --- | --: | --- | --- |"]
        measured = [result for result in results if result.mean is not None]
        lines += [_ours(result) for result in measured] or ["| ours | not run | | |"]
        lines += [
            f"| {entry.method} | {entry.accuracy:.2f} | {entry.training} | {entry.source} |"
            for entry in dict.fromkeys(entry for result in results for entry in result.row.published)
        ]
        parts += [f"### {setting}", "\n".join(lines)]
    return with_citations("\n\n".join(parts))


def methods_table(data: str = "cifar10") -> str:
    """Methods under one recipe, for every law with at least two results; those without one come last."""
    rows, comparison = _rows(), COMPARISONS[data]
    found = modern.open_ranks(rows, comparison)
    parts = []
    for law, setting in comparison.settings.items():
        results = [result for result in rows if result.row.setting == setting]
        if sum(result.mean is not None for result in results) > 1:
            title = results[0].row.law.title
            parts += [
                f"### {comparison.title}, {title}, one recipe",
                _one_recipe(
                    results,
                    {result.row.method: format_range(found, law, result.row.method) for result in results},
                    modern.with_other_sets(rows, comparison, law),
                ),
            ]
    return "\n\n".join(parts)


def _one_recipe(results: Sequence[RowResult], ranges: Mapping[str, str], others: Collection[str]) -> str:
    lines = ["| method | accuracy, % | runs | rank |", "| --- | --: | --: | --: |"]
    for result in sorted(results, key=lambda result: -(result.mean or 0)):
        accuracy = "not run" if result.mean is None else mean_and_deviation(result.mean, result.std)
        runs = f"{len(result.results)} of {len(result.keys)}"
        title = f"{result.row.title} ({OTHER_SETS})" if result.row.method in others else result.row.title
        lines.append(f"| {title} | {accuracy} | {runs} | {ranges[result.row.method]} |")
    return "\n".join(lines)


def ranking_note(data: str = "cifar10") -> str:
    """How the ranks of `methods_table` are found."""
    comparison = COMPARISONS[data]
    return describe_ranges(modern.open_ranks(_rows(), comparison), comparison)


def digits_hours() -> str:
    """Hours that the runs of the comparison on digits took."""
    comparison = COMPARISONS["digits"]
    results = [result for result in _rows() if modern.is_compared(result, comparison)]
    return f"{sum(run.seconds for result in results for run in result.results) / 3600:.1f}"


def annotator_table(measured: Sequence[Mapping[str, str]], rate: float, scoring: str) -> str:
    """Sets that small annotators draw with and without dropout.

    Args:
        measured: rows of `results/annotator_dropout.csv`.
        rate: of the sets.
        scoring: mode of the annotator.
    """
    lines = [
        "| dropout | correct labels | candidates | with most frequent wrong label | most entangled pair |",
        "| --- | --: | --: | --: | --: |",
    ]
    for row in measured:
        if (float(row["rate"]), row["scoring"]) == (rate, scoring):
            correct, *shares = (
                f"{100 * float(row[name]):.1f} %" for name in ("correct", "companion", "pair")
            )
            cells = (row["dropout"], correct, f"{float(row['candidates']):.2f}", *shares)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def measured_settings() -> int:
    """Number of settings of the table with results."""
    return sum(result.mean is not None for result in _rows())
