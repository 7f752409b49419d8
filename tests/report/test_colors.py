from itertools import combinations

import pytest

from propall.methods import METHODS
from propall.report.colors import (
    DARK,
    LIGHT,
    ORDER,
    OTHERS,
    contrast,
    css_variables,
    key,
    look,
    luminance,
    mixed,
    ours_last,
    series_colour,
)

THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])


def test_contrast_of_known_pairs():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert luminance("#ff0000") == pytest.approx(0.2126)
    assert mixed("#000000", "#ffffff", 0.5) == "#808080"


@THEMES
def test_text_is_legible(theme):
    for colour in (theme.text, theme.muted, theme.accent, theme.better, theme.worse):
        assert contrast(colour, theme.page) >= 4.5
    for index in range(-1, len(OTHERS) + 1):
        assert contrast(series_colour(index, theme), theme.page) >= 3
        assert contrast(series_colour(index, theme, 4.5), theme.page) >= 4.5
    # Chips of the recovered label: page colour on the accent's text shade.
    assert contrast(theme.page, series_colour(0, theme, 4.5)) >= 4.5


def test_the_light_page_has_the_series_colours_as_chosen():
    assert [series_colour(i) for i in range(8)] == [LIGHT.accent, *OTHERS]


def test_ours_is_the_accent_and_drawn_last():
    assert look("ProPaLL").colour == 0
    assert look("ProPaLL (no noise)").colour == 0
    assert look("ProPaLL (no noise)").dash
    assert all(look(name).colour > 0 for name in (*ORDER, "my_method"))
    assert ours_last(["propall", "cc", "rc"]) == ["cc", "rc", "propall"]


def test_names_and_titles_are_one_method():
    assert key("PL-KNN") == "pl_knn"
    assert look("PL-KNN") == look("pl_knn")
    assert look("Random candidate").colour == -1


def test_known_methods_never_differ_in_colour_alone():
    looks = [look(name) for name in ("propall", *ORDER)]
    assert len(set(looks)) == len(looks)
    for one, other in combinations(looks, 2):
        assert (one.dash, one.marker) != (other.dash, other.marker)


def test_every_registered_method_has_its_place():
    assert set(METHODS) == {"propall", *ORDER}
    for name, method in METHODS.items():
        assert look(method.title) == look(name)


@THEMES
def test_css_names_every_colour(theme):
    text = css_variables(theme)
    assert f"--page:{theme.page}" in text
    assert all(f"--s{i}:#" in text and f"--t{i}:#" in text for i in range(8))


def test_what_follows_a_comma_is_a_variant_of_the_same_method():
    for title in ("ProPaLL", "PRODEN", "PC", "VALEN"):
        own, variant = look(title), look(f"{title}, paper")
        assert (variant.colour, variant.marker) == (own.colour, own.marker)
        assert variant.dash not in ("", own.dash)
