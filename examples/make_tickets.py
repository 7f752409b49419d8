"""Writes tickets.csv: messages to a shop, each with the topics that a colleague thought possible."""

import csv
import random
from pathlib import Path

WORDS = {
    "billing": "invoice charged twice card payment receipt tax price",
    "delivery": "parcel late courier tracking address shipped week driver",
    "login": "password reset account locked code email verify username",
    "returns": "send back wrong size exchange label refund shop",
}


def main() -> None:
    random.seed(0)
    every_word = " ".join(WORDS.values()).split()
    with Path("tickets.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["message", "channel", "topic", "checked"])
        for row in range(400):
            truth = random.choice(list(WORDS))
            message = random.choices(WORDS[truth].split(), k=3) + random.choices(every_word, k=4)
            if row % 40 == 15:  # the colleague was wrong
                truth = random.choice([name for name in WORDS if name != truth])
            possible = {truth} | set(random.sample(list(WORDS), random.randint(0, 2)))
            topic = "" if row % 50 == 7 else "|".join(sorted(possible))
            topic = f"!{random.choice([name for name in WORDS if name != truth])}" if row % 10 == 3 else topic
            checked = truth if row % 8 == 0 else ""
            rows.writerow([" ".join(message), random.choice(["mail", "chat"]), topic, checked])


if __name__ == "__main__":
    main()
