"""One look per method, everywhere: color, dash and marker, on a light and on a dark page."""

import re
from typing import NamedTuple
from zlib import crc32


class Theme(NamedTuple):
    """The neutral colors of a page, its accent, and the two of a comparison."""

    page: str
    text: str
    muted: str
    line: str
    accent: str
    better: str
    worse: str


LIGHT = Theme("#ffffff", "#1b1f24", "#57606a", "#d8dee4", "#0b62c4", "#1a7f37", "#b42318")
DARK = Theme("#14181d", "#e6edf3", "#9da7b1", "#30363d", "#6cb0ff", "#56d364", "#ff8178")

#: Series colors on a light page after the accent; a dark page gets them lightened as far as needed.
OTHERS = ("#d1495b", "#2a9d6f", "#8a5cc7", "#c77d0a", "#4d7c8a", "#9c6b4e", "#7a7f87")
#: A marker for each color, and another dash and marker in each round through the colors, so that no pair
#: differs in hue alone.
MARKERS = ("circle", "square", "triangle", "diamond", "down", "plus", "cross", "hexagon")
DASHES = ("", "7 3", "2 3", "8 3 2 3", "14 4")

#: Methods in the order in which they take colors; those that meet in one table stand close together.
ORDER = (
    *("proden", "rc", "valen", "cc", "d2cnn", "ga", "lws"),
    *("ipal", "plle", "clpl", "pl_knn", "pl_svm", "cavl", "lwc"),
    *("l_uw", "l_w", "forward", "nn", "pc", "ova", "free"),
    *("scarce", "cpe", "op", "op_w", "scl_nl", "scl_exp", "abs"),
    *("pc_ishida", "katsura_ce", "mcl_log", "mcl_exp", "mcl_mae", "mcl_mse", "mcl_gce"),
)
#: Titles that are not their registry name with other punctuation.
ALIASES = {"ce_katsura": "katsura_ce"}
#: Not methods but yardsticks: drawn in the muted color.
YARDSTICKS = ("random_candidate", "clean_labels", "chance")


class MethodStyle(NamedTuple):
    """How a method is drawn.

    Attributes:
        color: 0 for the accent, then 1 to 7; -1 for the muted color of a yardstick.
        dash: SVG dash pattern, empty for a solid line.
        marker: one of `MARKERS`.
    """

    color: int
    dash: str
    marker: str


def method_key(method: str) -> str:
    """The registry name of a title: "PL-KNN" and "pl_knn" are one method."""
    name = re.sub(r"[^a-z0-9]+", "_", method.lower()).strip("_")
    return ALIASES.get(name, name)


def method_style(method: str) -> MethodStyle:
    """The look of a method, by name or title; the same in every chart and page, known method or not.

    What follows a comma is a variant, such as the paper's numbers: same color and marker, another dash.
    """
    base, comma, _ = method.partition(",")
    if comma:
        own = method_style(base)
        return own._replace(dash=next(dash for dash in DASHES[1:] if dash != own.dash))
    name = method_key(method)
    if name in YARDSTICKS:
        return MethodStyle(-1, "", "circle")
    if name == "propall":
        return MethodStyle(0, "", MARKERS[0])
    if name.startswith("propall_"):  # A variant of ours keeps the accent.
        return MethodStyle(0, DASHES[1 + crc32(name.encode()) % 3], MARKERS[0])
    place = ORDER.index(name) if name in ORDER else crc32(name.encode()) % (len(OTHERS) * len(DASHES))
    turn, color = divmod(place, len(OTHERS))
    return MethodStyle(1 + color, DASHES[turn], MARKERS[(1 + color + 3 * turn) % len(MARKERS)])


def propall_last(methods: list[str]) -> list[str]:
    """The order of drawing: given order, but ProPaLL on top of everything else."""
    return sorted(methods, key=lambda method: method_style(method).color == 0)


def luminance(color: str) -> float:
    """Relative luminance of a hex color (WCAG 2)."""
    channels = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colors, from 1 to 21 (WCAG 2)."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def blend(color: str, other: str, share: float) -> str:
    """`color` with a share of `other` in it."""
    pairs = ((int(color[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in pairs)


def legible(color: str, theme: Theme, minimum: float) -> str:
    """The color, moved towards the theme's text color until its contrast with the page is enough."""
    for step in range(0, 101, 2):
        moved = blend(color, theme.text, step / 100)
        if contrast(moved, theme.page) >= minimum:
            return moved
    return theme.text


def series_color(index: int, theme: Theme = LIGHT, minimum: float = 3.0) -> str:
    """Colour number `index` of a `MethodStyle` on a theme; 4.5 as `minimum` for text in that color."""
    if index < 0:
        return theme.muted
    return legible(theme.accent if index == 0 else OTHERS[index - 1], theme, minimum)


def css_variables(theme: Theme) -> str:
    """The theme as CSS custom properties: --page and so on, --s0.. for lines, --t0.. for text."""
    neutral = [f"--{name}:{value}" for name, value in theme._asdict().items()]
    lines = [f"--s{i}:{series_color(i, theme)}" for i in range(len(OTHERS) + 1)]
    texts = [f"--t{i}:{series_color(i, theme, 4.5)}" for i in range(len(OTHERS) + 1)]
    return ";".join([*neutral, *lines, *texts])
