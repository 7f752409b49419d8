"""The examples run offline and show what they promise."""

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def shown(capsys, monkeypatch, tmp_path):
    """Runs an example as a program and returns what it prints."""
    monkeypatch.setenv("PROPALL_DATA", str(tmp_path))

    def run(name: str, *words: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *words])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


def number(pattern: str, text: str) -> float:
    found = re.search(pattern + r"\D*([\d.]+)", text)
    assert found, f"{pattern!r} is not in {text!r}"
    return float(found.group(1).rstrip("."))


def test_digits_with_several_labels(shown) -> None:
    out = shown("digits_with_several_labels")
    assert number("test accuracy from ambiguous labels:", out) > 0.85
    assert number("labels found among the candidates:", out) > 0.9


def test_wine_by_exclusion(shown) -> None:
    assert number("test accuracy without a single positive label:", shown("wine_by_exclusion")) > 0.9


def test_labels_of_a_hierarchy(shown) -> None:
    out = shown("labels_of_a_hierarchy")
    assert number("from all labels:", out) > number("precise ones alone:", out) + 0.03


def test_three_annotators(shown) -> None:
    out = shown("three_annotators")
    assert number("resolved labels are right in", out) > number("the majority is right in", out) + 0.05
    assert number("with that, labels are right in", out) > number("resolved labels are right in", out)


def test_segmentation_with_candidate_masks(shown) -> None:
    out = shown("segmentation_with_candidate_masks")
    assert number("pixel accuracy", out) > number("all ground", out) + 0.1
