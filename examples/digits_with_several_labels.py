"""Handwritten digits with ambiguous labels such as 3|8: train on them and resolve them."""

import numpy as np
from pictures import ACCENT, GOOD, MUTED, hide_frame, picture
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from propall import PartialLabelClassifier, resolve_out_of_fold


def main() -> None:
    X, truth = load_digits(return_X_y=True)
    draw = np.random.default_rng(0)
    # Every wrong digit is a candidate with probability 0.3.
    candidates = draw.random((len(truth), 10)) < 0.3
    candidates[np.arange(len(truth)), truth] = True
    labels = np.array(["|".join(map(str, np.flatnonzero(row))) for row in candidates])
    X_train, X_test, y_train, _, truth_train, truth_test = train_test_split(
        X, labels, truth, test_size=0.3, random_state=0
    )
    print("labels:", ", ".join(y_train[:4]), "...")

    clf = PartialLabelClassifier("propall", "linear", epochs=30, learning_rate=0.03, random_state=0)
    clf.fit(X_train, y_train)
    accuracy = (clf.predict(X_test).astype(int) == truth_test).mean()
    print(f"test accuracy from ambiguous labels: {accuracy:.3f}")

    resolution = resolve_out_of_fold(clf, X_train, y_train)
    print(f"correctly resolved training labels:  {(resolution.label.astype(int) == truth_train).mean():.3f}")
    print(resolution.to_frame().head(3).to_string(float_format="{:.3f}".format))
    draw_digits(X_train, y_train, truth_train, resolution)


def draw_digits(X, labels, truth, resolution) -> None:
    """Twelve digits with their candidates; the chosen label is blue, with a check mark if correct."""
    with picture("digits_with_several_labels", (5.2, 5.0)) as figure:
        for row, axes in enumerate(figure.subplots(3, 4).ravel()):
            axes.imshow(X[row].reshape(8, 8), cmap="gray_r")
            hide_frame(axes)
            names, chosen = labels[row].split("|"), resolution.label[row]
            for place, name in enumerate(names):
                is_chosen = name == chosen
                x = (place + 0.5) / max(len(names), 4)
                color, weight = (ACCENT, "bold") if is_chosen else (MUTED, "normal")
                axes.text(x, -0.16, name, transform=axes.transAxes, ha="center", color=color, weight=weight)
            correct = int(chosen) == truth[row]
            mark, color = ("✓", GOOD) if correct else (f"is {truth[row]}", MUTED)
            axes.text(0.98, 1.03, mark, transform=axes.transAxes, ha="right", color=color)


if __name__ == "__main__":
    main()
