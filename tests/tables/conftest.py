"""Birds as people write them down: mixed columns, three forms of labels and some dirt."""

import csv
from pathlib import Path

import numpy as np
import pytest

from propall.tables.fitting import FitOptions, Fitted, fit_table
from propall.tables.labelling import LabelSource, open_table

SPECIES = ["herring gull", "mew gull", "common tern", "arctic tern", "great skua"]
WING = [440, 360, 270, 275, 415]
BILL = [55, 36, 37, 33, 50]
WORDS = [
    "pink legs yellow bill with red spot",
    "yellow green legs small round head",
    "red bill with black tip",
    "short red legs blood red bill long tail",
    "brown heavy bird chasing others",
]
HABITAT = ["harbour", "lake", "coast", "coast", "open sea"]
#: Which species is mistaken for which.
ALIKE = {0: 1, 1: 0, 2: 3, 3: 2, 4: 0}


def birds(n: int, seed: int = 0) -> tuple[list[str], list[list[str]], list[str]]:
    """Heading, rows and true species; some labels are pairs, some negations, some are missing."""
    draw = np.random.default_rng(seed)
    heading = ["no", "wing_mm", "bill_mm", "weight_g", "habitat", "seen", "notes", "species"]
    rows, truth = [], []
    for i in range(n):
        k = int(draw.integers(5))
        truth.append(SPECIES[k])
        words = WORDS[k if draw.random() < 0.7 else ALIKE[k]].split()
        notes = " ".join(draw.permutation(words)[: draw.integers(3, len(words) + 1)])
        form = draw.random()
        label = SPECIES[k]
        if form < 0.3:
            label = "|".join(sorted([label, SPECIES[ALIKE[k]]]))
        elif form < 0.4:
            wrong = draw.choice([j for j in range(5) if j != k], size=draw.integers(1, 3), replace=False)
            label = "|".join(f"!{SPECIES[j]}" for j in sorted(wrong))
        elif form < 0.45:
            label = ""
        rows.append(
            [
                str(i + 1),
                f"{draw.normal(WING[k], 30):.0f}",
                f"{draw.normal(BILL[k], 5):.1f}",
                f"{draw.normal(2.2 * WING[k], 120):.0f}"
                if draw.random() > 0.05
                else draw.choice(["", "NaN"]),
                HABITAT[k] if draw.random() < 0.7 else str(draw.choice(HABITAT)),
                f"20{draw.integers(15, 25)}-0{draw.integers(3, 9)}-{draw.integers(10, 28)}",
                notes,
                label,
            ]
        )
    return heading, rows, truth


def soil(heading: list[str], rows: list[list[str]]) -> None:
    """A duplicate heading, slips of the pen, unreadable numbers, a broken line, a label seen once, a mix."""
    heading[3] = "wing_mm"  # the weight under another column's name
    rows[4][-1] = "Herring Gull"
    rows[17][-1] = "herrng gull"
    rows[23][-1] = "comon tern|arctic tern"
    rows[30][1] = "abt. 400"
    rows[31][2] = "41,5"
    rows[40][-1] = "great auk"
    rows[41][-1] = '["mew gull", "herring gull"]'
    rows[42][-1] = "mew gull|!great skua"
    rows[43][-1] = "mew gull|"
    rows[44].append("one cell too many")
    rows[45] = rows[45][:-1]


def write_birds(path: Path, n: int, *, seed: int = 0, dirty: bool = False, truth: bool = False) -> list[str]:
    """Write a file of birds; returns the true species."""
    heading, rows, species = birds(n, seed)
    if truth:
        heading.append("truth")
        rows = [[*row, own] for row, own in zip(rows, species, strict=True)]
    if dirty:
        soil(heading, rows)
    with path.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows([heading, *rows])
    return species


@pytest.fixture
def dirty_birds(tmp_path) -> Path:
    write_birds(tmp_path / "birds.csv", 300, dirty=True)
    return tmp_path / "birds.csv"


QUICK = FitOptions(nets=("linear",), epochs=15, members=2, folds=3)


@pytest.fixture(scope="session")
def birds_file(tmp_path_factory) -> Path:
    """240 clean birds with their true species in a column of their own."""
    path = tmp_path_factory.mktemp("birds") / "birds.csv"
    write_birds(path, 240, truth=True)
    return path


@pytest.fixture(scope="session")
def fitted(birds_file) -> Fitted:
    """A model of them, fitted once."""
    return fit_table(open_table(birds_file, LabelSource(label="species")), QUICK, without=["truth"])
