"""The page of `propall train`."""

from dataclasses import replace

import numpy as np
import pytest

from propall.paper.custom_runs import build_specs, choose_setting, view_sheet
from propall.paper.pages.training import seconds_by_epoch, time_to_accuracy, training_page
from propall.paper.results import RunResult
from propall.report.charts.views import ViewSheet
from propall.training.named_views import VIEWS


@pytest.fixture(scope="module")
def results():
    setting = choose_setting("digits", "fast", net="small_cnn", corruption="complementary")
    specs = build_specs(
        "digits", methods=["propall", "cc"], corruption="complementary", seeds=2, setting=setting
    )
    rising = [0.1, 0.4, 0.7, 0.92, 0.94]
    return [
        RunResult(
            spec,
            accuracy=rising[-1] - 0.01 * i,
            last10=0.9,
            covered=0.99,
            transductive=0.95,
            candidates=9.0,
            seconds=10.0,
            curve={epoch: value - 0.01 * i for epoch, value in enumerate(rising, 1)},
            stack=4,
            when="2026-01-01",
        )
        for i, spec in enumerate(specs)
    ]


def test_time_to_accuracy_is_that_of_the_first_epoch_at_the_level(results):
    assert time_to_accuracy(results[0], 70) == pytest.approx(6.0)
    assert time_to_accuracy(results[0], 95) is None
    assert seconds_by_epoch(results[0])[5] == 10.0
    alone = RunResult(**vars(results[0]) | {"times": {1: 0.5, 2: 1.0, 3: 1.4, 4: 2.0, 5: 2.5}})
    assert time_to_accuracy(alone, 70) == 1.4


def test_the_sheet_shows_the_views_of_the_run(results):
    sheet = view_sheet(results[0].spec)
    assert sheet.columns == [
        "original",
        "weak, epoch 1",
        "strong, epoch 1",
        "weak, epoch 2",
        "strong, epoch 2",
    ]
    assert sheet.images.shape == (6, 5, 8, 8)
    assert list(sheet.rows) == ["0", "1", "2", "3", "4", "5"]
    # Weak views of tiny gray images are the images; strong ones differ, and from epoch to epoch.
    assert np.array_equal(sheet.images[:, 0], sheet.images[:, 1])
    assert not np.array_equal(sheet.images[:, 0], sheet.images[:, 2])
    assert not np.array_equal(sheet.images[:, 4], sheet.images[:, 2])
    (plain,) = build_specs("digits", methods=["cc"], seeds=1)
    assert view_sheet(plain) is None


@pytest.mark.parametrize("views", VIEWS)
def test_the_sheet_shows_every_kind_of_views(views):
    setting = choose_setting("digits", "fast", net="small_cnn", views=views)
    (spec,) = build_specs("digits", methods=["cc"], seeds=1, setting=setting)
    assert len(view_sheet(spec).columns) == 1 + 2 * (1 + spec.recipe.views.n_strong)


def test_a_sheet_is_checked():
    with pytest.raises(ValueError, match=r"images: got uint8 of shape \(2, 3, 8, 8\).* 2 rows and 1 columns"):
        ViewSheet("", np.zeros((2, 3, 8, 8), dtype=np.uint8), ["original"], ["a", "b"])


def test_the_page_says_what_was_measured(results, tmp_path):
    html = training_page(results, view_sheet(results[0].spec)).to_html()
    assert "ProPaLL reaches 93.50 % test accuracy in 10" in html.replace("\N{NO-BREAK SPACE}", " ")
    assert "94 % test accuracy is reached after" in html
    assert html.count('<img src="data:image/png') == 30
    assert "views: balance" in html
    assert len(html) < 1_000_000


def test_the_heading_on_time_has_the_smallest_mean_of_its_table(results):
    def heading(*curves):
        runs = [replace(result, curve=curve) for result, curve in zip(results[:2], curves, strict=True)]
        assert len({run.spec.method for run in runs}) == 1
        return training_page(runs, None).to_html().replace("\N{NO-BREAK SPACE}", " ")

    # Both runs take ten seconds for two epochs; the level of the heading is the highest of all epochs.
    assert "95 % test accuracy is reached after 10 s" in heading({1: 0.94, 2: 0.95}, {1: 0.5, 2: 0.95})
    # One run after five seconds, the other after ten: neither, but their mean.
    assert "94 % test accuracy is reached after 7.5 s" in heading({1: 0.94, 2: 0.94}, {1: 0.5, 2: 0.94})


def test_methods_without_epochs_are_among_the_numbers_only(results):
    plain = RunResult(**vars(results[-1]) | {"curve": {}})
    page = training_page([*results[:2], plain])
    curves, _, numbers, _ = page.sections
    assert [line.name for line in curves.body.lines] == ["ProPaLL"]
    assert [row.title for row in numbers.body.rows] == ["ProPaLL", "CC"]
    assert len(training_page([plain]).sections) == 2


@pytest.mark.browser
@pytest.mark.parametrize(("width", "theme"), [(360, "dark"), (1600, "light")])
def test_opens_without_errors_and_fits(results, tmp_path, width, theme, visit):
    path = training_page(results, view_sheet(results[0].spec)).write(tmp_path / "index.html")
    with visit(path, width=width, theme=theme) as seen:
        seen.assert_opened_without_errors_and_fits(path, width)
