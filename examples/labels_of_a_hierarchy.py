"""Digits labeled as coarsely as people like: "round" or "straight" where nobody looked closely."""

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
    # Four in five got no closer look than at the group.
    coarse = draw.random(len(truth)) < 0.8
    written = np.where(coarse, [parents[name] for name in names], names)
    X_train, X_test, y_train, _, _, names_test = train_test_split(
        X, written, names, test_size=0.3, random_state=0
    )

    labels = CandidateLabels.from_hierarchy(TREE, y_train)
    print("written:", ", ".join(y_train[:4]), "...")
    print("read as:", ", ".join(labels.strings()[:4]), "...")
    clf = PartialLabelClassifier("propall", "mlp", epochs=60, random_state=0).fit(X_train, labels)
    fine = np.isin(y_train, labels.classes)
    alone = PartialLabelClassifier("propall", "mlp", epochs=60, random_state=0).fit(
        X_train[fine], labels[fine]
    )
    print(f"test accuracy from all labels:       {(clf.predict(X_test) == names_test).mean():.3f}")
    print(f"from the {fine.sum()} precise ones alone:     {(alone.predict(X_test) == names_test).mean():.3f}")


if __name__ == "__main__":
    main()
