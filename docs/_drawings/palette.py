"""Hand-drawn SVG that follows the light or dark theme of the page."""

from pathlib import Path

from propall.report.colors import DARK, LIGHT, SERIES_COLORS, series_color

DOCS = Path(__file__).resolve().parents[1]


def _rules(colors: dict[str, str]) -> str:
    return "".join(f".{name}{{fill:{color}}}.{name}-line{{stroke:{color}}}" for name, color in colors.items())


def style() -> str:
    """Classes for fills (`accent`) and strokes (`accent-line`) in both themes."""
    light, dark = LIGHT._asdict(), DARK._asdict()
    for index, color in enumerate(SERIES_COLORS, 1):
        light[f"s{index}"], dark[f"s{index}"] = color, series_color(index, DARK)
    font = "font:17px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif"
    texts = f"text{{{font};fill:{LIGHT.text}}}.small{{font-size:15px}}.bold{{font-weight:600}}"
    on_dark = f"@media (prefers-color-scheme:dark){{text{{fill:{DARK.text}}}{_rules(dark)}}}"
    return f"{texts}.middle{{text-anchor:middle}}{_rules(light)}{on_dark}"


def write(name: str, width: int, height: int, title: str, parts: list[str]) -> None:
    """Write docs/NAME with this drawing."""
    body = "\n".join(parts)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">'
    text = f"{head}\n<title>{title}</title>\n<style>{style()}</style>\n{body}\n</svg>\n"
    (DOCS / name).write_text(text, encoding="utf-8")


def label(x: float, y: float, text: str, classes: str = "") -> str:
    """A text."""
    return f'<text x="{x:g}" y="{y:g}" class="{classes}">{text}</text>'


def box(x: float, y: float, width: float, height: float, classes: str, radius: float = 4) -> str:
    """A rectangle with round corners."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" class="{classes}"/>'
    )


def outline(x: float, y: float, width: float, height: float, color: str, radius: float = 4) -> str:
    """An empty rectangle."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" fill="none" '
        f'stroke-width="1.5" class="{color}-line"/>'
    )


def arrow(x1: float, y1: float, x2: float, y2: float, color: str = "muted") -> str:
    """An arrow; its head points right or down."""
    head = (
        f"M{x2 - 6:g} {y2 - 5:g}L{x2:g} {y2:g}L{x2 - 6:g} {y2 + 5:g}"
        if abs(x2 - x1) > abs(y2 - y1)
        else f"M{x2 - 5:g} {y2 - 6:g}L{x2:g} {y2:g}L{x2 + 5:g} {y2 - 6:g}"
    )
    return (
        f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}{head}" fill="none" stroke-width="1.5" class="{color}-line"/>'
    )
