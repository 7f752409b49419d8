"""The page of `propall train`."""

from dataclasses import replace

import numpy as np
import pytest

from propall.data.augmentation import Augmentation
from propall.paper.custom_runs import build_specs, choose_setting, use_views, view_sheet
from propall.paper.pages.training import seconds_by_epoch, time_to_accuracy, training_page
from propall.paper.results import RunResult
from propall.report.charts.views import ViewSheet
from propall.training.named_recipes import NamedRecipe
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
    weak = choose_setting("digits", "fast", net="small_cnn", strong_views=0)
    (unchanged,) = build_specs("digits", methods=["cc"], seeds=1, setting=weak)
    assert view_sheet(unchanged) is None
    views = replace(weak.recipe.views, weak=Augmentation(flip=False, crop=1))
    shifted = weak._replace(recipe=replace(weak.recipe, views=views))
    (shifted,) = build_specs("digits", methods=["cc"], seeds=1, setting=shifted)
    assert view_sheet(shifted).columns == ["original", "weak, epoch 1", "weak, epoch 2"]
    two = choose_setting("digits", "fast", net="small_cnn", strong_views=2)
    (own,) = build_specs("digits", methods=["papi"], seeds=1, setting=two)
    assert view_sheet(own).columns == sheet.columns


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
    # All runs of ProPaLL reach this level, and one reaches 94 %.
    assert "92 % test accuracy is reached after" in html
    assert html.count('<img src="data:image/png') == 30
    assert "views: balance" in html
    assert "views: n strong" in html
    assert "views: temperature" not in html  # the default
    assert len(html) < 1_000_000


def test_the_heading_on_time_has_the_smallest_mean_of_its_table(results):
    def heading(*curves):
        runs = [replace(result, curve=curve) for result, curve in zip(results[:2], curves, strict=True)]
        assert len({run.spec.method for run in runs}) == 1
        return training_page(runs, None).to_html().replace("\N{NO-BREAK SPACE}", " ")

    # Both runs take ten seconds for two epochs; the level of the heading is the highest of all epochs.
    assert "95 % test accuracy is reached after 10 s" in heading({1: 0.94, 2: 0.95}, {1: 0.5, 2: 0.95})
    # Only one of two runs reaches 95 %.
    assert "90 % test accuracy is reached after 7.5 s" in heading({1: 0.9, 2: 0.95}, {1: 0.5, 2: 0.9})
    # ... which six levels above may not push out of the table.
    assert "60 % test accuracy is reached after 7.5 s" in heading({1: 0.65, 2: 0.97}, {1: 0.5, 2: 0.65})
    assert "No level of accuracy was reached by all runs of a method" in heading({1: 0.5}, {1: 0.2})
    # One run after five seconds, the other after ten: neither, but their mean.
    assert "94 % test accuracy is reached after 7.5 s" in heading({1: 0.94, 2: 0.94}, {1: 0.5, 2: 0.94})


@pytest.mark.parametrize(
    ("views", "strong_views", "methods", "text"),
    [
        (None, None, ["cc"], "The prediction on the weak view gives the targets; all views are trained"),
        (None, 0, ["cc"], "The network is trained on the weak view alone."),
        ("dirk", None, [], "gives the targets from the strong view; the strong view is trained towards them"),
        ("crdpll", None, [], "Predictions on all views, remembered over the epochs, give the targets; all"),
        ("pocr", None, ["papi"], "PaPi uses one weak and one strong view in its own way."),
    ],
)
def test_the_text_beside_the_images_says_what_is_learned(results, views, strong_views, methods, text):
    setting = choose_setting("digits", "fast", net="small_cnn", views=views, strong_views=strong_views)
    setting, methods = use_views(views, setting, methods)
    specs = build_specs("digits", methods=[*methods, "pl_knn"], seeds=1, setting=setting)
    runs = [replace(results[0], spec=spec) for spec in specs]
    sheet = view_sheet(results[0].spec)
    section = next(s for s in training_page(runs, sheet).sections if s.label == "Augmented images")
    kinds = "weak views" if strong_views == 0 else "weak and strong views"
    assert section.heading == f"What the network sees: {kinds}"
    assert text in section.text
    names = [row.title for row in training_page(runs).sections[-1].body.rows]
    assert ("views: strong" in names) == (strong_views is None)
    assert ("views: n strong" in names) == (methods != ["papi"])
    # A method without a network sees no views.
    assert view_sheet(specs[1]) is None
    page = training_page(runs[1:], sheet)
    assert "Augmented images" not in [section.label for section in page.sections]
    assert not [row.title for row in page.sections[-1].body.rows if row.title.startswith("views")]


@pytest.mark.parametrize("methods", [["pico"], ["propall"]])
@pytest.mark.parametrize("n_strong", [0, 1])
def test_the_settings_have_the_whole_balance_term(results, methods, n_strong):
    net, recipe = choose_setting("digits", "fast", net="small_cnn", balance=0.5)
    views = replace(recipe.views, n_strong=n_strong, balance_fade=0.4)
    setting = NamedRecipe(net, replace(recipe, views=views))
    runs = [replace(results[0], spec=build_specs("digits", methods=methods, seeds=1, setting=setting)[0])]
    rows = {row.title: row.cells[0].text for row in training_page(runs).sections[-1].body.rows}
    assert (rows["views: balance"], rows["views: balance fade"]) == ("0.5", "0.4")


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
