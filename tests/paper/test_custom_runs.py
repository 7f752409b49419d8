import re
from dataclasses import replace

import pytest

from propall.data.corruption import IndependentFlip
from propall.methods.propall import ProPaLL
from propall.paper.custom_runs import (
    balance_of_labels,
    build_specs,
    choose_setting,
    describe_ignored,
    train_runs,
    use_views,
)
from propall.paper.monitors import AccuracyBar
from propall.paper.specs import Spec
from propall.paper.tables.modern import modern_rows
from propall.training.named_recipes import NamedRecipe
from propall.training.named_views import VIEWS


def test_named_views_bring_their_base_loss_unless_methods_are_given():
    setting = choose_setting("digits", "fast", views="pocr", net="small_cnn")
    views = setting.recipe.views
    assert (views.n_strong, views.weak.flip, views.strong.cutout) == (2, False, 2)
    _, (base,) = use_views("pocr", setting, [])
    assert (base.name, base.guard) == ("non_candidates", 1.1e-7)
    setting = choose_setting("digits", views="dirk", net="small_cnn")
    assert use_views("dirk", setting, [])[0].recipe.views.base_weight == 0
    with_propall, methods = use_views("dirk", setting, ["propall"])
    assert (with_propall.recipe.views.base_weight, methods) == (1, [ProPaLL(noise=0.0)])
    (spec,) = build_specs("digits", methods=[base], seeds=1, folds=2, setting=setting)[:1]
    assert Spec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("views", "methods", "title"),
    [
        (None, [], "ProPaLL"),
        ("alim_one_hot", [], "ALIM (one-hot)"),
        ("glws", [], "GLWS"),
        ("glws", ["cc"], "CC, GLWS views"),
        ("dirk", ["cc"], "CC, DIRK views"),
        ("dirk", ["pico"], "PiCO"),
    ],
)
def test_runs_are_called_by_their_views(views, methods, title):
    setting = choose_setting("digits", "fast", views=views, net="small_cnn")
    setting, chosen = use_views(views, setting, methods)
    (spec, *_) = build_specs("digits", methods=chosen, seeds=1, folds=2, setting=setting)
    assert spec.title == title


def test_propall_has_no_noise_with_strong_views_as_in_the_table_of_images():
    setting = choose_setting("digits", "fast", net="small_cnn")
    assert use_views(None, setting, []) == (setting, [ProPaLL(noise=0.0)])
    assert use_views(None, setting, ["cc", "propall"])[1] == ["cc", ProPaLL(noise=0.0)]
    assert ProPaLL(noise=0.0) == modern_rows()["uniform-0.5"].spec.method
    for setting in (choose_setting("digits"), choose_setting("kmnist", "fast", strong_views=0)):
        assert use_views(None, setting, []) == (setting, ["propall"])


def test_the_balance_term_can_be_chosen():
    assert choose_setting("cifar10", "fast", balance=0.25).recipe.views.balance == 0.25
    complementary = choose_setting("cifar10", "fast", corruption="complementary", balance=0)
    assert complementary.recipe.views.balance == 0
    assert choose_setting("cifar10", "fast", views="glws").recipe.views.balance == 0.1
    with pytest.raises(ValueError, match=r"balance: 0\.5, but the default recipe of cifar10 has no views"):
        choose_setting("cifar10", balance=0.5)
    with pytest.raises(ValueError, match="balance"):
        choose_setting("cifar10", "fast", balance=-1.0)


def test_the_number_of_strong_views_can_be_chosen():
    assert choose_setting("cifar10", "fast", strong_views=2).recipe.views.n_strong == 2
    assert choose_setting("cifar10", "fast", views="pocr", strong_views=1).recipe.views.n_strong == 1
    with pytest.raises(ValueError, match=r"strong_views: 2, but .* fast, resnet18, wrn"):
        choose_setting("cifar10", strong_views=2)
    with pytest.raises(ValueError, match="as pop learns from the agreement of views alone"):
        choose_setting("cifar10", "fast", views="pop", strong_views=0)
    assert choose_setting("cifar10", "fast", strong_views=0).recipe.views.n_strong == 0


@pytest.mark.parametrize(("views", "balance"), [("crdpll", None), ("pocr", None), ("glws", 0.2)])
def test_named_views_without_any_effect_are_refused(views, balance):
    with pytest.raises(
        ValueError,
        match=rf"strong_views: got 0; expected 1 or more, as {views} only .* --method non_candidates\.",
    ):
        choose_setting("cifar10", "fast", views=views, strong_views=0, balance=balance)


def test_named_views_without_strong_views_are_said_to_be_a_balance_term():
    def notes(**options):
        setting = choose_setting("digits", "fast", net="small_cnn", views="glws", **options)
        setting, methods = use_views("glws", setting, [])
        return describe_ignored(build_specs("digits", methods=methods, setting=setting), named_views="glws")

    assert notes(strong_views=0) == ["Without strong views, --views glws adds only a balance term of 0.1."]
    assert notes() == []


def test_ignored_options_are_named_in_sentences():
    setting = choose_setting("digits", "fast", net="small_cnn")
    methods = ["papi", "pico", "pl_knn", "cc"]
    specs = build_specs("digits", methods=methods, seeds=1, setting=setting)
    assert describe_ignored(specs, training=["--net", "--views"], views=["--views"]) == [
        "--net and --views have no effect on PL-KNN, which has no network.",
        "--views has no effect on PaPi and PiCO, which use one weak and one strong view in their own way.",
    ]


def test_half_precision_is_for_gpus_unless_it_is_asked_for():
    assert choose_setting("cifar10", "fast").recipe.precision == "bfloat16"
    assert choose_setting("cifar10", "fast", on_gpu=False).recipe.precision == "float32"
    asked = choose_setting("cifar10", "fast", on_gpu=False, changes={"precision": "bfloat16"})
    assert asked.recipe.precision == "bfloat16"


def test_a_named_recipe_brings_its_network():
    net, recipe = choose_setting("cifar10", "fast", changes={"epochs": 7})
    assert (net, recipe.epochs) == ("fast_convnet", 7)
    assert recipe.views.strong.cutout == 16
    assert choose_setting("cifar10").net == "resnet32"


def test_a_linear_network_on_pixels_has_a_lower_rate():
    assert choose_setting("mnist", net="linear").recipe.learning_rate == 0.01
    assert choose_setting("mnist", net="linear", changes={"learning_rate": 0.3}).recipe.learning_rate == 0.3
    assert choose_setting("lost").recipe.learning_rate == 0.05


def test_digits_are_not_mirrored():
    _, recipe = choose_setting("kmnist", "fast")
    assert not recipe.views.weak.flip
    assert not recipe.views.strong.flip


def test_unknown_names_are_answered_with_near_ones():
    with pytest.raises(ValueError, match="fast"):
        choose_setting("cifar10", "fas")
    with pytest.raises(ValueError, match="resnet18"):
        choose_setting("cifar10", net="resnet_18")
    with pytest.raises(ValueError, match="corruption: unknown name 'unifrom'; did you mean 'uniform'"):
        build_specs("digits", methods=["cc"], corruption="unifrom")
    with pytest.raises(
        ValueError, match="corruption: unknown name 'noise'; expected one of uniform, instance,"
    ):
        build_specs("digits", methods=["cc"], corruption="noise")


def test_views_train_on_flattened_images_and_survive_json(tmp_path):
    setting = choose_setting("digits", "fast", net="small_cnn", changes={"epochs": 1, "batch_size": 256})
    specs = build_specs("digits", methods=["cc"], corruption_fields={"q": 0.3}, seeds=1, setting=setting)
    assert Spec.from_json(specs[0].to_json()) == specs[0]
    _, (result,) = train_runs(specs, tmp_path, device="cpu")
    assert 0 <= result.accuracy <= 1


def test_a_network_that_does_not_fit_the_data_is_answered_with_what_to_type():
    with pytest.raises(
        ValueError, match=r"net: fast_convnet .* 17 x 17 .* digits have 8 x 8\. Use --net small_cnn"
    ):
        choose_setting("digits", "fast")
    assert choose_setting("digits", "fast", net="small_cnn").net == "small_cnn"
    with pytest.raises(ValueError, match=r"net: fast_convnet takes images; lost has none\. Use --net mlp"):
        choose_setting("lost", "fast")
    with pytest.raises(ValueError, match=r"net: small_cnn takes images; blobs has none\. Use --net mlp"):
        choose_setting("blobs", "fast", net="small_cnn")


@pytest.mark.parametrize("data", ["blobs", "lost"])
def test_views_of_rows_that_are_no_images_are_refused(data):
    with pytest.raises(ValueError, match=rf"views: {data} has no images\. Leave out --recipe and --views"):
        choose_setting(data, views="crdpll")
    assert choose_setting(data).recipe.views is None


def test_a_network_trained_without_views_is_refused_in_a_recipe_with_views():
    setting = choose_setting("digits", "fast", net="small_cnn")
    with pytest.raises(ValueError, match="method: VALEN has its own training loop, without views"):
        build_specs("digits", methods=["valen"], setting=setting)
    assert len(build_specs("digits", methods=["pico", "pl_knn"], seeds=1, setting=setting)) == 2
    assert len(build_specs("digits", methods=["valen"], seeds=1)) == 1


def test_complementary_labels_get_a_balance_term():
    assert choose_setting("cifar10", "fast", corruption="complementary").recipe.views.balance == 0.5
    assert choose_setting("cifar10", "fast").recipe.views.balance == 0
    assert choose_setting("digits", corruption="complementary").recipe.views is None
    for views in VIEWS:  # GLWS has one of its own
        setting = choose_setting("cifar10", "fast", views=views, corruption="complementary")
        assert (
            setting.recipe.views.balance == modern_rows()[f"complementary/{views}"].spec.recipe.views.balance
        )
    setting = choose_setting("cifar10", "fast", views="glws", corruption="complementary", balance=0.1)
    assert setting.recipe.views.balance == 0.1


def test_the_balance_term_of_labels_is_told_from_others():
    def weight(corruption, method="cc", **options):
        setting = choose_setting("digits", "fast", net="small_cnn", corruption=corruption, **options)
        return balance_of_labels(
            build_specs("digits", methods=[method], corruption=corruption, setting=setting),
            given=options.get("balance"),
        )

    assert weight("complementary") == weight("complementary", "pico") == 0.5
    assert weight("complementary", balance=0.3) == weight("uniform", views="glws") == 0
    assert weight("complementary", "pl_knn") == 0


@pytest.mark.slow
def test_views_pay_on_digits_with_one_complementary_label(tmp_path):
    accuracies = {}
    # A step with views costs about twice as much: without them, training has twice as many epochs.
    for epochs, with_views in ((12, True), (24, False)):
        net, recipe = choose_setting(
            "digits",
            "fast",
            net="small_cnn",
            corruption="complementary",
            changes={"epochs": epochs, "precision": "float32"},
        )
        setting = NamedRecipe(net, recipe if with_views else replace(recipe, views=None))
        specs = build_specs(
            "digits", methods=["propall"], corruption="complementary", seeds=2, setting=setting
        )
        _, results = train_runs(specs, tmp_path, device="cpu")
        accuracies[with_views] = [result.accuracy for result in results]
    assert min(accuracies[True]) > max(accuracies[False]) + 0.1


def test_settings_of_corruptions_by_name():
    for name, fields in (("instance", {"rate": 0.7}), ("missing_truth", {"q": 0.2, "missing": 0.25})):
        (spec, *_) = build_specs("digits", methods=["cc"], corruption=name, corruption_fields=fields)
        for field, value in fields.items():
            assert getattr(spec.corruption, field) == value


@pytest.mark.parametrize(
    ("corruption", "fields", "message"),
    [
        (
            "instance",
            {"q": 0.3},
            r"--q: got 0.3 for --corruption instance; expected --rate. For --q, use --corruption uniform, "
            r"proden_binomial_min2, pair or missing_truth.",
        ),
        (
            None,
            {"missing": 0.2},
            "--missing: got 0.2 for the default candidate sets, proden_binomial_min2; expected --q. "
            "For --missing, use --corruption missing_truth.",
        ),
        (
            None,
            {"q": 0.3, "n": 3},
            "--q: got 0.3 for the candidate sets of --n-candidates, exactly; expected --n-candidates.",
        ),
        (
            "complementary",
            {"n": 3},
            "--n-candidates: got 3 for --corruption complementary; expected no setting.",
        ),
    ],
)
def test_settings_that_a_corruption_lacks_are_named_as_they_are_typed(corruption, fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        build_specs("digits", methods=["cc"], corruption=corruption, corruption_fields=fields)


def test_the_bar_names_the_methods_and_a_single_run(tmp_path, monkeypatch):
    texts = []
    monkeypatch.setattr(AccuracyBar, "describe", lambda self, text: texts.append(text))
    options = {"seeds": 2, "folds": 2}
    specs = build_specs(
        "digits", methods=["cc", "proden"], setting=choose_setting("digits", changes={"epochs": 1}), **options
    )
    setting = choose_setting("digits", "fast", net="small_cnn", changes={"epochs": 1, "batch_size": 512})
    specs += build_specs("digits", methods=["pico"], setting=setting, **options)[3:]
    with AccuracyBar("digits") as bar:
        train_runs(specs, tmp_path, device="cpu", monitor=bar)
    started = [text for text in texts if "%" not in text]
    assert started == [
        *(f"digits, CC and PRODEN, fold {fold}, 4 runs" for fold in (0, 1)),
        "digits, PiCO, fold 1, seed 1",
    ]
    assert [text.partition(":")[0] for text in texts if "%" in text] == started


def test_everyday_names_of_corruptions_stand_for_those_of_the_catalog():
    (spec,) = build_specs(
        "cifar10", methods=["cc"], corruption="uniform", corruption_fields={"q": 0.5}, seeds=1
    )
    assert spec.corruption == IndependentFlip(0.5)
