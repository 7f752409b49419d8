"""Real sentences with lists of topics as a language model writes them: train on the lists.

The sentences are the documentation of scikit-learn's own functions, and the topic is the module. No language
model is called: `reply` writes lists in the styles of language models, with the right topic missing in one of
ten.
"""

import importlib
import inspect
import re
import warnings

import numpy as np
from pictures import MUTED, bars, picture
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import cross_val_predict

from propall import CandidateLabels, PartialLabelClassifier, resolve_out_of_fold

TOPICS = ("cluster", "datasets", "decomposition", "ensemble", "linear_model", "metrics", "preprocessing")


def sentences() -> tuple[list[str], np.ndarray]:
    """First paragraphs of the documentation of every public function, class and method, with their topic."""
    found: dict[str, str] = {}
    for topic in TOPICS:
        module = importlib.import_module(f"sklearn.{topic}")
        for name in sorted(module.__all__):
            member = getattr(module, name, None)
            parts = list(vars(member).values()) if inspect.isclass(member) else []
            for part in [member, *filter(inspect.isfunction, parts)]:
                text = (inspect.getdoc(part) or "").partition("Parameters\n")[0]
                for paragraph in re.split(r"\n\s*\n", text)[:3]:
                    if len(paragraph) > 40:
                        found.setdefault(" ".join(paragraph.split()), topic)
    return list(found), np.array(list(found.values()))


def reply(topic: str, draw: np.random.Generator) -> str | list[str]:
    """A list of topics in one of four styles."""
    others = [name for name in TOPICS if name != topic]
    named = draw.choice(others, draw.integers(1, 4), replace=False).tolist()
    if draw.random() > 0.1:
        named.insert(draw.integers(len(named) + 1), topic)
    styles = (
        "\n".join(f"{i}. {name.title()}" for i, name in enumerate(named, 1)),
        ", ".join(named) + ".",
        "This could be " + " or ".join(named),
        named,
    )
    return styles[draw.integers(len(styles))]


def main() -> None:
    warnings.simplefilter("ignore")
    draw = np.random.default_rng(0)
    texts, truth = sentences()
    replies = [reply(topic, draw) for topic in truth]
    labels = CandidateLabels.from_lists(replies, TOPICS)
    print(f"{len(texts)} sentences, such as: {texts[0]}")
    print(f"reply: {replies[0]!r}")
    print(f"candidates: {labels.strings()[0]}")

    words = TfidfVectorizer(stop_words="english", sublinear_tf=True).fit_transform(texts)
    X = TruncatedSVD(100, random_state=0).fit_transform(words).astype(np.float32)
    clf = PartialLabelClassifier("propall", "linear", epochs=40, random_state=0)
    resolution = resolve_out_of_fold(clf, X, labels)
    covered = np.array([topic in names for topic, names in zip(truth, labels.sets(), strict=True)])
    guess = np.array([draw.choice(sorted(names)) for names in labels.sets()])
    shares = {
        "lists with the right topic": covered.mean(),
        "a random topic of each list": (guess == truth).mean(),
        "resolved topics": (resolution.label == truth).mean(),
        "true topics, for comparison": (cross_val_predict(clf, X, truth) == truth).mean(),
    }
    for name, share in shares.items():
        print(f"{name}: {share:.3f}")
    doubted = resolution.doubt > 0.5
    print(f"{doubted.sum()} lists are doubted; {(~covered[doubted]).sum()} of them lack the right topic")
    with picture("topics_listed_by_a_model", (5.2, 2.4)) as figure:
        axes = figure.subplots()
        bars(axes, shares, accent="resolved topics")
        axes.set_title("share that is correct", loc="left", fontsize=10, color=MUTED)


if __name__ == "__main__":
    main()
