"""results/scripts/crowds.py: simulated annotators, and what it measures about labels and people."""

import numpy as np
import pytest

from results.scripts.crowds import CROWDS, measure, measure_reliability, rows_of


@pytest.mark.parametrize("name", CROWDS)
def test_simulated_people_have_their_skills(name) -> None:
    crowd = CROWDS[name]
    truth = np.random.default_rng(0).integers(0, 10, 3000)
    X = np.eye(10)[truth] + np.random.default_rng(1).normal(size=(3000, 10))
    answers, chances = crowd.ask(truth, X, 0)
    np.testing.assert_allclose(chances.sum(2), 1)
    asked = answers >= 0
    low, high = crowd.per_row
    assert set(asked.sum(1)) == set(range(low, high + 1))
    share = (asked & (answers == truth[:, None])).sum(0) / asked.sum(0)
    skill = chances[np.arange(3000), :, truth].mean(0)
    assert (np.abs(share - skill) < 4 * np.sqrt(skill * (1 - skill) / asked.sum(0))).all()
    if crowd.spammer:
        assert skill[0] == pytest.approx(0.1)
        skill = skill[1:]
    if "hard" not in name:
        assert 0.59 < skill.min() < skill.max() < 0.96
    if crowd.items:  # a few people give most of the answers, and the same rows are hard for all
        assert asked.sum(0)[0] > 1.2 * asked.sum(0)[-1]
        assert (
            np.corrcoef(chances[np.arange(3000), -2, truth], chances[np.arange(3000), -1, truth])[0, 1] > 0.5
        )


def test_every_method_is_measured() -> None:
    X, truth = rows_of("digits", 120)
    answers, _ = CROWDS["confused, 3 a row"].ask(truth, X, 0)
    rows = list(measure(X, truth, answers, 0))
    correct = {row["method"]: row["correct"] for row in rows}
    assert correct["propall, model and answers"] >= correct["majority"] - 0.05
    assert len(correct) >= 5


def test_estimates_are_compared_with_the_simulation() -> None:
    X, truth = rows_of("digits", 300)
    answers, chances = CROWDS["uniform, 3 a row"].ask(truth, X, 0)
    rows = {row["estimate"]: row for row in measure_reliability(X, truth, answers, chances, 0)}
    best = rows["propall, model and answers"]
    assert best["skill_rmse"] <= best["skill_error"] < 0.08
    assert best["confusion_rmse"] < rows["Dawid-Skene, answers alone"]["confusion_rmse"]
    # Rows that are worth a question gain more than others, in expectation and in fact.
    alone = rows["propall, answers alone"]
    assert alone["best_gain_expected"] > alone["random_gain_expected"]
    assert alone["best_gain"] > alone["random_gain"]
