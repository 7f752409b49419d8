"""Resolving candidate sets."""

import numpy as np
import pytest

from propall import PartialLabelClassifier
from propall.estimators import Resolution
from tests.fixtures.candidates import NAMES, blurred_clouds, separate_clouds


def test_invalid_candidates_are_refused():
    X, S, _ = separate_clouds(30)
    clf = PartialLabelClassifier(epochs=2, random_state=0).fit(X, ["|".join(NAMES[row]) for row in S])
    with pytest.raises(ValueError, match=r"candidates: 'bea' is not a class of the model .*mean 'bee'"):
        clf.resolve(X[:2], ["ape|bea", "cat"])
    with pytest.raises(ValueError, match="candidates: 1 sets for 2 rows"):
        clf.resolve(X[:2], ["ape"])
    with pytest.raises(TypeError, match="candidates: got None; expected one entry per row"):
        clf.resolve(X[:2], None)
    for blank in ("", None, float("nan")):
        resolution = clf.resolve(X[:3], [blank, "cat", "ape|bee"])
        assert resolution.candidates.sum(1).tolist() == [3, 1, 2]
    assert repr(resolution).startswith(
        "Resolution(3 rows, 2 ambiguous, 3 classes ('ape', 'bee', 'cat'), mean"
    )


def test_resolve_selects_a_candidate_of_every_row():
    X, S, truth = blurred_clouds()
    clf = PartialLabelClassifier(epochs=50, learning_rate=0.1, random_state=0)
    clf.fit(X[:200], ["|".join(NAMES[row]) for row in S[:200]])
    resolution = clf.resolve(X, ["|".join(NAMES[row]) for row in S])
    assert len(resolution) == 300
    assert all(label in NAMES[row] for label, row in zip(resolution.label, S, strict=True))
    assert (resolution.label == NAMES[truth]).mean() > clf.score(X, NAMES[truth])
    probabilities = clf.predict_proba(X)
    inside = np.where(S, probabilities, 0)
    np.testing.assert_allclose(resolution.probability, inside.max(1) / inside.sum(1), rtol=1e-6)
    np.testing.assert_allclose(resolution.doubt, 1 - inside.sum(1), atol=1e-6)
    np.testing.assert_array_equal(clf.resolve(X, S).label, resolution.label)
    with pytest.raises(ValueError, match="10 sets for 300 rows"):
        clf.resolve(X, S[:10])
    with pytest.raises(ValueError, match="emu"):
        clf.resolve(X[:1], ["ape|emu"])


def test_uninformative_rows_are_resolved_without_a_warning():
    X, S, _ = separate_clouds()
    clf = PartialLabelClassifier(epochs=10, random_state=0).fit(X, S)
    resolution = clf.resolve(X, np.ones_like(S))
    np.testing.assert_array_equal(resolution.label, clf.predict(X))
    np.testing.assert_array_equal(resolution.doubt, 0)


def test_resolution_by_hand():
    probabilities = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.6, 0.4, 1e-9]])
    candidates = np.array([[True, True, False], [True, True, False], [False, False, True]])
    resolution = Resolution(np.log(probabilities), candidates, NAMES)
    assert resolution.label.tolist() == ["ape", "bee", "cat"]
    np.testing.assert_allclose(resolution.probability, [5 / 8, 2 / 3, 1])
    np.testing.assert_allclose(resolution.margin, [2 / 8, 1 / 3, 1])
    np.testing.assert_allclose(resolution.doubt, [0.2, 0.7, 1], rtol=1e-8)
    np.testing.assert_allclose(resolution.among_candidates[0], [5 / 8, 3 / 8, 0])
    names = [[name for name, _ in row] for row in resolution.alternatives()]
    assert names == [["bee", "cat"], ["cat", "ape"], ["ape", "bee"]]
    assert resolution.alternatives(1)[1] == [("cat", pytest.approx(0.7))]
    frame = resolution.to_frame(index=["x", "y", "z"], most=1)
    assert frame.columns.tolist() == ["label", "probability", "margin", "doubt", "alternatives"]
    assert frame.loc["z", "label"] == "cat"
    nowhere = Resolution(np.array([[0.0, -900.0, -1000.0]]), np.array([[False, True, True]]), NAMES)
    assert nowhere.label.tolist() == ["bee"]
    assert nowhere.probability == 1
