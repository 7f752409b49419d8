"""Pages opened from disk in a real browser."""

import re
from itertools import pairwise

import pytest

from propall.paper.pages.demo import demo_page
from propall.paper.pages.tables import compare_with_paper
from propall.report.charts.heat import Grid, HeatMap
from propall.report.charts.ranks import CDDiagram
from propall.report.page import Page, PageSection
from propall.report.tables import Column, ReportTable, TableCell, TableRow

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def demo(demo_results, tmp_path_factory):
    return demo_page(demo_results).write(tmp_path_factory.mktemp("demo") / "demo.html")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A page with the parts that the demo does not use, including a wide table."""
    names = [f"data set {i}" for i in range(6)]
    pairs = [
        (TableCell(90.0 + i, 0.2), TableCell(89.0 + 2 * i, 0.1, hatched="why" if i == 3 else ""))
        for i in range(6)
    ]
    epochs = [str(e) for e in range(60)]
    heat = Grid(["0", "1"], epochs, [[e / 60 for e in range(60)]] * 2)
    sections = [
        PageSection(
            "Wide",
            compare_with_paper(names, {"ProPaLL": pairs, "CC": pairs[::-1]}, caption="Wide table " * 12),
        ),
        PageSection("Heat", HeatMap("Heat", heat, "class", "epoch", "recall")),
        PageSection(
            "Ranks", CDDiagram("Ranks", {"ProPaLL": 1.2, "PL-KNN": 2.6, "CC": 2.2}, 1.1, [["PL-KNN", "CC"]])
        ),
    ]
    return Page("Report", "Finding.", sections=sections).write(
        tmp_path_factory.mktemp("report") / "report.html"
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("which", ["demo", "report"])
def test_opens_without_errors_and_fits(which, width, theme, visit, request):
    path = request.getfixturevalue(which)
    with visit(path, width=width, theme=theme) as seen:
        seen.assert_opened_without_errors_and_fits(path, width)


def test_theme_follows_the_system_until_switched(demo, visit):
    background = "getComputedStyle(document.body).backgroundColor"
    with visit(demo, theme="dark") as seen:
        assert seen.page.evaluate(background) == "rgb(20, 24, 29)"
        assert seen.page.inner_text("#theme") == "Light theme"
        seen.page.click("#theme")
        assert seen.page.evaluate(background) == "rgb(255, 255, 255)"
        assert seen.page.inner_text("#theme") == "Dark theme"
        seen.page.reload()
        assert seen.page.evaluate(background) == "rgb(255, 255, 255)"
        assert seen.errors == []


def test_narrow_screens_get_the_narrow_drawing(demo, visit):
    for width, shown in ((360, "narrow"), (1600, "wide")):
        with visit(demo, width=width) as seen:
            classes = [
                s.get_attribute("class") for s in seen.page.query_selector_all("svg") if s.is_visible()
            ]
            assert set(classes) == {shown}


def test_hovering_a_line_chart_shows_exact_values(demo, visit, demo_results):
    with visit(demo) as seen:
        chart = seen.page.locator("#s2 svg.wide")
        chart.scroll_into_view_if_needed()
        box = chart.locator("g.hit").nth(4).bounding_box()
        seen.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
        said = seen.page.inner_text("#tip")
        assert said.startswith("epoch 5\n")
        assert f"ProPaLL {100 * demo_results.curves['ProPaLL'][4].mean():.2f}" in said
        seen.page.mouse.move(5, 5)
        assert seen.page.is_hidden("#tip")


def test_arrow_keys_step_through_a_chart(demo, visit):
    with visit(demo) as seen:
        seen.page.focus("#s1 svg.wide")
        seen.page.keyboard.press("ArrowRight")
        assert seen.page.inner_text("#tip").startswith("ProPaLL ")
        seen.page.keyboard.press("ArrowRight")
        assert seen.page.inner_text("#tip").startswith("PRODEN ")
        seen.page.keyboard.press("ArrowLeft")
        seen.page.keyboard.press("ArrowLeft")
        assert seen.page.inner_text("#tip").startswith("random candidate ")
        seen.page.keyboard.press("Escape")
        assert seen.page.is_hidden("#tip")


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_clicking_a_name_fades_and_restores_the_others(demo, visit, by):
    with visit(demo) as seen:
        name = seen.page.locator("#s2 svg.wide [data-pick=cc]")

        def press():
            if by == "mouse":
                name.click()
            else:
                name.focus()
                seen.page.keyboard.press("Enter")
            seen.page.wait_for_timeout(250)

        def opacity(series):
            place = f"#s2 svg.wide g.series[data-series={series}]"
            return seen.page.eval_on_selector(place, "g => +getComputedStyle(g).opacity")

        press()
        assert opacity("cc") == 1
        assert opacity("propall") < 0.5
        assert name.get_attribute("aria-pressed") == "true"
        press()
        assert opacity("propall") == 1


def test_headings_sort_a_table(demo, visit):
    with visit(demo) as seen:
        table = seen.page.locator("#s4 table")

        def column(number):
            texts = table.locator(f"tbody tr > :nth-child({number})").all_inner_texts()
            return [float(match.group()) for text in texts if (match := re.search(r"[\d.]+", text))]

        table.locator("thead button").nth(1).click()
        assert all(a >= b for a, b in pairwise(column(2)))
        table.locator("thead button").nth(1).click()
        assert all(a <= b for a, b in pairwise(column(2)))
        assert table.locator("th[aria-sort=ascending]").count() == 1
        table.locator("thead button").nth(0).click()
        names = table.locator("tbody th").all_inner_texts()
        assert names == sorted(names, key=str.lower)
        # A cell without a number is last in both directions.
        for _ in range(2):
            table.locator("thead button").nth(2).click()
            assert table.locator("tbody tr:last-child th").inner_text() == "clean labels"


def test_buttons_copy_the_table(demo, visit):
    with visit(demo) as seen:
        seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        seen.page.click("#s4 [data-copy=Markdown]")
        seen.page.locator("#s4 .copy [role=status]", has_text="copied").wait_for()
        assert seen.page.inner_text("#s4 .copy [role=status]") == "Markdown copied"
        assert seen.page.evaluate("navigator.clipboard.readText()").startswith(
            "| method | test accuracy (%) |"
        )


def test_table_of_contents_is_beside_or_above(demo, visit):
    with visit(demo, width=1600) as seen:
        contents, main = seen.page.locator("nav").bounding_box(), seen.page.locator("main").bounding_box()
        assert contents["x"] + contents["width"] <= main["x"]
    with visit(demo, width=360) as seen:
        contents, main = seen.page.locator("nav").bounding_box(), seen.page.locator("main").bounding_box()
        assert contents["y"] + contents["height"] <= main["y"]


def test_pages_print_on_white_without_controls(demo, visit):
    with visit(demo, theme="dark") as seen:
        seen.page.emulate_media(media="print", color_scheme="dark")
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert not seen.page.is_visible("#theme")
        assert not seen.page.is_visible("nav")
        assert seen.page.is_visible("#s1 svg.wide")


ROWS = 1500


@pytest.fixture(scope="module")
def rows_page(tmp_path_factory):
    """A page with a searchable table of many rows with long texts."""
    words = ["parcel", "letter", "warehouse", "customer", "answered", "yesterday"]
    rows = [
        TableRow.of(
            str(i + 1),
            f"label {i % 7}",
            (i * 37 % ROWS) / ROWS,
            f"Zürich {i} <b>bold</b>" if i == 1234 else "a | b",
            more=f"ticket: T-{10_000 + i} · notes: " + " ".join(words[(i + j) % 6] for j in range(50)),
        )
        for i in range(ROWS)
    ]
    columns = [Column("label", kind="text"), Column("probability"), Column("set", kind="text", wraps=True)]
    table = ReportTable(columns, rows, "Rows.", "row", formats=("CSV",), first=10, more_title="contents")
    path = tmp_path_factory.mktemp("rows") / "rows.html"
    return Page("Rows", "Finding.", sections=[PageSection("Rows", table)]).write(path)


@pytest.mark.parametrize("width", [390, 1440])
def test_long_texts_are_folded_and_open_by_keyboard(rows_page, visit, width):
    with visit(rows_page, width=width) as seen:
        seen.assert_opened_without_errors_and_fits(rows_page, width)
        heights = [row.bounding_box()["height"] for row in seen.page.query_selector_all("tbody tr")]
        assert len(heights) == 20
        assert max(heights) < 90, "two folded lines"
        fold = seen.page.locator(".fold").first
        folded = fold.bounding_box()
        assert folded["x"] + folded["width"] <= width
        fold.locator("summary").focus()
        seen.page.keyboard.press("Enter")
        assert fold.bounding_box()["height"] > folded["height"]
        seen.assert_opened_without_errors_and_fits(rows_page, width)


def test_search_finds_rows_that_are_not_shown(rows_page, visit):
    with visit(rows_page, width=390) as seen:
        page = seen.page
        titles = page.locator("tbody th")
        page.get_by_label("Search all 1500 rows").focus()
        page.keyboard.type("t-11234 LABEL")
        assert titles.all_inner_texts() == ["1235"]
        assert page.inner_text(".find [role=status]") == "1 of 1500 match"
        assert page.inner_text("tbody td.wraps") == "Zürich 1234 <b>bold</b>", "text, not markup"
        assert page.locator("tbody details").get_attribute("open") is not None, "shows where it matched"
        assert page.evaluate("CSS.highlights.get('found').size") == 2
        page.fill("input[type=search]", "zurich")
        assert titles.all_inner_texts() == ["1235"]
        page.fill("input[type=search]", "nothing has these words")
        assert titles.count() == 0
        assert page.inner_text(".find [role=status]") == "0 of 1500 match"
        page.fill("input[type=search]", "")
        assert titles.all_inner_texts() == [str(i) for i in range(1, 11)]
        seen.assert_opened_without_errors_and_fits(rows_page, 390)


def test_more_rows_sorting_and_copying_use_all_rows(rows_page, visit):
    with visit(rows_page) as seen:
        page = seen.page
        titles = page.locator("tbody th")
        page.locator(".rest button").focus()
        page.keyboard.press("Enter")
        assert titles.count() == 60
        assert page.inner_text(".rest button") == "Show more (1440 left)"
        page.locator("thead button").nth(2).click()
        shown = page.locator("tbody tr:not(.more) td:nth-child(3)").all_inner_texts()
        assert shown[0] == "1.00"
        assert shown == sorted(shown, reverse=True)
        page.fill("input[type=search]", "T-11234")
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.click("[data-copy=CSV]")
        page.locator(".copy [role=status]", has_text="copied").wait_for()
        assert page.inner_text(".copy [role=status]") == "CSV of 1 rows copied"
        header, line, _ = page.evaluate("navigator.clipboard.readText()").split("\n")
        assert header == "row,label,probability,set,contents"
        assert line.startswith("1235,label 2,0.44,Zürich 1234 <b>bold</b>,ticket: T-11234")


def test_a_search_of_thousands_of_rows_answers_at_once(rows_page, visit):
    with visit(rows_page) as seen:
        script = """() => {
            const input = document.querySelector("input[type=search]"), start = performance.now();
            for (const text of ["p", "pa", "par", "parc", "parcel"]) {
                input.value = text;
                input.dispatchEvent(new Event("input"));
            }
            return (performance.now() - start) / 5;
        }"""
        assert seen.page.evaluate(script) < 5000, "milliseconds for each key, on a busy machine"
