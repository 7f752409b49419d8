from itertools import combinations

import pytest

from propall.methods import METHODS
from propall.report.colors import (
    DARK,
    LIGHT,
    METHOD_ORDER,
    SERIES_COLORS,
    blend,
    contrast,
    css_variables,
    luminance,
    method_key,
    method_style,
    propall_last,
    series_color,
)

THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])


def test_contrast_of_known_pairs():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert luminance("#ff0000") == pytest.approx(0.2126)
    assert blend("#000000", "#ffffff", 0.5) == "#808080"


@THEMES
def test_text_is_legible(theme):
    for color in (theme.text, theme.muted, theme.accent, theme.better, theme.worse):
        assert contrast(color, theme.page) >= 4.5
    for index in range(-1, len(SERIES_COLORS) + 1):
        assert contrast(series_color(index, theme), theme.page) >= 3
        assert contrast(series_color(index, theme, 4.5), theme.page) >= 4.5
    # Chips of the recovered label: page color on the accent's text shade.
    assert contrast(theme.page, series_color(0, theme, 4.5)) >= 4.5


def test_light_theme_uses_the_series_colors_unchanged():
    assert [series_color(i) for i in range(8)] == [LIGHT.accent, *SERIES_COLORS]


def test_propall_has_the_accent_color_and_is_drawn_last():
    assert method_style("ProPaLL").color == 0
    assert method_style("ProPaLL (no noise)").color == 0
    assert method_style("ProPaLL (no noise)").dash
    assert all(method_style(name).color > 0 for name in (*METHOD_ORDER, "my_method"))
    assert propall_last(["propall", "cc", "rc"]) == ["cc", "rc", "propall"]


def test_names_and_titles_have_the_same_style():
    assert method_key("PL-KNN") == "pl_knn"
    assert method_style("PL-KNN") == method_style("pl_knn")
    assert method_style("Random candidate").color == -1


def test_known_methods_never_differ_in_color_alone():
    styles = [method_style(name) for name in ("propall", *METHOD_ORDER)]
    assert len(set(styles)) == len(styles)
    for one, other in combinations(styles, 2):
        assert (one.dash, one.marker) != (other.dash, other.marker)


def test_every_registered_method_has_a_style():
    assert set(METHOD_ORDER) < set(METHODS)
    for name, method in METHODS.items():
        assert method_style(method.title) == method_style(name), "add the title to ALIASES"


@THEMES
def test_css_names_every_color(theme):
    text = css_variables(theme)
    assert f"--page:{theme.page}" in text
    assert all(f"--s{i}:#" in text and f"--t{i}:#" in text for i in range(8))


def test_text_after_a_comma_is_a_variant_of_the_same_method():
    for title in ("ProPaLL", "PRODEN", "PC", "VALEN"):
        style, variant = method_style(title), method_style(f"{title}, paper")
        assert (variant.color, variant.marker) == (style.color, style.marker)
        assert variant.dash not in ("", style.dash)
