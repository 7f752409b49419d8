"""Draws the schematic pictures of the concept pages."""

from palette import arrow, box, label, outline, write


def candidate_sets() -> None:
    """Four ways to write a label, and the mask that each becomes."""
    classes = ("cat", "dog", "emu", "fox")
    rows = [
        ("cat|dog", "one of two", (1, 1, 0, 0)),
        ("!emu", "not this one", (1, 1, 0, 1)),
        ("cat, cat, fox", "three annotators", (1, 0, 0, 1)),
        ("pet", "a group of classes", (1, 1, 0, 0)),
        ("dog", "an ordinary label", (0, 1, 0, 0)),
    ]
    parts = [label(16, 28, "what you have", "small muted")]
    for column, name in enumerate(classes):
        parts.append(label(305 + 50 * column, 28, name, "small middle muted"))
    for line, (text, kind, mask) in enumerate(rows):
        y = 44 + 48 * line
        parts.append(label(16, y + 16, text, "bold"))
        parts.append(label(16, y + 33, kind, "small muted"))
        parts.append(arrow(200, y + 18, 272, y + 18))
        for column, is_candidate in enumerate(mask):
            x = 286 + 50 * column
            parts.append(box(x, y, 38, 36, "accent") if is_candidate else outline(x, y, 38, 36, "line"))
            if is_candidate:
                parts.append(label(x + 19, y + 24, "1", "middle bold page"))
    write(
        "concepts/candidate_sets.svg", 500, 292, "Labels in five forms, each as a row of a 0/1 matrix", parts
    )


def stacking() -> None:
    """Four small runs, one after the other and as one set of tensors."""
    parts = [label(16, 26, "one after the other: four small steps", "small muted")]
    for run in range(4):
        x = 16 + 116 * run
        parts.append(outline(x, 40, 104, 56, "muted"))
        parts.append(label(x + 52, 64, f"run {run + 1}", "middle"))
        parts.append(label(x + 52, 84, "(b, d)(d, k)", "small middle muted"))
    parts.append(label(16, 142, "stacked: one large step", "small muted"))
    for run in range(3, -1, -1):
        x, y = 16 + 14 * run, 158 + 10 * (3 - run)
        parts.append(box(x, y, 210, 60, "page"))
        parts.append(outline(x, y, 210, 60, "accent"))
    parts.append(label(121, 223, "4 × (b, d)(d, k)", "middle bold"))
    for line, text in enumerate(("own weights, own rows,", "own seed, own rates;", "one call to the GPU")):
        parts.append(label(296, 178 + 24 * line, text))
    write(
        "concepts/stacking.svg",
        500,
        268,
        "Four training runs as separate steps and as one stacked step",
        parts,
    )


if __name__ == "__main__":
    candidate_sets()
    stacking()
