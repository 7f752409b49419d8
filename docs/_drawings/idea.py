"""Draws docs/idea.svg: four digits, their candidate labels, and what a model trained on sets answers.

The candidate sets are drawn at random, and the answers are those of models that were not trained on the digit.
"""

import numpy as np
from palette import arrow, box, label, outline, write
from sklearn.datasets import load_digits

from propall import CandidateLabels, PartialLabelClassifier, resolve_out_of_fold

digits = load_digits()
draw = np.random.default_rng(0)
mask = draw.random((len(digits.target), 10)) < 0.3
mask[np.arange(len(mask)), digits.target] = True
clf = PartialLabelClassifier("propall", "mlp", epochs=40, random_state=0)
resolution = resolve_out_of_fold(clf, digits.data, CandidateLabels.from_matrix(mask))
print("resolved correctly:", (resolution.label == digits.target).mean())

# Sets of several sizes, and one row that is not certain.
sizes, sure = mask.sum(1), resolution.probability
right = resolution.label == digits.target
chosen = [
    np.flatnonzero(right & (sizes == size) & (digits.target == digit) & (sure > low) & (sure < high))[0]
    for size, digit, low, high in ((2, 3, 0.9, 1.1), (3, 9, 0.9, 1.1), (6, 5, 0.6, 0.98), (7, 6, 0.9, 1.1))
]
parts = [
    label(8, 24, "example", "small muted"),
    label(92, 24, "candidate labels", "small muted"),
    label(444, 24, "learned", "small muted"),
]
for line, row in enumerate(chosen):
    top = 40 + line * 80
    for y in range(8):
        for x in range(8):
            ink = digits.images[row, y, x] / 16
            if ink:
                place = f'x="{8 + 8 * x}" y="{top + 8 * y}" width="8" height="8"'
                parts.append(f'<rect {place} class="text" opacity="{ink:.2f}"/>')
    for digit in range(10):
        x, y = 92 + 32 * digit, top + 15
        if mask[row, digit]:
            parts.append(outline(x, y, 28, 32, "muted"))
            parts.append(label(x + 14, y + 22, str(digit), "middle"))
        else:
            parts.append(f'<g opacity="0.4">{label(x + 14, y + 22, str(digit), "middle muted")}</g>')
    parts.append(arrow(416, top + 31, 438, top + 31))
    parts.append(box(446, top + 15, 28, 32, "accent"))
    parts.append(label(460, top + 37, str(resolution.label[row]), "middle bold page"))
    parts.append(label(482, top + 37, f"{sure[row]:.0%}", "muted"))
write(
    "idea.svg",
    530,
    356,
    "Digits with several candidate labels each, and the label that a model learned",
    parts,
)
