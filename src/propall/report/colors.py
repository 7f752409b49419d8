"""Colors: two page themes, and one fixed color, dash and marker per method."""

import re
from typing import NamedTuple
from zlib import crc32


class Theme(NamedTuple):
    """Neutral colors of a page, its accent, and the two colors of a comparison."""

    page: str
    text: str
    muted: str
    line: str
    accent: str
    better: str
    worse: str


LIGHT = Theme("#ffffff", "#1b1f24", "#57606a", "#d8dee4", "#0b62c4", "#1a7f37", "#b42318")
DARK = Theme("#14181d", "#e6edf3", "#9da7b1", "#30363d", "#6cb0ff", "#56d364", "#ff8178")

#: Series colors on a light page, after the accent; a dark page lightens them as far as contrast requires.
SERIES_COLORS = ("#d1495b", "#2a9d6f", "#8a5cc7", "#c77d0a", "#4d7c8a", "#9c6b4e", "#7a7f87")
#: Each round through the colors uses another dash and shifts the markers, so no pair differs in hue alone.
MARKERS = ("circle", "square", "triangle", "diamond", "down", "plus", "cross", "hexagon")
DASHES = ("", "7 3", "2 3", "8 3 2 3", "14 4", "8 3 2 3 2 3")

#: The order in which methods take colors; methods that share a table are close together. All styles are
#: taken: a method that is not here shares one of them, chosen by its name.
METHOD_ORDER = (
    *("proden", "rc", "valen", "cc", "d2cnn", "ga", "lws"),
    *("ipal", "plle", "clpl", "pl_knn", "pl_svm", "cavl", "lwc"),
    *("l_uw", "l_w", "forward", "nn", "pc", "ova", "free"),
    *("scarce", "cpe", "op", "op_w", "scl_nl", "scl_exp", "abs"),
    *("pc_ishida", "katsura_ce", "mcl_log", "mcl_exp", "mcl_mae", "mcl_mse", "mcl_gce"),
    *("pico", "papi", "crosel", "able", "non_candidates", "forest", "boosting"),
)
#: Titles that differ from the registry name by more than punctuation.
ALIASES = {"ce_katsura": "katsura_ce"}
#: Reference lines rather than methods; drawn in the muted color.
REFERENCES = ("random_candidate", "clean_labels", "chance")


class MethodStyle(NamedTuple):
    """How a method is drawn."""

    color: int  # 0 for the accent, 1 to 7 for a series color, -1 for the muted color
    dash: str  # SVG dash pattern; empty for a solid line
    marker: str  # one of `MARKERS`


def method_key(method: str) -> str:
    """Return the registry name for a title: "PL-KNN" becomes "pl_knn"."""
    name = re.sub(r"[^a-z0-9]+", "_", method.lower()).strip("_")
    return ALIASES.get(name, name)


def method_style(method: str) -> MethodStyle:
    """Return the style of a method, by name or title; the same on every page, even for unknown methods.

    Text after a comma marks a variant, such as the paper's numbers: same color and marker, another dash.
    """
    base, comma, _ = method.partition(",")
    if comma:
        style = method_style(base)
        return style._replace(dash=next(dash for dash in DASHES[1:] if dash != style.dash))
    name = method_key(method)
    if name in REFERENCES:
        return MethodStyle(-1, "", "circle")
    if name == "propall":
        return MethodStyle(0, "", MARKERS[0])
    if name.startswith("propall_"):  # variants of ProPaLL keep the accent
        return MethodStyle(0, DASHES[1 + crc32(name.encode()) % 3], MARKERS[0])
    n_styles = len(SERIES_COLORS) * len(DASHES)
    place = METHOD_ORDER.index(name) if name in METHOD_ORDER else crc32(name.encode()) % n_styles
    turn, color = divmod(place, len(SERIES_COLORS))
    return MethodStyle(1 + color, DASHES[turn], MARKERS[(1 + color + 3 * turn) % len(MARKERS)])


def propall_last(methods: list[str]) -> list[str]:
    """Return the methods in drawing order: as given, with ProPaLL on top."""
    return sorted(methods, key=lambda method: method_style(method).color == 0)


def luminance(color: str) -> float:
    """Return the relative luminance of a hex color (WCAG 2)."""
    channels = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colors, from 1 to 21 (WCAG 2)."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def blend(color: str, other: str, share: float) -> str:
    """Mix a share of `other` into `color`."""
    pairs = ((int(color[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in pairs)


def with_contrast(color: str, theme: Theme, minimum: float) -> str:
    """Move a color toward the theme's text color until its contrast with the page is sufficient."""
    for step in range(0, 101, 2):
        moved = blend(color, theme.text, step / 100)
        if contrast(moved, theme.page) >= minimum:
            return moved
    return theme.text


def series_color(index: int, theme: Theme = LIGHT, minimum: float = 3.0) -> str:
    """Return color number `index` of a `MethodStyle` on a theme; use 4.5 as `minimum` for text."""
    if index < 0:
        return theme.muted
    return with_contrast(theme.accent if index == 0 else SERIES_COLORS[index - 1], theme, minimum)


def text_color(method: str) -> str:
    """Return the color of text about a method on a light page."""
    return series_color(method_style(method).color, minimum=4.5)


def css_variables(theme: Theme) -> str:
    """Return the theme as CSS custom properties: --page etc., --s0.. for lines, --t0.. for text."""
    neutral = [f"--{name}:{value}" for name, value in theme._asdict().items()]
    lines = [f"--s{i}:{series_color(i, theme)}" for i in range(len(SERIES_COLORS) + 1)]
    texts = [f"--t{i}:{series_color(i, theme, 4.5)}" for i in range(len(SERIES_COLORS) + 1)]
    return ";".join([*neutral, *lines, *texts])
