import pytest

from propall.nets import NETS
from propall.training.named_recipes import RECIPES, adapt_views
from propall.training.recipe import Recipe


@pytest.mark.parametrize("name", list(RECIPES))
def test_recipes_name_a_network_and_survive_json(name):
    net, recipe = RECIPES[name]
    assert net in NETS
    assert recipe.views is not None
    assert Recipe.from_dict(recipe.to_dict()) == recipe


def test_views_fit_the_images():
    _, recipe = RECIPES["fast"]
    cifar = adapt_views(recipe, 32, mirrored=True).views
    assert (cifar.weak.flip, cifar.weak.crop, cifar.strong.cutout, cifar.strong.strength) == (
        True,
        4,
        16,
        1.0,
    )
    digits = adapt_views(recipe, 28, mirrored=False).views
    assert (digits.weak.flip, digits.weak.crop, digits.strong.cutout) == (False, 3, 9)
    assert not digits.strong.flip
    assert adapt_views(Recipe(), 28, mirrored=False) == Recipe()
