"""The tables of the page on base losses hold every stored run."""

import csv
import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_hooks"))
    yield importlib.import_module("base_losses")
    del sys.modules["base_losses"]


def rows_of(table):
    lines = table.splitlines()
    assert len({line.count("|") for line in lines}) == 1
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def stored(name):
    return json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))


def test_images(tables):
    runs = stored("base_losses.json")["runs"]
    rows = rows_of(tables.base_losses_table())
    assert sorted(row[-1] for row in rows) == sorted(
        f"{100 * run['epochs'][-1]['test']:.2f}" for run in runs.values()
    )
    summary = rows_of(tables.base_losses_summary())
    assert len({tuple(row[:2]) for row in summary}) == len(summary) <= len(rows)
    assert any(row[-1].startswith(("+", "-")) for row in summary)


def test_paired_classes(tables):
    report = stored("paired_classes.json")
    rows = rows_of(tables.paired_classes_table())
    cells = [cell for name, cell in report["cells"].items() if not name.endswith("/teacher")]
    assert len(rows) == len(cells) == 12
    for row, cell in zip(rows, cells, strict=True):
        always = [run for run in cell["runs"] if run["together"] == 1]
        assert row[-2:] == [
            f"{100 * sum(run[kind] for run in always) / 50:.0f}" for kind in ("swallowed", "swapped")
        ]
    starts = rows_of(tables.head_starts_table())
    assert len(starts) == 6
    # The more often two classes come together, the smaller a head start is enough.
    for row in starts:
        numbers = [float(cell) for cell in row[2:] if cell != "none"]
        assert numbers == sorted(numbers, reverse=True)


def test_balance_terms(tables):
    with (ROOT / "results" / "balance_term.csv").open(encoding="utf-8", newline="") as file:
        runs = [row for row in csv.DictReader(file) if row["data"] == "digits"]
    rows = rows_of(tables.balance_term_table("digits"))
    assert len(rows) == len({(run["law"], run["unequal"]) for run in runs}) == 10
    for row in rows:
        for term, cell in zip(("none", "constant", "fading"), row[2:], strict=True):
            kind = str(row[1] == "unequal")
            same = [run for run in runs if (run["law"], run["unequal"], run["term"]) == (row[0], kind, term)]
            assert len(same) == 5
            mean = sum(100 * float(run["accuracy"]) for run in same) / 5
            assert cell.startswith(f"{mean:.1f} (")
    by_class = rows_of(tables.balance_term_table("digits", "class_mean", unequal=True))
    assert [row[:2] for row in by_class] == [row[:2] for row in rows if row[1] == "unequal"]
    assert not {tuple(row) for row in by_class} & {tuple(row) for row in rows}
    assert [len(row) for row in rows_of(tables.balance_term_table("pairs"))] == [4, 4, 4]
    lost = sum(float(run["lost"]) > 0 for run in runs if run["term"] == "none")
    assert tables.lost_classes("none") == f"{lost} of 50"


def test_sets_of_a_teacher(tables):
    rows = rows_of(tables.teacher_classes_table())
    assert len(rows) == 12
    runs = stored("paired_classes.json")["cells"]["cc/balanced/teacher"]["runs"]
    lost = [run["swallowed"] for run in runs if run["rate"] == 0.4]
    (row,) = [row for row in rows if row[:2] == ["views and balance term", "CC"]]
    assert row[-1].startswith(f"{sum(lost) / len(lost):.1f} (")
    gaps = tables.teacher_gaps(0.2)
    assert float(gaps["low"]) <= float(gaps["mean"]) <= float(gaps["high"])
