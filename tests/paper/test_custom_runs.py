import pytest

from propall.paper.custom_runs import build_specs, choose_setting, train_runs
from propall.paper.specs import Spec


def test_a_named_recipe_brings_its_network():
    net, recipe = choose_setting("cifar10", "fast", changes={"epochs": 7})
    assert (net, recipe.epochs) == ("fast_convnet", 7)
    assert recipe.views.strong.cutout == 16
    assert choose_setting("cifar10").net == "resnet32"


def test_digits_are_not_mirrored():
    _, recipe = choose_setting("kmnist", "fast")
    assert not recipe.views.weak.flip
    assert not recipe.views.strong.flip


def test_unknown_names_are_answered_with_near_ones():
    with pytest.raises(ValueError, match="fast"):
        choose_setting("cifar10", "fas")
    with pytest.raises(ValueError, match="resnet18"):
        choose_setting("cifar10", net="resnet_18")


def test_views_train_on_flattened_images_and_survive_json(tmp_path):
    setting = choose_setting("digits", "fast", net="small_cnn", changes={"epochs": 1, "batch_size": 256})
    specs = build_specs("digits", methods=["cc"], corruption_fields={"q": 0.3}, seeds=1, setting=setting)
    assert Spec.from_json(specs[0].to_json()) == specs[0]
    _, (result,) = train_runs(specs, tmp_path, device="cpu")
    assert 0 <= result.accuracy <= 1
