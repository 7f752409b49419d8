from dataclasses import replace
from statistics import fmean, stdev

import numpy as np
import pytest

from propall.paper.pages.demo import demo_page
from propall.report.numbers import format_mean


def test_demo_page_shows_the_results(demo_results, tmp_path, outline):
    path = demo_page(demo_results).write(tmp_path / "demo.html")
    html = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 2_000_000
    text = " ".join(" ".join(outline(html).text).split())
    everything = {
        **demo_results.accuracy,
        "random candidate": demo_results.baseline,
        "clean labels": demo_results.ceiling,
    }
    for name, shares in everything.items():
        values = [100 * share for share in shares]
        assert format_mean(fmean(values), stdev(values)) in text.replace("\N{NO-BREAK SPACE}", " "), name
    for curve in demo_results.curves.values():
        assert f"{100 * curve[4].mean():.2f}" in text
    for name, value in demo_results.provenance.items():
        assert f"{name} {value}" in text
    assert "1 min 15 s" in text
    assert "19 of these 20 hidden labels are recovered" in text
    assert html.count("data:image/png;base64,") == 20


def test_headings_follow_from_the_numbers(demo_results):
    headings = [section.heading for section in demo_page(demo_results).sections]
    gap = 100 * (fmean(demo_results.ceiling) - fmean(demo_results.accuracy["ProPaLL"]))
    assert headings[0] == f"ProPaLL comes within {gap:.2f} points of clean labels"
    curve = 100 * demo_results.curves["ProPaLL"].mean(1)
    assert f"after {1 + int(np.argmax(curve >= curve[-1] - 1))} epochs" in headings[1]


def test_headings_do_not_favor_propall(demo_results):
    better = {**demo_results.accuracy, "CC": [0.99, 0.991, 0.992]}
    heading = demo_page(replace(demo_results, accuracy=better)).sections[0].heading
    assert heading == "CC reaches the accuracy of clean labels"
    # One std of the best covers both: named together.
    close = {"ProPaLL": [0.95, 0.97, 0.96], "CC": [0.955, 0.956, 0.957], "RC": [0.5, 0.5, 0.5]}
    curves = dict.fromkeys(close, demo_results.curves["CC"])
    heading = demo_page(replace(demo_results, accuracy=close, curves=curves)).sections[0].heading
    assert heading.startswith("ProPaLL and CC come within")


def test_one_seed_has_no_std(demo_results):
    one = replace(
        demo_results,
        accuracy={name: values[:1] for name, values in demo_results.accuracy.items()},
        curves={name: curve[:, :1] for name, curve in demo_results.curves.items()},
        baseline=[0.4],
        ceiling=[0.97],
    )
    html = demo_page(one).to_html()
    assert "one run" in html
    assert "1 seed." in html
    assert 'class="band"' not in html


def test_percentages_raise(demo_results):
    with pytest.raises(ValueError, match=r"accuracy: some values are outside \[0, 1\]"):
        replace(demo_results, accuracy={"ProPaLL": [96.1]})
    with pytest.raises(ValueError, match="shown_method: 'X' has no accuracies; expected one of ProPaLL"):
        replace(demo_results, shown_method="X")
