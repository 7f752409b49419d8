"""Draws how often a class is dropped, by how often its partner is a candidate, from `results/`."""

from pathlib import Path

from palette import label, write

from propall.methods import METHODS
from propall.paper.studies import paired_classes
from propall.paper.studies.study_files import read_json
from propall.report.colors import method_style

RESULTS = Path(__file__).resolve().parents[2] / "results"
#: Color of each base loss, as on the other pages.
COLORS = {base: f"s{method_style(base).color}" for base in paired_classes.BASES} | {"propall": "accent"}
LEFT, TOP, WIDTH, HEIGHT, GAP = 52, 84, 240, 210, 40


def why_base_losses() -> None:
    """One panel per training, one line per base loss."""
    report = read_json(RESULTS / paired_classes.FILE_NAME)
    together = report["setting"]["together"]
    low, high = min(together), max(together)
    parts = [label(8, 22, "pairs with one class swallowed, %", "small muted")]
    at = 300.0
    for base, color in COLORS.items():
        title = METHODS[base].title
        parts.append(f'<path d="M{at:g} 17h22" stroke-width="3" class="{color}-line"/>')
        parts.append(label(at + 28, 22, title, "small"))
        at += 50 + 8.5 * len(title)
    for number, (training, title) in enumerate(paired_classes.TRAININGS.items()):
        x0 = LEFT + number * (WIDTH + GAP)
        parts.append(label(x0, TOP - 20, title, "bold"))
        for percent in (0, 50, 100):
            y = TOP + HEIGHT * (1 - percent / 100)
            parts.append(f'<path d="M{x0:g} {y:g}h{WIDTH}" stroke-width="1" class="line-line"/>')
            if number == 0:
                parts.append(label(8, y + 5, str(percent), "small muted"))
        for r in (0.5, 0.7, 0.9, 1.0):
            x = x0 + WIDTH * (r - low) / (high - low)
            parts.append(label(x, TOP + HEIGHT + 24, f"{r:g}", "small middle muted"))
        for base, color in COLORS.items():
            shares = paired_classes.swallowed_shares(report, f"{base}/{training}")
            points = [
                (x0 + WIDTH * (r - low) / (high - low), TOP + HEIGHT * (1 - share))
                for r, share in zip(together, shares, strict=True)
            ]
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            parts.append(f'<path d="M{path}" fill="none" stroke-width="2.5" class="{color}-line"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="{color}"/>' for x, y in points]
    bottom = TOP + HEIGHT + 52
    caption = "probability r that the partner is a candidate"
    parts.append(label(LEFT + 1.5 * WIDTH + GAP, bottom, caption, "small middle muted"))
    title = "Share of pairs with one class swallowed, for four base losses and three kinds of training"
    write("why_base_losses.svg", LEFT + 3 * WIDTH + 2 * GAP + 20, bottom + 12, title, parts)


if __name__ == "__main__":
    why_base_losses()
