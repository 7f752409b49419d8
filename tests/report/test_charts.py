"""Properties of all figures, and of each kind."""

import io
import json
import re
import subprocess
import sys
from itertools import pairwise

import matplotlib.image
import numpy as np
import pytest

from propall.report.charts.bars import BarChart, DotChart
from propall.report.charts.examples import ExampleSheet, png, to_uint8
from propall.report.charts.figure import NARROW, WIDE, Reference
from propall.report.charts.heat import DARKEST_UNDER_TEXT, FilmStrip, Grid, HeatMap
from propall.report.charts.lines import Curve, Line, LineChart, LogLineChart
from propall.report.charts.ranks import CDDiagram
from propall.report.charts.reliability import ReliabilityBin, ReliabilityChart
from propall.report.charts.svg import element, spread_apart, text
from propall.report.colors import DARK, LIGHT, blend, contrast, method_style, series_color

CLASSES = [str(i) for i in range(4)]
RAMP = [[0.1 * r + 0.02 * c for c in range(4)] for r in range(4)]
LINES = [
    Line.over_seeds("CC", [[60.0, 64.0], [80.0, 84.0], [90.0, 91.0]]),
    Line.over_seeds("ProPaLL", [[50.0, 52.0], [85.0, 86.0], [94.0, 96.5]]),
]
CEILING, CHANCE = Reference("clean labels", 97.25, "ceiling"), Reference("chance", 10.0, "chance")
FIGURES = {
    "lines": LineChart("Lines", [1, 2, 3], LINES, references=[CEILING, CHANCE]),
    "many lines": LineChart(
        "Legend", [1, 2, 3], [Line(name, [1.0, 2.0, 3.5]) for name in "abcdefg"], references=[CHANCE]
    ),
    "one epoch": LineChart("One", [1], [Line("CC", [50.0])]),
    "dots": DotChart("Dots", [("ProPaLL", [94.0, 96.5]), ("CC", [90.12])], references=[CEILING]),
    "bars": BarChart("Bars", [("1", 12.0), ("2", 30.0), ("3", 7.0)], "candidates", "instances"),
    "heat": HeatMap(
        "Heat", Grid(CLASSES, CLASSES, RAMP), "class", "epoch", "recall", marks=[(1, 2, "learned")]
    ),
    "confusion": HeatMap(
        "Confusion", Grid(CLASSES, CLASSES, RAMP), "true", "predicted", "share", square=True
    ),
    "film": FilmStrip("Film", [(f"epoch {e}", Grid(CLASSES, CLASSES, RAMP)) for e in (1, 5)]),
    "traces": LogLineChart(
        "Time",
        [
            Curve("ProPaLL", [(0.1, 50.0), (1.0, 90.0), (10.0, 95.0)]),
            Curve("VALEN", [(0.5, 40.0), (200.0, 94.0)]),
        ],
    ),
    "reliability": ReliabilityChart(
        "Reliability",
        [ReliabilityBin("0.5–0.9", 12, 71.3, 66.7), ReliabilityBin("0.9–1", 300, 97.1, 99.0)],
        "is a candidate (%)",
        [Reference("random guessing", 35.0, "chance")],
    ),
    "ranks": CDDiagram(
        "Ranks", {"CC": 2.625, "ProPaLL": 1.25, "RC": 2.125}, 1.17, [["ProPaLL", "RC"], ["RC", "CC"]]
    ),
    "sheet": ExampleSheet(
        "Sheet",
        np.arange(32.0).reshape(2, 4, 4),
        [["0", "1"], ["2", "3"]],
        ["1", "2"],
        ["1", "3"],
        inverted=True,
    ),
}
ALL = pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
DRAWN = pytest.mark.parametrize("name", [name for name in FIGURES if name != "sheet"])


@ALL
def test_every_figure_has_a_description_and_data(figure):
    html = figure.to_html("f")
    assert f"<figcaption>{figure.caption}</figcaption>" in html
    assert len(figure.description()) > 30
    assert 'id="f-text"' in html
    assert "<details><summary>Data</summary>" in html
    assert figure.table().rows
    assert "nan" not in html
    assert "http" not in html


@DRAWN
def test_every_mark_has_a_tooltip(name):
    html = FIGURES[name].to_html("f")
    tips = json.loads(
        re.search(r'figcaption>\n<script type="application/json">(.*?)</script>', html).group(1)
    )
    for drawing in re.findall(r"<svg.*?</svg>", html, re.S):
        assert {int(t) for t in re.findall(r'data-t="(\d+)"', drawing)} == set(range(len(tips)))
    assert len(re.findall(r"<svg", html)) == 2


@DRAWN
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_drawings_stay_within_their_width(name, width):
    _, elements = FIGURES[name].draw(width)
    # Where things start; how far text reaches is checked in a browser.
    for x in re.findall(r' (?:x|x1|x2|cx)="(-?[\d.]+)"', "".join(elements)):
        assert -6 <= float(x) <= width + 6


@ALL
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_saved_figures_match_their_suffix(figure, ending, tmp_path):
    path = figure.save(tmp_path / f"figure.{ending}")
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert path.read_bytes().startswith(start)
    if ending != "png":
        assert figure.save(tmp_path / f"again.{ending}").read_bytes() == path.read_bytes()


def test_saved_lines_use_method_colors(tmp_path):
    text = FIGURES["lines"].save(tmp_path / "lines.svg").read_text()
    assert f"stroke: {LIGHT.accent}" in text
    assert f"stroke: {series_color(method_style('CC').color)}" in text


def test_lines_carry_exact_values():
    figure = FIGURES["lines"]
    assert figure.tooltips()[2] == "epoch 3\nProPaLL 95.25 (1.77)\nCC 90.50 (0.71)"
    assert "ProPaLL from 51.00 to 95.25 (1.77)" in figure.description()
    assert figure.table().text(2, 1) == "95.25 (1.77)"


def test_propall_is_drawn_last_and_named_at_its_end():
    drawing = "".join(FIGURES["lines"].draw(WIDE).elements)
    assert drawing.index('data-series="cc"') < drawing.index('data-series="propall"')
    assert re.search(r'data-pick="propall"[^>]*>ProPaLL</text>', drawing)


def test_axis_title_states_where_the_axis_starts():
    assert "test accuracy (%), axis starts at" in "".join(FIGURES["lines"].draw(WIDE).elements)
    from_zero = LineChart("Zero", [1, 2], [Line("CC", [0.0, 3.0])])
    assert "axis starts" not in "".join(from_zero.draw(WIDE).elements)


def test_near_references_are_lines_and_far_ones_text():
    drawing = "".join(FIGURES["lines"].draw(WIDE).elements)
    assert drawing.count('class="reference-line"') == 1
    assert 'stroke-dasharray:7 4"' in drawing
    assert "clean labels 97.25" in drawing
    assert "↓ chance 10.00" in drawing


def test_more_than_six_lines_get_a_legend():
    drawing = "".join(FIGURES["many lines"].draw(WIDE).elements)
    legend_rows = {float(y) for y in re.findall(r'<text x="[\d.]+" y="([\d.]+)" class="name"', drawing)}
    assert legend_rows == {12.0}


def test_saved_legend_does_not_cover_the_plot():
    canvas = pytest.importorskip("matplotlib.figure").Figure(figsize=(7, 4), layout="constrained")
    FIGURES["many lines"].plot(canvas)
    canvas.draw_without_rendering()
    (legend,), (axes,) = canvas.legends, canvas.axes
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())


def test_long_line_charts_have_a_limited_number_of_tooltips():
    epochs = 1000
    chart = LineChart("Long", range(1, epochs + 1), [Line("CC", [float(e) for e in range(epochs)])])
    hits = re.findall(r'data-t="(\d+)"', "".join(chart.draw(WIDE).elements))
    assert len(hits) <= 202
    assert hits[-1] == "999"
    assert len(chart.tooltips()) == epochs


def test_wide_heat_maps_skip_columns():
    grid = Grid(["a"], [str(e) for e in range(500)], [[e / 500 for e in range(500)]])
    drawing = "".join(HeatMap("Long", grid, "class", "epoch", "recall").draw(WIDE).elements)
    assert 100 < drawing.count("data-t") <= WIDE // 5


def test_mismatched_lengths_raise():
    with pytest.raises(ValueError, match="lines: 'CC' has 2 values and 0 stds for 3"):
        LineChart("", [1, 2, 3], [Line("CC", [1.0, 2.0])])
    with pytest.raises(ValueError, match="values: 1 rows of"):
        Grid(["a", "b"], ["c"], [[1.0]])
    with pytest.raises(ValueError, match="images: 1 images, 2 candidate sets"):
        ExampleSheet("", np.zeros((1, 2, 2)), [["0"], ["1"]], ["0"], ["0"])


def test_ranks_are_ordered_and_bars_span_their_groups():
    drawing = "".join(FIGURES["ranks"].draw(WIDE).elements)
    assert "CD 1.17" in drawing
    assert drawing.count('class="group"') == 2
    left, right = (
        float(x) for x in re.search(r'd="M([\d.]+) \d+L([\d.]+) \d+" class="group"', drawing).groups()
    )
    places = [float(x) for x in re.findall(r'class="leader".*?<(?:circle cx=|path d=.M)"?([\d.]+)', drawing)]
    assert left < places[0] < right
    assert "ProPaLL 1.25, RC 2.12, CC 2.62" in FIGURES["ranks"].description()


def test_sheet_marks_recovered_and_true():
    html = FIGURES["sheet"].to_html("f")
    assert '<span class="chip recovered">1 ✓</span>' in html
    assert '<span class="chip recovered">2</span>' in html
    assert '<span class="chip">3 ✓</span>' in html
    assert html.count('<li class="missed">') == 1
    assert "in 1 of 2" in FIGURES["sheet"].description()
    assert 'alt="candidates 2, 3; recovered 2; true 3"' in html


def test_true_label_outside_the_candidates_is_marked():
    sheet = ExampleSheet("", np.zeros((1, 2, 2)), [["0"]], ["0"], ["1"])
    assert '<span class="chip outside">1 ✓</span>' in sheet.to_html("f")
    unknown = ExampleSheet("", np.zeros((1, 2, 2)), [["0"]], ["0"], [None])
    assert "true" not in re.search(r'alt="(.*?)"', unknown.to_html("f")).group(1)


@pytest.mark.parametrize("shape", [(3, 5), (4, 2, 3)])
def test_png_holds_the_image(shape):
    image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    decoded = matplotlib.image.imread(io.BytesIO(png(image)), format="png")
    assert np.array_equal(np.round(decoded * 255).astype(np.uint8), image)


def test_png_rejects_other_types_and_shapes():
    with pytest.raises(ValueError, match=r"image: got uint8 of shape \(2, 2, 2\)"):
        png(np.zeros((2, 2, 2), dtype=np.uint8))


def test_images_are_rescaled_to_uint8():
    assert to_uint8(np.array([[-1.0, 0.0, 1.0]])).tolist() == [[0, 128, 255]]
    assert to_uint8(np.full((1, 2), 7.0)).tolist() == [[0, 0]]
    assert to_uint8(np.array([[3, 200]], dtype=np.uint8)).tolist() == [[3, 200]]


def test_labels_are_spread_apart_in_order():
    placed = spread_apart([10.0, 11.0, 50.0, 10.5], 15, 0, 60)
    assert placed == [10.0, 40.0, 55.0, 25.0]
    assert spread_apart([5.0], 15, 0, 60) == [5.0]


def test_svg_text_is_escaped():
    assert text("<a & b>", 1, 2) == '<text x="1" y="2">&lt;a &amp; b&gt;</text>'
    assert element("path", d='"', class_="x", fill=None) == '<path d="&quot;" class="x"/>'


def test_pages_need_neither_matplotlib_nor_torch():
    code = "import sys, propall.report.page, propall.report.exhibits\n"
    code += "from propall.report.charts import bars, examples, heat, lines, ranks\n"
    code += "print(sorted({'matplotlib', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_numbers_printed_in_cells_are_legible(theme):
    assert contrast(theme.text, blend(theme.page, theme.accent, DARKEST_UNDER_TEXT)) >= 4.5


def test_cells_touch():
    grid = Grid(["a"], [str(i) for i in range(97)], [[1.0] * 97])
    drawing = "".join(HeatMap("Cells", grid, "class", "epoch", "recall").draw(WIDE).elements)
    cells = [
        (float(x), float(w)) for x, w in re.findall(r'data-t="\d+" x="([\d.]+)".*?width="([\d.]+)"', drawing)
    ]
    assert len(cells) == 97
    assert all(x + w == pytest.approx(after) for (x, w), (after, _) in pairwise(cells))


def test_log_lines_have_their_own_lengths():
    chart = FIGURES["traces"]
    assert "ProPaLL 95.00 after 10; VALEN 94.00 after 200" in chart.description()
    assert chart.tooltips()[0] == "ProPaLL\n50.00 after 0.1 s"
    drawn = "".join(chart.draw(WIDE).elements)
    # Decades are equally far apart.
    marks = [float(x) for x, text in re.findall(r'<text x="([\d.]+)"[^>]*>([\d.]+)</text>', drawn)[-4:]]
    steps = [b - a for a, b in pairwise(sorted(marks))]
    assert max(steps) - min(steps) < 0.5
    assert drawn.index('data-series="valen"') < drawn.index('data-series="propall"')
    with pytest.raises(ValueError, match="x above 0"):
        LogLineChart("Time", [Curve("CC", [(0.0, 1.0)])])


def test_long_log_lines_have_a_limited_number_of_tooltips():
    points = [(i, float(i)) for i in range(1, 400)]
    chart = LogLineChart("Time", [Curve("CC", points)])
    assert len(chart.tooltips()) <= 41
    assert chart.tooltips()[-1].startswith("CC\n399.00 after 399")
    assert len(chart.table().rows) == 399


def test_points_below_the_axis_are_clipped():
    slow = [(1, 0.0), *((i, 90.0 + i / 100) for i in range(2, 60))]
    chart = LogLineChart("Time", [Curve("CC", slow)])
    assert chart.tooltips()[0].startswith("CC\n90.02")
    drawn = "".join(chart.draw(WIDE).elements)
    (start,) = re.findall(r'<path d="M[\d.]+ ([\d.]+)L[^"]*" class="line"', drawn)
    (edge,) = re.findall(r'<rect x="0" y="0" width="720" height="([\d.]+)"', drawn)
    assert float(start) > float(edge)
    (name,) = re.findall(r'<clipPath id="([^"]+)"', drawn)
    assert f'clip-path="url(#{name})"' in drawn
    assert name not in "".join(chart.draw(NARROW).elements)


def test_blank_cells_of_a_film_strip_are_not_drawn():
    blank = Grid(["a", "b"], ["a", "b"], [[1.0, 0.0], [0.001, 0.5]])
    film = FilmStrip("Film", [("epoch 1", blank), ("epoch 2", blank)])
    assert len(film.tooltips()) == 4
    assert film.tooltips()[3] == "epoch 2\ntrue class b, predicted class b\nshare of the class 0.50"
    assert "".join(film.draw(WIDE).elements).count("data-t") == 4


def test_integer_axes_have_integer_ticks():
    chart = LineChart("Few", [1, 2, 3, 4], [Line("CC", [1.0, 2.0, 3.0, 4.0])])
    assert ">1.5<" not in "".join(chart.draw(WIDE).elements)
