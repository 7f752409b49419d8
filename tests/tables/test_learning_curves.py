"""Learning curves of the selected setting."""

from propall.tables.learning_curves import LearningCurves


def test_learning_curves(fitted) -> None:
    assert fitted.curves.epochs == list(range(1, 16))
    assert set(fitted.curves.covering) == {"trained on", "held out"}
    assert fitted.curves.covering["held out"].shape == (15, 2)
    assert fitted.curves.covering["trained on"][-1].mean() > fitted.curves.covering["trained on"][0].mean()
    restored = LearningCurves.from_dict(fitted.curves.as_dict())
    assert restored.epochs == fitted.curves.epochs
    assert abs(restored.covering["held out"] - fitted.curves.covering["held out"]).max() <= 5e-5
