"""results/scripts/crowds.py: simulated annotators, and the methods that it measures."""

import numpy as np

from results.scripts.crowds import CROWDS, images, measure


def test_simulated_people_have_their_skills() -> None:
    truth = np.random.default_rng(0).integers(0, 10, 3000)
    X = np.eye(10)[truth] + np.random.default_rng(1).normal(size=(3000, 10))
    for name, crowd in CROWDS.items():
        answers = crowd.ask(truth, X, 0)
        asked = answers >= 0
        low, high = crowd.per_row
        assert set(asked.sum(1)) == set(range(low, high + 1)), name
        share = (asked & (answers == truth[:, None])).sum(0) / asked.sum(0)
        if crowd.spammer:
            assert 0.05 < share[0] < 0.15
            share = share[1:]
        assert 0.5 < share.min() < share.max() < 1, name


def test_every_method_is_measured() -> None:
    X, truth = images("digits", 120)
    answers = CROWDS["confused, 3 a row"].ask(truth, X, 0)
    rows = list(measure(X, truth, answers, 0))
    correct = {row["method"]: row["correct"] for row in rows}
    assert correct["propall, model and answers"] >= correct["majority"] - 0.05
    assert len(correct) >= 5
