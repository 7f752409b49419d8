"""LightGBM on candidate sets: a table with categories and missing values, from few to many candidates.

The table is generated: the state of a pump from its model, temperature, pressure, vibration and hours.
"""

import warnings

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from pictures import ACCENT, MUTED, SERIES, picture

from propall import CandidateClassifier, CandidateLabels

STATES = np.array(["fine", "worn bearing", "leak", "blocked filter", "imbalance"])


def pumps(n: int, draw: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Sensor values and states of n pumps. The normal pressure depends on the model."""
    model = draw.choice(["P1", "P2", "P3", "P4"], n)
    normal = pd.Series(model).map({"P1": 3.0, "P2": 6.0, "P3": 4.5, "P4": 9.0}).to_numpy()
    state = draw.integers(len(STATES), size=n)
    hours = draw.gamma(2, 2000, n) + 4000 * (state == 1)
    pressure = normal * draw.normal(1, 0.06, n) * np.select([state == 2, state == 3], [0.75, 1.25], 1)
    vibration = draw.gamma(4, 0.5, n) * np.select([state == 1, state == 4], [1.8, 2.2], 1)
    temperature = draw.normal(50, 5, n) + 12 * (state == 1) + 5 * (state == 3)
    table = pd.DataFrame(
        {
            "model": pd.Categorical(model),
            "hours": hours,
            "pressure": pressure,
            "vibration": vibration,
            "temperature": temperature,
        }
    )
    table.loc[draw.random(n) < 0.2, "temperature"] = np.nan
    return table, STATES[state]


def main() -> None:
    warnings.simplefilter("ignore", UserWarning)
    draw = np.random.default_rng(0)
    X, truth = pumps(800, draw)
    X_test, truth_test = pumps(2000, draw)
    booster = LGBMClassifier(
        n_estimators=40, learning_rate=0.1, num_leaves=7, n_jobs=1, verbose=-1, random_state=0
    )
    ceiling = booster.fit(X, truth).score(X_test, truth_test)
    print(f"true labels: {ceiling:.3f}")
    curves: dict[str, list[float]] = {"one candidate at random": [], "candidate sets": []}
    shares = (0.2, 0.4, 0.6)
    for share in shares:
        # Every wrong state is a candidate with this probability.
        mask = draw.random((len(X), len(STATES))) < share
        mask |= truth[:, None] == STATES
        labels = CandidateLabels.from_matrix(mask, classes=STATES)
        guess = np.array([draw.choice(names) for names in labels.sets()])
        curves["one candidate at random"].append(booster.fit(X, guess).score(X_test, truth_test))
        clf = CandidateClassifier(booster, max_rounds=3, random_state=0).fit(X, labels)
        curves["candidate sets"].append(clf.score(X_test, truth_test))
        scores = ", ".join(f"{name} {values[-1]:.3f}" for name, values in curves.items())
        print(f"{mask.sum(1).mean():.1f} candidates: {scores}")
    draw_curves(shares, curves, ceiling)


def draw_curves(shares, curves, ceiling) -> None:
    """Test accuracy against the share of wrong states that are candidates."""
    with picture("gradient_boosting", (5.2, 3.2)) as figure:
        axes = figure.subplots()
        for (name, values), color, marker in zip(curves.items(), (SERIES[6], ACCENT), "so", strict=True):
            axes.plot(shares, values, marker=marker, color=color)
            place = {"textcoords": "offset points", "ha": "right"}
            axes.annotate(name, (shares[-1], values[-1]), (0, 14), color=color, **place)
        axes.axhline(ceiling, color=MUTED, dashes=(4, 3), lw=1)
        axes.annotate("true labels", (shares[-1], ceiling), (0, 4), color=MUTED, **place)
        axes.set_xticks(shares, [f"{share:.0%}" for share in shares])
        axes.set_xlabel("wrong states that are candidates")
        axes.set_title("test accuracy", loc="left", fontsize=10, color=MUTED)
        axes.grid(axis="y")


if __name__ == "__main__":
    main()
