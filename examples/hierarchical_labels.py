"""Digits with labels of different precision: some are digits, most only "open" or "straight"."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from propall import CandidateLabels, PartialLabelClassifier

TREE = {"round": {"with a hole": ["0", "6", "8", "9"], "open": ["2", "3", "5"]}, "straight": ["1", "4", "7"]}


def main() -> None:
    X, truth = load_digits(return_X_y=True)
    names = truth.astype(str)
    draw = np.random.default_rng(0)
    parents = {"0": "with a hole", "6": "with a hole", "8": "with a hole", "9": "with a hole"}
    parents |= {"2": "open", "3": "open", "5": "open", "1": "straight", "4": "straight", "7": "straight"}
    # Four of five labels are only as precise as the group.
    coarse = draw.random(len(truth)) < 0.8
    label_names = np.where(coarse, [parents[name] for name in names], names)
    X_train, X_test, y_train, _, _, names_test = train_test_split(
        X, label_names, names, test_size=0.3, random_state=0
    )

    labels = CandidateLabels.from_hierarchy(TREE, y_train)
    print("labels:        ", ", ".join(y_train[:4]), "...")
    print("candidate sets:", ", ".join(labels.strings()[:4]), "...")
    clf = PartialLabelClassifier("propall", "mlp", epochs=60, random_state=0).fit(X_train, labels)
    precise = np.isin(y_train, labels.classes)
    baseline = PartialLabelClassifier("propall", "mlp", epochs=60, random_state=0)
    baseline.fit(X_train[precise], labels[precise])
    print(f"test accuracy with all labels:   {clf.score(X_test, names_test):.3f}")
    print(f"with the {precise.sum()} precise ones only: {baseline.score(X_test, names_test):.3f}")


if __name__ == "__main__":
    main()
