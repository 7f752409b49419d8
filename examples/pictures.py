"""Pictures of the examples: SVG files that follow the light or dark theme of the page that shows them."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from propall.report.colors import DARK, LIGHT, SERIES_COLORS, series_color

TEXT, MUTED, LINE, ACCENT, GOOD, BAD = (
    LIGHT.text,
    LIGHT.muted,
    LIGHT.line,
    LIGHT.accent,
    LIGHT.better,
    LIGHT.worse,
)
SERIES = SERIES_COLORS
_STYLE = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "grid.color": LINE,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": TEXT,
    "svg.hashsalt": "propall",
    "svg.fonttype": "none",
}


def _dark_rules() -> str:
    """Style rules that replace every color of the light theme on a dark page."""
    pairs = dict(zip(LIGHT, DARK, strict=True))
    pairs |= {color: series_color(i, DARK) for i, color in enumerate(SERIES_COLORS, 1)}
    return "".join(
        f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
        for light, dark in pairs.items()
        for kind in ("fill", "stroke")
    )


@contextmanager
def picture(name: str, size: tuple[float, float]) -> Iterator[Figure]:
    """Yield a figure of this size in inches; on exit, write it to NAME.svg in the current folder."""
    with rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    fonts = "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,sans-serif!important}"
    style = f"<style>{fonts}@media (prefers-color-scheme:dark){{{_dark_rules()}}}</style>"
    head, _, body = text.getvalue().partition("<defs>")
    path = Path(f"{name}.svg")
    path.write_text(f"{head}{style}<defs>{body}", encoding="utf-8")
    print(f"picture: {path}")


def bars(axes: Axes, values: dict[str, float], *, accent: str) -> None:
    """Draw a horizontal bar with its value for each name; `accent` is the bar that the page is about."""
    names = list(values)
    colors = [ACCENT if name == accent else SERIES[6] for name in names]
    axes.barh(names, [values[name] for name in names], color=colors, height=0.7)
    for row, name in enumerate(names):
        axes.annotate(
            f"{values[name]:.1%}", (values[name], row), (4, 0), textcoords="offset points", va="center"
        )
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15)
    axes.set_xticks([])
    axes.tick_params(length=0, labelcolor=TEXT)
    axes.spines[["bottom"]].set_visible(False)


def hide_frame(axes: Axes) -> None:
    """Remove ticks and frame, for images."""
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)
