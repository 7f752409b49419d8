"""Handwritten digits with ambiguous labels such as 3|8: train on them and resolve them."""

import numpy as np
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


if __name__ == "__main__":
    main()
