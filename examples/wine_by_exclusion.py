"""Wines labeled only by what they are not, such as !barolo."""

import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

from propall import CandidateLabels, PartialLabelClassifier

NAMES = np.array(["barolo", "grignolino", "barbera"])


def main() -> None:
    X, truth = load_wine(return_X_y=True)
    draw = np.random.default_rng(0)
    wrong = (truth + draw.integers(1, 3, len(truth))) % 3
    notes = np.array([f"!{name}" for name in NAMES[wrong]])
    X_train, X_test, y_train, _, _, truth_test = train_test_split(
        X, notes, truth, test_size=0.4, random_state=0, stratify=truth
    )
    labels = CandidateLabels.from_strings(y_train)
    print("notes: ", ", ".join(y_train[:4]), "...")
    print("labels:", labels)

    clf = PartialLabelClassifier("propall", "linear", epochs=300, random_state=0).fit(X_train, labels)
    accuracy = (clf.predict(X_test) == NAMES[truth_test]).mean()
    print(f"test accuracy without any positive label: {accuracy:.3f}")


if __name__ == "__main__":
    main()
