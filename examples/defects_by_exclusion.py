"""Photographs of metal plates with a defect, labeled only by tests that ruled defects out.

A cheap test says "not a crack" or "not a stain"; nobody ever says what the defect is. The images are drawn by
this script.
"""

import numpy as np
from pictures import ACCENT, MUTED, hide_frame, picture

from propall import CandidateLabels, PartialLabelClassifier

DEFECTS = ("crack", "dent", "hole", "scratch", "stain")
SIZE = 16


def plate(defect: str, draw: np.random.Generator) -> np.ndarray:
    """A gray image of a plate with one defect."""
    y, x = np.mgrid[:SIZE, :SIZE] - draw.uniform(5, 10, (2, 1, 1))
    angle = draw.uniform(0, np.pi)
    along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    radius = np.hypot(x, y)
    shape = {
        "crack": -0.7 * (np.abs(across + 1.5 * np.sin(along)) < 0.7) * (np.abs(along) < 6),
        "dent": 0.5 * np.exp(-(radius**2) / 8) * np.sign(x),
        "hole": -0.9 * (radius < 2),
        "scratch": 0.7 * (np.abs(across) < 0.6) * (np.abs(along) < 7),
        "stain": -0.35 * (radius < 4 + np.sin(3 * np.arctan2(y, x))),
    }[defect]
    return 0.6 + shape + draw.normal(0, 0.2, (SIZE, SIZE))


def main() -> None:
    draw = np.random.default_rng(0)
    truth = draw.choice(DEFECTS, 1200)
    images = np.stack([plate(name, draw) for name in truth]).astype(np.float32)
    # Each plate went through one or two tests; a test rules out one defect that is not there.
    excluded = [
        draw.choice([d for d in DEFECTS if d != name], draw.integers(1, 3), replace=False) for name in truth
    ]
    notes = np.array(["|".join(f"!{name}" for name in sorted(names)) for names in excluded])
    fit, test = np.arange(800), np.arange(800, 1200)
    labels = CandidateLabels.from_strings(notes[fit], classes=DEFECTS)
    print("notes: ", ", ".join(notes[:4]), "...")
    print("labels:", labels)

    clf = PartialLabelClassifier("propall", "small_cnn", epochs=10, batch_size=50, random_state=0)
    positive = np.array([draw.choice(names) for names in labels.sets()])
    clf.fit(images[fit, None], positive)
    print(f"if a possible defect is chosen at random: {clf.score(images[test, None], truth[test]):.3f}")
    clf.fit(images[fit, None], labels)
    print(f"test accuracy without any positive label: {clf.score(images[test, None], truth[test]):.3f}")
    draw_plates(images[test], notes[test], clf.predict_proba(images[test, None]), clf.classes_)


def draw_plates(images, notes, probabilities, classes) -> None:
    """Eight test plates with the model's answer; the tests' notes are shown for comparison only."""
    with picture("defects_by_exclusion", (5.2, 3.3)) as figure:
        for axes, image, note, row in zip(
            figure.subplots(2, 4).ravel(), images, notes, probabilities, strict=False
        ):
            axes.imshow(image, cmap="gray", vmin=0, vmax=1.2)
            hide_frame(axes)
            best = row.argmax()
            axes.set_title(f"{classes[best]} {row[best]:.0%}", fontsize=11, color=ACCENT)
            axes.set_xlabel(note.replace("|", " "), fontsize=8.5, color=MUTED)


if __name__ == "__main__":
    main()
