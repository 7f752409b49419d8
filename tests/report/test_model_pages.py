"""The pages of a fit and a resolve, as text and in a real browser."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from propall.estimators.scorers import CRITERIA
from propall.report import model_pages
from propall.report.charts.reliability import ReliabilityChart
from propall.report.model_pages import (
    CRITERION_WORDS,
    REVIEWED_ROWS,
    evaluation_page,
    fit_in_parts_page,
    fit_page,
    resolve_page,
)
from propall.report.numbers import format_number
from propall.report.tables import ReportTable
from propall.tables.evaluation import evaluate
from propall.tables.fitting import FitOptions, fit_table
from propall.tables.images import ImageColumn
from propall.tables.label_columns import open_table
from propall.tables.label_source import LabelSource
from propall.tables.larger_than_memory import fit_in_parts
from propall.tables.reading import read_table
from propall.tables.resolution import resolve_file, resolve_training_rows
from propall.tables.streaming import read_parts
from tests.fixtures.tables import write_birds


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    path = tmp_path_factory.mktemp("birds") / "birds.csv"
    write_birds(path, 200, dirty=True)
    options = FitOptions(epochs=12, members=2, folds=2)
    return fit_table(open_table(path, LabelSource(label="species")), options)


@pytest.fixture(scope="module")
def evaluation(fitted, tmp_path_factory):
    path = tmp_path_factory.mktemp("truth") / "birds.csv"
    write_birds(path, 200, dirty=True, truth=True)
    return evaluate(fitted.model, read_table(path), "truth")


@pytest.fixture(scope="module")
def fitted_in_parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    write_birds(folder / "birds.csv", 400, dirty=True)
    options = FitOptions(effort="quick", epochs=20)
    parts = partial(read_parts, folder / "birds.csv", size=10_000)
    fitted = fit_in_parts(parts, LabelSource(label="species"), folder / "model", options)
    fitted.model.account["options"] = {"effort": "quick", "epochs": 20}
    return fitted


@pytest.fixture(scope="module")
def pages(fitted, fitted_in_parts, evaluation, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    page = evaluation_page(evaluation, "birds.csv", fitted.model.account)
    return {
        "evaluation": page.write(folder / "evaluation.html"),
        "fit": fit_page(fitted).write(folder / "fit.html"),
        "fit in parts": fit_in_parts_page(fitted_in_parts).write(folder / "parts.html"),
        "resolve": resolve_page(resolve_training_rows(fitted)).write(folder / "resolve.html"),
    }


def test_the_page_of_a_fit_says_what_was_found(fitted, outline) -> None:
    parsed = outline(fit_page(fitted).to_html())
    text = " ".join(" ".join(parsed.text).split())
    assert len(parsed.ids) == len(set(parsed.ids))
    for part in (
        "A model of birds.csv",
        f"trained on {fitted.model.account['used']} rows",
        "typo",
        "herrng gull",
        "TF-IDF of",
        "Chosen without true labels among 8 settings",
        "covering rate",
        "to review first",
        "hardest to tell apart",
        "is a candidate (%)",
        "only label before",
        fitted.hardware,
    ):
        assert part in text, part


def test_the_page_of_a_fit_in_parts_says_what_was_found(fitted_in_parts, outline) -> None:
    page, account = fit_in_parts_page(fitted_in_parts), fitted_in_parts.model.account
    parsed = outline(page.to_html())
    text = " ".join(" ".join(parsed.text).split())
    assert len(parsed.ids) == len(set(parsed.ids))
    held_out = account["streamed"]["held_out_rows"]
    for part in (
        "A model of birds.csv",
        f"trained on {account['used'] - held_out} rows",
        f"of {account['rows']} rows used",
        f"held-out rows whose candidates are probably all wrong {account['doubted']}",
        "more cells than the 8 columns",  # from the first pass over the file
        f"Judged by {held_out} held-out rows",
        "The log-likelihood of the weighted mean on training rows is "
        + format_number(account["streamed"]["training_score"], 3),
        "models of 2 tried" if account["members"] > 1 else "1 model of 2 tried",
        "MLP, 128 units",
        f"The model uses {len(account['columns'])} columns",
        "TF-IDF of",
        "hardest to tell apart",
        "How to repeat this fit",
        "to read and fit",
        fitted_in_parts.hardware,
    ):
        assert part in text, part
    assert text.count("'herrng gull' is read as 'herring gull'") == 1
    chart = page.sections[0].body
    assert isinstance(chart, ReliabilityChart)
    assert sum(each.rows for each in chart.bins) <= held_out
    assert " folds" not in text


def test_the_page_of_a_resolve_says_what_was_found(fitted, outline) -> None:
    resolved = resolve_training_rows(fitted)
    text = " ".join(" ".join(outline(resolve_page(resolved).to_html()).text).split())
    assert f"Of {len(resolved.resolution)} rows, {resolved.ambiguous} had more than one candidate" in text
    alone = int((resolved.resolution.candidates.sum(1) == 1).sum())
    for part in (
        f"{alone} rows had one label before, {len(resolved.resolution)} have one now",
        "Each row is resolved by models that did not see it",
        "Predictions among the candidates after each epoch",
        *(row.name for row in resolved.counts()),
    ):
        assert part in text, part


def test_a_page_says_who_answered_and_of_which_file(fitted, outline, tmp_path) -> None:
    write_birds(tmp_path / "others.csv", 40, seed=5)
    heading, _, rest = (tmp_path / "others.csv").read_text().partition("\n")
    (tmp_path / "others.csv").write_text(heading.replace("weight_g", "wing_mm") + "\n" + rest)

    def page_text(model):
        page = resolve_page(resolve_file(model, tmp_path / "others.csv"))
        return " ".join(" ".join(outline(page.to_html()).text).split())

    text = page_text(fitted.model)
    assert "data others.csv" in text
    assert "all other rows by the final model." in text
    assert "Predictions among the candidates after each epoch" in text
    text = page_text(replace(fitted.model, held_out=None, account={}))
    assert "The fit was interrupted" in text


def test_the_first_picture_answers_whether_to_trust_the_labels(fitted, pages) -> None:
    for page in (fit_page(fitted), resolve_page(resolve_training_rows(fitted))):
        chart = page.sections[0].body
        assert isinstance(chart, ReliabilityChart)
        assert page.sections[0].label == "Can I trust this?"
    resolution = resolve_training_rows(fitted).resolution
    informative = ~resolution.candidates.all(1)
    assert sum(each.rows for each in chart.bins) == informative.sum()
    guess = resolution.probabilities.argmax(1)
    hits = resolution.candidates[np.arange(len(guess)), guess][informative].mean()
    observed = sum(each.rows * each.observed for each in chart.bins) / informative.sum()
    assert observed == pytest.approx(100 * hits)


def test_overconfidence_is_said_in_the_heading(fitted) -> None:
    resolved = resolve_training_rows(fitted)
    logs = np.full(resolved.resolution.log_probabilities.shape, np.log(0.001 / 3))
    logs[:, 0] = np.log(0.999)  # always the same class, always sure
    wrong = resolved.consensus._replace(resolution=replace(resolved.resolution, log_probabilities=logs))
    heading = resolve_page(replace(resolved, consensus=wrong)).sections[0].heading
    assert re.fullmatch(r"The probabilities are too high by [\d.]+ points on average", heading)


def test_the_search_covers_every_row_and_column(fitted) -> None:
    page = resolve_page(resolve_training_rows(fitted))
    (table,) = [
        block
        for section in page.sections
        for block in section.blocks
        if isinstance(block, ReportTable) and block.first
    ]
    assert len(table.rows) == fitted.model.account["used"]
    assert table.first <= REVIEWED_ROWS
    frame = fitted.table.raw.frame
    by_number = {int(row.title) - 1: row.more for row in table.rows}
    for number in (0, 7):
        for name in frame.columns:
            assert f"{name}: " in by_number[number], name
    doubt = [row.cells[2].mean for row in table.rows]
    assert doubt[0] == max(doubt)


def test_a_page_of_many_rows_stays_small(fitted, monkeypatch) -> None:
    resolved = resolve_training_rows(fitted)
    monkeypatch.setattr(model_pages, "SEARCHED_CHARACTERS", 10_000)
    html = resolve_page(resolved).to_html()
    shown = int(re.search(r"The search covers the (\d+) most doubtful of", html).group(1))
    assert REVIEWED_ROWS <= shown < len(resolved.resolution) / 2
    assert f"Search all {shown} rows" in html


def test_the_page_of_an_evaluation_says_what_was_found(evaluation, fitted, outline) -> None:
    page = evaluation_page(evaluation, "birds.csv", fitted.model.account)
    text = " ".join(" ".join(outline(page.to_html()).text).split())
    worst, _, recall = min((row for row in evaluation.recalls if row[1]), key=lambda row: row[2])
    for part in (
        "Accuracy on birds.csv",
        f"{100 * evaluation.accuracy:.1f} % of {evaluation.rows} rows",
        f"{worst} has the lowest recall, {100 * recall:.1f} %",
        "The most frequent error is to predict",
        "of resolved labels are correct",
        "by models that did not see them",
    ):
        assert part in text, part
    chart = page.sections[0].body
    assert sum(each.rows for each in chart.bins) == evaluation.rows
    correct = sum(each.rows * each.observed for each in chart.bins) / evaluation.rows
    assert correct == pytest.approx(100 * evaluation.accuracy)


def test_an_evaluation_without_errors_has_no_matrix_of_them(evaluation) -> None:
    k = len(evaluation.classes)
    right = replace(evaluation, confusion=np.diag(np.arange(1, k + 1)), accuracy=1.0)
    headings = [section.heading for section in evaluation_page(right, "birds.csv", {}).sections]
    assert not any("error" in heading for heading in headings)


def test_every_criterion_has_words() -> None:
    assert set(CRITERION_WORDS) == set(CRITERIA)


def test_rows_with_images_show_them(tmp_path, outline) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    draw = np.random.default_rng(0)
    rows = []
    for i in range(24):
        pixels = draw.integers(0, 100, (10, 10, 3)) + 100 * (i % 2)
        image.fromarray(pixels.astype(np.uint8)).save(tmp_path / f"{i}.png")
        rows.append({"file": f"{i}.png", "label": "day|night" if i % 3 else ["night", "day"][i % 2]})
    pd.DataFrame([*rows[:-1], {**rows[-1], "label": "dusk"}]).to_csv(tmp_path / "p.csv", index=False)
    table = open_table(tmp_path / "p.csv", LabelSource(label="label"))
    options = FitOptions(epochs=1, members=1, folds=2, search=False)
    html = fit_page(fit_table(table, options, images=ImageColumn("file", 10))).to_html()
    shown = int(re.search(r"(\d+) rows to review first", html).group(1))
    assert html.count("data:image/png;base64,") == shown > 3
    outline(html)


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("which", ["fit", "fit in parts", "resolve", "evaluation"])
def test_opens_quietly_and_fits(which, width, theme, visit, pages) -> None:
    with visit(pages[which], width=width, theme=theme) as seen:
        seen.assert_opened_without_errors_and_fits(pages[which], width)


@pytest.mark.browser
def test_the_second_look_sorts_by_doubt(pages, visit) -> None:
    with visit(pages["fit"]) as seen:
        table = seen.page.locator("section", has_text="to review first").last.locator("table").first
        heads = table.locator("thead th").all_inner_texts()
        column = heads.index("doubt")
        table.locator("thead button").nth(column).click()
        doubts = [
            float(text) for text in table.locator(f"tbody tr > :nth-child({column + 1})").all_inner_texts()
        ]
        assert doubts == sorted(doubts, reverse=True)


def test_the_page_of_a_portfolio_names_its_score(tmp_path, outline, monkeypatch) -> None:
    write_birds(tmp_path / "birds.csv", 60)
    monkeypatch.setattr(model_pages, "MOST_COLUMNS", 1)
    table = open_table(tmp_path / "birds.csv", LabelSource(label="species"))
    portfolio = fit_table(table, FitOptions(effort="quick", time_limit=0))
    for criterion, words in (
        ("candidate_log_likelihood", "that the label of a row is one of its candidates"),
        ("cooccurrence_log_likelihood", "given which labels occur together"),
    ):
        portfolio.model.account["criterion"] = criterion
        page = fit_page(portfolio)
        assert words in " ".join(" ".join(outline(page.to_html()).text).split())
    (columns,) = [section.body for section in page.sections if "The model uses" in section.heading]
    assert columns.first == 1  # the others are found by a search
