import csv
import io
import json
import re

import pytest

from propall.report.tables import Column, ReportTable, TableCell, TableRow, json_script

COPIED = "Copied from another paper."


@pytest.fixture
def table():
    columns = [
        Column("MNIST", best="highest"),
        Column("seconds", best="lowest", decimals=1),
        Column("note", kind="text"),
    ]
    rows = [
        TableRow(
            "ProPaLL",
            [TableCell(98.7312345, 0.0612), TableCell(12.3), TableCell(text="50 % & more")],
            "propall",
        ),
        TableRow("PRODEN", [TableCell(98.729, 0.2), TableCell(12.31), TableCell(text="a|b_c")], "proden"),
        TableRow("CC", [TableCell(98.1, 0.11, close=True), TableCell(30.0), TableCell(text="")], "cc"),
        TableRow(
            "VALEN",
            [TableCell(99.9, 0.1, hatched=COPIED), TableCell(text="not run"), TableCell(text="x")],
            "valen",
        ),
    ]
    return ReportTable(columns, rows, "Accuracy, 5 seeds")


def test_best_cells_include_ties_but_no_hatched_cells(table):
    best = [[table.is_best(r, c) for c in range(3)] for r in range(4)]
    # 98.73 twice as printed; 12.3 twice as printed; the hatched 99.90 is out of the running.
    assert best == [[True, True, False], [True, True, False], [False] * 3, [False] * 3]


def test_csv_keeps_six_decimals(table):
    rows = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert [row["method"] for row in rows] == ["ProPaLL", "PRODEN", "CC", "VALEN"]
    assert rows[0]["MNIST"] == "98.731234"
    assert float(rows[0]["MNIST std"]) == 0.0612
    assert rows[3]["seconds"] == "not run"
    assert rows[0]["note"] == "50 % & more"
    assert "seconds std" not in rows[0]


def test_markdown_round_trip(table):
    lines = [line for line in table.to_markdown().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert cells[0] == ["method", "MNIST", "seconds", "note"]
    assert cells[1] == ["---", "---:", "---:", "---"]
    assert cells[2] == ["ProPaLL", "**98.73 (0.06)**", "**12.3**", "50 % & more"]
    assert cells[3][3] == r"a\|b_c"
    assert cells[4][1] == "<u>98.10 (0.11)</u>"
    assert cells[5][1] == "99.90 (0.10)<sup>1</sup>"
    assert f"1. {COPIED}" in table.to_markdown()


def test_latex_round_trip(table):
    text = table.to_latex()
    rows = re.search(r"\\midrule\n(.*)\n\\bottomrule", text, re.S).group(1).split("\n")
    numbers = [re.findall(r"\d+\.\d+", row) for row in rows]
    assert numbers == [
        ["98.73", "0.06", "12.3"],
        ["98.73", "0.20", "12.3"],
        ["98.10", "0.11", "30.0"],
        ["99.90", "0.10"],
    ]
    assert r"\textbf{98.73} {\scriptsize (0.06)}" in rows[0]
    assert r"50 \% \& more \\" in rows[0]
    assert r"a|b\_c" in rows[1]
    assert r"\underline{98.10}" in rows[2]
    assert r"\textsuperscript{1}" in rows[3]
    assert text.count("{") == text.count("}")


def test_html_marks_best_close_and_hatched_cells(table):
    html = table.to_html("t")
    assert "<b>98.73</b> <small>(0.06)</small>" in html
    assert "<u>98.10</u>" in html
    assert f'class="n hatched" title="{COPIED}">99.90 <small>(0.10)</small><sup>1</sup>' in html
    assert f"<sup>1</sup> {COPIED}" in html
    assert '<td class="n empty">not run</td>' in html
    assert "50 % &amp; more" in html
    exports = json.loads(re.search(r'json">(.*?)</script>', html, re.S).group(1))
    assert exports == {"CSV": table.to_csv(), "Markdown": table.to_markdown(), "LaTeX": table.to_latex()}


def test_lowest_can_be_best():
    column = Column("change", kind="difference", best="lowest")
    table = ReportTable([column], [TableRow("a", [TableCell(-2.0)]), TableRow("b", [TableCell(2.0)])])
    assert [table.text(r, 0) for r in range(2)] == ["▲ −2.00", "▼ +2.00"]
    assert not table.is_best(0, 0)


def test_missing_cell_raises():
    with pytest.raises(ValueError, match="rows: 'a' has 1 cells for 2 columns"):
        ReportTable([Column("x"), Column("y")], [TableRow("a", [TableCell(1.0)])])


def test_html_is_escaped():
    html = ReportTable(
        [Column("<x>", kind="text")], [TableRow("<b>", [TableCell(text="</script><img>")])], "<i>"
    ).to_html("t")
    assert "<img>" not in html
    assert "<i>" not in html.replace('<i class="swatch"', "")
    assert "</script>" not in json_script("</script>")[:-9]


def test_best_in_rows():
    columns = [Column("a", best="highest"), Column("b", best="highest"), Column("c")]
    rows = [
        TableRow("1", [TableCell(3.0), TableCell(2.0), TableCell(9.0)]),
        TableRow("2", [TableCell(1.0), TableCell(2.0), TableCell(9.0)]),
    ]
    table = ReportTable(columns, rows, best_in="rows")
    assert [[table.is_best(r, c) for c in range(3)] for r in range(2)] == [
        [True, False, False],
        [False, True, False],
    ]


def test_remarks_are_footnotes_and_do_not_exclude_a_cell():
    cells = [
        TableCell(3.0, remark="2 of 5 runs"),
        TableCell(2.0, hatched="another kind", remark="2 of 5 runs"),
    ]
    table = ReportTable([Column("a", best="highest"), Column("b")], [TableRow("CC", cells)])
    assert table.is_best(0, 0)
    assert table.footnotes == ["2 of 5 runs", "another kind"]
    html = table.to_html("t")
    assert "<sup>1</sup> 2 of 5 runs" in html
    assert "<sup>2,1</sup>" in html
    assert html.count('class="n hatched"') == 1


def searchable(n: int, first: int = 2) -> ReportTable:
    rows = [TableRow.of(str(i), f"label {i}", i / n, more="x" * (100 * i)) for i in range(n)]
    columns = [Column("label", kind="text"), Column("probability")]
    return ReportTable(columns, rows, "Rows", "row", formats=("CSV",), first=first, more_title="contents")


def test_a_searchable_table_shows_the_first_rows_and_holds_all_of_them(outline) -> None:
    html = searchable(5).to_html("t")
    outline(html)
    assert html.count('<th scope="row">') == 2
    records = json.loads(re.search(r"<script[^>]*>(.*?)</script>", html).group(1))
    assert [record[0] for record in records] == list("01234")
    assert records[3] == ["3", "label 3", "0.60", "x" * 300]
    assert "Search all 5 rows" in html


def test_only_long_texts_are_folded() -> None:
    html = searchable(3, first=3).to_html("t")
    assert f'<div class="fold">{"x" * 100}</div>' in html
    assert f'<details class="fold"><summary>{"x" * 200}</summary></details>' in html
    assert html.count('class="more"') == 2, "a row without a text has one line"


def test_texts_below_rows_are_in_the_csv_and_need_a_searchable_table() -> None:
    rows = list(csv.DictReader(io.StringIO(searchable(3).to_csv())))
    assert [len(row["contents"]) for row in rows] == [0, 100, 200]
    with pytest.raises(ValueError, match="set `first`"):
        ReportTable([], [TableRow("a", [], more="text")])
