"""Lists that a language model wrote, as JSON lines: match the names, and train on the sets.

No model is called here: `simulated_reply` writes replies as language models do, with numbering, whole
sentences, unknown names, and the right topic missing in some of them. `PROMPT` is what to send to a real one.
"""

import json
import tempfile
import warnings
from pathlib import Path

import numpy as np

from propall.tables.fitting import FitOptions, fit_table
from propall.tables.label_columns import open_table
from propall.tables.label_source import LabelSource

WORDS = {
    "billing": "invoice charged twice refund amount card payment receipt tax wrong price",
    "login": "password reset account locked code sign email verify username cannot",
    "delivery": "parcel late courier tracking address shipped week arrive waiting driver",
    "damage": "broken box scratched glass cracked replacement photo arrived dented missing",
    "cancellation": "cancel subscription stop renewal contract end month refund close account",
}
TOPICS = tuple(WORDS)
PROMPT = """List all topics that may apply to the message, most likely first, one per line.
Topics: {topics}
Message: {message}"""


def message(topic, draw):
    words = draw.choice(WORDS[topic].split(), 4).tolist()
    words += draw.choice(" ".join(WORDS.values()).split(), 3).tolist()
    return " ".join(draw.permutation(words))


def simulated_reply(topic, draw):
    """A list in one of the styles of language models; in 12 % of them the topic is missing."""
    others = [name for name in TOPICS if name != topic]
    named = draw.choice(others, draw.integers(1, 3), replace=False).tolist()
    if draw.random() > 0.12:
        named.insert(0, topic)
    if draw.random() < 0.05:
        named.append("Customer Happiness")
    style = draw.integers(4)
    if style == 0:
        return "\n".join(f"{i}. {name.title()}" for i, name in enumerate(named, 1))
    if style == 1:
        return ", ".join(named) + "."
    return named if style == 2 else "It may be " + " or ".join(named)


def write_file(path, n=1000, seed=0):
    """One JSON object per line: the message, and what the model replied."""
    draw = np.random.default_rng(seed)
    topics = draw.choice(TOPICS, n).tolist()
    lines = []
    for topic in topics:
        text = message(topic, draw)
        # A real reply would come from a client: reply = ask(PROMPT.format(topics=TOPICS, message=text))
        lines.append(json.dumps({"message": text, "topics": simulated_reply(topic, draw)}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return np.array(topics)


def main() -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "replies.jsonl"
        truth = write_file(path)
        print(path.read_text(encoding="utf-8").splitlines()[0])
        table = open_table(path, LabelSource(lists="topics", classes=TOPICS))
    for note in table.labeled.notes:
        print(f"{note.kind}: {note.text}")
    covered = table.labeled.labels.to_numpy()[np.arange(len(truth)), [TOPICS.index(t) for t in truth]]
    print(f"lists with the right topic:      {covered.mean():.3f}")
    draw = np.random.default_rng(0)
    guess = np.array([draw.choice(names) for names in table.labeled.labels.sets()])
    print(f"a random topic of each list:     {(guess == truth).mean():.3f}")
    options = FitOptions(search=False, members=1, folds=3, nets=("linear",))
    fitted = fit_table(table, options)
    print(f"estimated lists with it:         {1 - fitted.consensus.rate:.3f}")
    print(f"accuracy of the resolved topics: {(fitted.consensus.resolution.label == truth).mean():.3f}")


if __name__ == "__main__":
    main()
