"""The report opened from disk in a real browser."""

import re

import pytest

from propall.paper.evidence import Evidence
from propall.paper.pages import report_page
from propall.paper.store import Store
from propall.report.numbers import format_mean

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("width", "theme"), [(1400, "light"), (390, "dark")])
def test_opens_without_errors_and_fits(full_page, width, theme, visit):
    with visit(full_page, width=width, theme=theme) as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.errors == []
        assert [url for url in seen.requests if not url.startswith("data:")] == [full_page.as_uri()]
        outside = seen.page.evaluate(
            """width => [...document.querySelectorAll('svg text')]
                .map(text => text.getBoundingClientRect())
                .filter(box => box.width && (box.left < -1 || box.right > width + 1)).length""",
            width,
        )
        assert outside == 0


def test_page_of_an_empty_store_opens(tmp_path, visit):
    with Store(tmp_path / "r.sqlite") as store:
        path = report_page(Evidence(store)).write(tmp_path / "report.html")
    with visit(path) as seen:
        assert seen.page.inner_text(".finding").startswith("Nothing has been measured yet")
        assert seen.errors == []


def test_tables_show_stored_numbers_and_sort(full_page, full_store, visit):
    with Store(full_store) as store:
        entries = {e.title: e for e in Evidence(store).entries("real", "folds5") if e.cell.data == "lost"}
    with visit(full_page) as seen:
        table = seen.page.locator("section:has(h2:text('Table 4')) table").first
        rows = table.locator("tbody tr")
        assert rows.count() == len(entries)
        for row in rows.all():
            title, entry = row.locator("th").inner_text(), entries[row.locator("th").inner_text()]
            ours = row.locator("td").nth(0).inner_text().replace("\N{NO-BREAK SPACE}", " ")
            paper = row.locator("td").nth(1).inner_text().replace("\N{NO-BREAK SPACE}", " ")
            assert ours == format_mean(entry.mean, entry.std), title
            assert re.sub(r"\)\d+$", ")", paper) == format_mean(*entry.published), title
        table.locator("thead button", has_text="ours").first.click()
        best = max(entries.values(), key=lambda entry: entry.mean)
        assert table.locator("tbody tr").first.locator("th").inner_text() == best.title


def test_charts_react_to_hover_and_click(full_page, visit):
    with visit(full_page) as seen:
        chart = seen.page.locator("section:has(h2:text('Points lost from 1 to 9')) figure").first
        svg = chart.locator("svg.wide")
        svg.scroll_into_view_if_needed()
        box = svg.locator("g.hit").nth(8).bounding_box()
        seen.page.mouse.move(box["x"] + 3, box["y"] + 60)
        said = seen.page.inner_text("#tip")
        assert said.startswith("n 9\n")
        assert "ProPaLL, paper 90.17" in said
        svg.locator("[data-pick=pc]").click()
        faded = "g => +getComputedStyle(g).opacity"
        assert svg.locator("g.series[data-series=ova]").first.evaluate(faded) < 0.5
        assert svg.locator("g.series[data-series=pc]").first.evaluate(faded) == 1


def test_time_chart_and_film_strip_have_tooltips(full_page, visit):
    with visit(full_page) as seen:
        time = seen.page.locator("section:has(h2:text('Time:')) svg.wide").first
        time.scroll_into_view_if_needed()
        time.locator("g[data-series=propall] g.hit").nth(3).hover()
        assert re.match(r"ProPaLL\n[\d.]+ after [\d.]+ s", seen.page.inner_text("#tip"))
        strip = seen.page.locator("section:has(h2:text('Classes during training')) figure").nth(1)
        frame = strip.locator("svg.wide rect[data-t]").first
        frame.scroll_into_view_if_needed()
        frame.hover()
        assert seen.page.inner_text("#tip").startswith("epoch 1\ntrue class 0, predicted class ")
