"""The examples run offline, show the advertised results and draw their pictures.

`make docs` also runs them and compares what they print with the gallery, so some are slow tests here.
"""

import re
import runpy
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def output_of(capsys, monkeypatch, tmp_path):
    """Run an example as a program in an empty folder and return its output."""
    monkeypatch.setenv("PROPALL_DATA", str(tmp_path))
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)

    def run(name: str, *words: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *words])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        out = capsys.readouterr().out
        if "picture:" in out:
            picture = (tmp_path / f"{name}.svg").read_bytes()
            assert ET.fromstring(picture).tag.endswith("svg")
            assert len(picture) < 60_000
        return out

    return run


def number(pattern: str, text: str) -> float:
    match = re.search(pattern + r"\D*([\d.]+)", text)
    assert match, f"{pattern!r} is not in {text!r}"
    return float(match.group(1).rstrip("."))


def test_digits_with_several_labels(output_of) -> None:
    out = output_of("digits_with_several_labels")
    assert number("test accuracy from ambiguous labels:", out) > 0.85
    assert number("correctly resolved training labels:", out) > 0.9


def test_wine_by_exclusion(output_of) -> None:
    assert number("test accuracy without any positive label:", output_of("wine_by_exclusion")) > 0.9


def test_hierarchical_labels(output_of) -> None:
    out = output_of("hierarchical_labels")
    assert number("with all labels:", out) > number("precise ones only:", out) + 0.03


def test_three_annotators(output_of) -> None:
    out = output_of("three_annotators")
    assert number("of resolved labels:", out) > number("of the majority vote:", out) + 0.05
    assert number("of combined labels:", out) > number("of resolved labels:", out)


def test_segmentation_with_candidate_masks(output_of) -> None:
    out = output_of("segmentation_with_candidate_masks")
    assert number("pixel accuracy", out) > number("all ground", out) + 0.1


def test_views_in_a_custom_loop(output_of) -> None:
    out = output_of("views_in_a_custom_loop")
    assert number("with views:", out) > number("without views:", out) + 0.05


def test_lists_from_a_language_model(output_of) -> None:
    out = output_of("lists_from_a_language_model")
    assert "'Customer Happiness'" in out
    assert number("lists with the right topic:", out) < 0.92
    assert number("accuracy of the resolved topics:", out) > number("a random topic of each list:", out) + 0.2


@pytest.mark.slow
def test_species_by_genus(output_of) -> None:
    out = output_of("species_by_genus")
    for method in ("propall", "cc"):
        few, every = re.findall(rf"{method}, .*: ([\d.]+)", out)
        assert float(every) > float(few) + 0.03


@pytest.mark.slow
def test_defects_by_exclusion(output_of) -> None:
    out = output_of("defects_by_exclusion")
    assert number("chosen at random:", out) < 0.4
    assert number("without any positive label:", out) > 0.85


@pytest.mark.slow
def test_topics_listed_by_a_model(output_of) -> None:
    out = output_of("topics_listed_by_a_model")
    assert number("resolved topics:", out) > number("a random topic of each list:", out) + 0.2


@pytest.mark.slow
def test_gradient_boosting(output_of) -> None:
    pytest.importorskip("lightgbm")
    rows = re.findall(r"random ([\d.]+), candidate sets ([\d.]+)", output_of("gradient_boosting"))
    assert len(rows) == 3
    assert all(float(sets) > float(guess) for guess, sets in rows)


def test_tickets_are_those_of_the_script(output_of, tmp_path) -> None:
    output_of("make_tickets")
    assert (tmp_path / "tickets.csv").read_bytes() == (EXAMPLES / "tickets.csv").read_bytes()
