import re

import pytest

from propall.report.charts.bars import BarChart
from propall.report.page import KeyFigure, Page, PageSection
from propall.report.tables import Column, ReportTable, TableCell, TableRow


@pytest.fixture
def page():
    table = ReportTable([Column("accuracy")], [TableRow("<CC>", [TableCell(91.5)])], "Runs & seeds")
    bars = BarChart("Sizes", [("1", 3.0), ("2", 4.0)], "candidates", "instances")
    return Page(
        "A <title>",
        "Finding & more.",
        [KeyFigure("91.50 %", "accuracy", "one run")],
        [
            PageSection("First", [bars, table], "One.\n\nTwo with `a < b`.", {"data": "digits", "q": "0.1"}),
            PageSection("Second", table, provenance={"data": "as above"}),
        ],
    )


def test_page_is_well_formed_semantic_and_self_contained(page, outline):
    parsed = outline(page.to_html())
    assert {
        "main",
        "section",
        "nav",
        "figure",
        "figcaption",
        "table",
        "header",
        "footer",
        "svg",
    } <= parsed.tags
    assert len(parsed.ids) == len(set(parsed.ids))
    assert all(address.startswith(("#", "data:")) for address in parsed.addresses)
    assert {f"#{name}" for name in ("main", "s1", "s2")} <= set(parsed.addresses)


def test_text_is_escaped_and_kept(page, outline):
    html = page.to_html()
    text = " ".join(" ".join(outline(html).text).split())
    for part in (
        "A <title>",
        "Finding & more.",
        "<CC>",
        "Runs & seeds",
        "data digits · q 0.1",
        "as above",
        "91.50 %",
    ):
        assert part in text
    assert "<code>a &lt; b</code>" in html
    assert html.count("<p>") >= 2


def test_references_between_elements_resolve(page, outline):
    html = page.to_html()
    ids = set(outline(html).ids)
    for name in re.findall(r'aria-(?:labelledby|describedby)="([^"]+)"', html):
        assert name in ids


def test_page_makes_no_requests(page):
    html = page.to_html()
    assert "default-src 'none'" in html
    assert not re.search(r"https?://", html)
    assert "@import" not in html
    assert not re.search(r"url\(", html)


def test_write_creates_folders(page, tmp_path):
    path = page.write(tmp_path / "a" / "b.html")
    assert path.read_text(encoding="utf-8") == page.to_html()


def test_single_section_has_no_table_of_contents(outline):
    html = Page(
        "T",
        "F",
        sections=[PageSection("Only", ReportTable([Column("x")], [TableRow("a", [TableCell(1.0)])]))],
    ).to_html()
    assert "nav" not in outline(html).tags


def test_labels_replace_headings_in_the_table_of_contents(outline):
    page = Page(
        "T", "F", sections=[PageSection("A long heading", (), label="Short"), PageSection("Another", ())]
    )
    html = page.to_html()
    assert '<a href="#s1">Short</a>' in html
    assert "A long heading</h2>" in html
    assert '<a href="#s2">Another</a>' in html
