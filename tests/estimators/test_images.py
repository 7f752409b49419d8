"""Image arrays and views in the scikit-learn estimators."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch import nn

from propall import (
    CandidateLabels,
    PartialLabelClassifier,
    PartialLabelClassifierCV,
    resolve_out_of_fold,
)
from propall.data.augmentation import Augmentation
from propall.estimators.images import channels_first
from propall.methods.propall import ProPaLL
from propall.training.image_views import default_views
from propall.training.named_views import VIEWS

SMALL = {"net": "small_cnn", "net_options": {"widths": (4, 4)}, "epochs": 3, "random_state": 0}


def digits(n=60):
    """Images as bytes, and two candidates each."""
    data = load_digits()
    images = (data.images[:n] * 15).astype(np.uint8)
    mask = np.eye(10, dtype=bool)[data.target[:n]]
    mask[np.arange(n), (data.target[:n] + 1 + np.arange(n) % 3) % 10] = True
    return images, mask


def model(**changes):
    return PartialLabelClassifier(**{**SMALL, "views": True, **changes})


def test_layouts_give_the_same_model():
    images, mask = digits()
    layouts = [images, images[..., None], images[:, None]]
    probabilities = [model().fit(X, mask).predict_proba(X) for X in layouts]
    for other in probabilities[1:]:
        np.testing.assert_array_equal(other, probabilities[0])
    fitted = model().fit(images, mask)
    assert fitted.in_shape_ == (1, 8, 8)
    as_numbers = images[:, None].astype(np.float32) / 255
    np.testing.assert_allclose(fitted.predict_proba(as_numbers), probabilities[0], rtol=1e-5)


def test_propall_has_no_noise_with_strong_views():
    images, mask = digits()
    named, noisy, silent = (
        model(method=method).fit(images, mask).predict_proba(images)
        for method in ("propall", ProPaLL(), ProPaLL(noise=0.0))
    )
    np.testing.assert_array_equal(named, silent)
    assert np.abs(named - noisy).max() > 1e-4
    views = replace(default_views((1, 8, 8)), n_strong=0)
    named, noisy = (
        model(method=method, views=views).fit(images, mask).predict_proba(images)
        for method in ("propall", ProPaLL())
    )
    np.testing.assert_array_equal(named, noisy)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((5, 8, 6), (5, 1, 8, 6)),
        ((5, 8, 6, 3), (5, 3, 8, 6)),
        ((5, 3, 8, 6), (5, 3, 8, 6)),
        ((5, 12, 8, 6), (5, 12, 8, 6)),
        ((5, 3, 3, 3), (5, 3, 3, 3)),
        ((5, 64), (5, 64)),
    ],
)
def test_the_channels_are_found(shape, expected):
    assert channels_first(np.zeros(shape)).shape == expected


def test_pixels_stay_in_place():
    photos = np.arange(2 * 8 * 6 * 3).reshape(2, 8, 6, 3)
    np.testing.assert_array_equal(channels_first(photos)[1, 2], photos[1, :, :, 2])


def test_channels_are_standardized_by_weight():
    images, mask = digits()
    weight = np.r_[np.ones(30), np.zeros(30)]
    fitted = model().fit(images, mask, weight)
    counted = images[:30] / np.float32(255)
    assert fitted.mean_.shape == (1, 1, 1)
    np.testing.assert_allclose(fitted.mean_.item(), counted.mean(), rtol=1e-5)
    np.testing.assert_allclose(fitted.scale_.item(), counted.std(), rtol=1e-5)
    assert model(standardize=False).fit(images, mask).mean_ is None


def test_views_change_the_model_and_true_means_the_defaults():
    images, mask = digits()
    default = model().fit(images, mask).predict_proba(images)
    same = model(views=default_views((1, 8, 8))).fit(images, mask).predict_proba(images)
    np.testing.assert_array_equal(same, default)
    stronger = replace(default_views((1, 8, 8)), strong=Augmentation(crop=2, operations=2))
    assert not np.allclose(model(views=stronger).fit(images, mask).predict_proba(images), default)


def test_a_name_means_published_views_with_the_method_as_base_loss():
    images, mask = digits()
    augmentations = {name: getattr(default_views((1, 8, 8)), name) for name in ("weak", "strong")}
    named = replace(VIEWS["dirk"].with_base(), **augmentations)
    by_name = model(views="dirk").fit(images, mask).predict_proba(images)
    np.testing.assert_array_equal(by_name, model(views=named).fit(images, mask).predict_proba(images))
    assert not np.array_equal(by_name, model().fit(images, mask).predict_proba(images))


@pytest.mark.parametrize("method", ["pico", "papi", "crosel", "able"])
def test_methods_on_two_views_take_images(method, tmp_path):
    images, mask = digits(40)
    fitted = model(method=method, epochs=2).fit(images, mask)
    probabilities = fitted.predict_proba(images)
    assert not np.allclose(probabilities, model(method=method, epochs=2, views=None).fit(images, mask)
                           .predict_proba(images))  # fmt: skip
    fitted.save(tmp_path / "model.safetensors")
    loaded = PartialLabelClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(loaded.predict_proba(images), probabilities, rtol=1e-6)


def test_a_constant_channel_is_no_obstacle():
    images, mask = digits()
    opaque = np.stack([images, images, images, np.full_like(images, 255)], -1)
    probabilities = model().fit(opaque, mask).predict_proba(opaque)
    assert np.isfinite(probabilities).all()


def test_a_list_of_images_is_an_array():
    images, mask = digits()
    from_list = model().fit(list(images), mask).predict_proba(list(images))
    np.testing.assert_array_equal(from_list, model().fit(images, mask).predict_proba(images))
    with pytest.raises(ValueError, match=r"X: images have different shapes, such as \(7, 8\) and \(8, 8\)"):
        model().fit([images[0], images[1][1:], *images[2:]], mask)


@pytest.mark.parametrize(
    "views",
    [True, "glws", replace(default_views((1, 8, 8)), n_strong=2, balance=0.5, prior=(0.1,) * 10, ramp=0.5)],
)
def test_models_with_views_are_saved(views, tmp_path):
    images, mask = digits()
    fitted = model(views=views, n_estimators=2).fit(images, mask)
    fitted.save(tmp_path / "model.safetensors")
    loaded = PartialLabelClassifier.load(tmp_path / "model.safetensors")
    assert loaded.views == views
    np.testing.assert_array_equal(loaded.predict_proba(images), fitted.predict_proba(images))
    assert clone(fitted).views == views


def pixel_kinds(images):
    """The same images as bytes, as the numbers of these bytes, and from 0 to 1."""
    return {
        "bytes": images,
        "numbers": images.astype(float),
        "integers": images.astype(int),
        "unit": images / 255,
    }


@pytest.mark.parametrize("views", [None, True])
@pytest.mark.parametrize("kind", ["bytes", "numbers", "integers", "unit"])
def test_the_same_images_in_another_dtype_give_the_same_answer_or_an_error(kind, views, tmp_path):
    images, mask = digits()
    images[0, 0, 0] = 255
    kinds = pixel_kinds(images)
    fitted = model(views=views, epochs=1).fit(kinds[kind], mask)
    expected = fitted.predict_proba(kinds[kind])
    fitted.save(tmp_path / "model.safetensors")
    loaded = PartialLabelClassifier.load(tmp_path / "model.safetensors")
    assert loaded.pixels_ == fitted.pixels_
    on_unit_scale = ("bytes", "unit")
    for other in kinds:
        if other == "bytes" or (other in on_unit_scale) == (kind in on_unit_scale):
            answer = loaded.predict_proba(kinds[other])
            np.testing.assert_allclose(answer, expected, rtol=1e-3, atol=1e-6, err_msg=other)
        else:
            top, fitted_top, do = (1, 255, "Multiply") if other == "unit" else (255, 1, "Divide")
            with pytest.raises(
                ValueError, match=f"X: got pixels from 0 to {top}; .* from 0 to {fitted_top} .* {do}"
            ):
                loaded.predict(kinds[other])


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        # Sixteen gray levels, as in scikit-learn's digits.
        (lambda x: x // 15.0, lambda x: x, "X: got pixels from 0 to 240; .* from 0 to 16 "),
        (lambda x: x // 15.0, lambda x: x / 240, "X: got pixels from 0 to 1; .* from 0 to 16 .* Scale X"),
        # Not bytes: dividing by 255 would make them black.
        (lambda x: x / 240, lambda x: x // 15.0, "X: got pixels from 0 to 16; .* from 0 to 1 .* Scale X"),
        # A mask stored as bytes.
        (
            lambda x: (x > 0).astype(np.uint8),
            lambda x: (x > 0) * 1.0,
            r"from 0 to 1; .* from 0 to 0\.003922 ",
        ),
        # Standardized by the user.
        (
            lambda x: x / 120 - 1,
            lambda x: x,
            r"X: got pixels from 0 to 240 \(uint8\); .* from -1 to 1\. Scale X",
        ),
        (lambda x: x, lambda x: x / 120 - 1, "X: got pixels from -1 to 1; .* from 0 to 0.9412 .* Scale X"),
    ],
)
def test_images_on_another_scale_are_an_error(train, test, message):
    images, mask = digits()
    fitted = model(epochs=1).fit(train(images), mask)
    with pytest.raises(ValueError, match=message):
        fitted.predict(test(images))


def test_unusual_pixels_on_the_same_scale_are_no_error():
    images, mask = digits()
    on_bytes = model(epochs=1).fit(images, mask)
    on_bytes.predict(images / 255 * 1.1 - 0.05)  # interpolation goes beyond black and white
    on_bytes.predict(0 * images)
    on_numbers = model(epochs=1).fit(images.astype(float), mask)
    on_numbers.predict(np.minimum(images, 1).astype(float))  # nearly black
    measured = images / 60  # no pixels: from 0 to 4 with fractions
    model(epochs=1).fit(measured, mask).predict(measured / 8)


def test_models_without_images_are_saved_without_pixels(tmp_path):
    images, mask = digits()
    flat = PartialLabelClassifier(epochs=1).fit(images.reshape(60, 64), mask)
    assert flat.pixels_ is None
    flat.save(tmp_path / "model.safetensors")
    assert b"pixels" not in (tmp_path / "model.safetensors").read_bytes()


def test_models_without_views_are_saved_as_before(tmp_path):
    images, mask = digits()
    model(views=None).fit(images, mask).save(tmp_path / "model.safetensors")
    content = (tmp_path / "model.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert "views" not in json.loads(header["__metadata__"]["propall"])["parameters"]


def test_resolving_out_of_fold_is_fitting_the_folds():
    images, mask = digits()
    labels = CandidateLabels.from_any(mask)
    folds = [(np.arange(20, 60), np.arange(20)), (np.arange(20), np.arange(20, 60))]
    resolution = resolve_out_of_fold(model(), images, labels, cv=folds, calibrate=False)
    for fit, hold in folds:
        alone = model().fit(images[fit], labels[fit]).resolve(images[hold], mask[hold])
        np.testing.assert_allclose(resolution.probabilities[hold], alone.probabilities, atol=2e-3)


def test_a_search_trains_on_views():
    images, mask = digits()
    search = PartialLabelClassifierCV(
        ["cc"], [("small_cnn", {"widths": (4,)})], learning_rates=[0.01], weight_decays=[0.0], epochs=2, cv=2,
        views=True, random_state=0,
    )  # fmt: skip
    search.fit(images, mask)
    assert search.best_estimator_.views is True
    assert search.predict_proba(images).shape == (60, 10)


def test_the_module_takes_scaled_images():
    images, mask = digits()
    fitted = model().fit(images, mask)
    import torch

    logits = fitted.to_torch()(torch.tensor(images[:, None] / np.float32(255)))
    np.testing.assert_allclose(logits.softmax(-1).detach().numpy(), fitted.predict_proba(images), atol=1e-6)


def test_errors_say_what_to_do():
    images, mask = digits()
    table = images.reshape(60, 64)
    with pytest.raises(ValueError, match=r"views: rows of X have shape \(64,\).* Reshape X to \(n, 8, 8\)"):
        model(net="mlp", net_options=None).fit(table, mask)
    with pytest.raises(ValueError, match=r"views: rows of X have shape \(63,\).* \(n, c, h, w\)"):
        model(net="mlp", net_options=None).fit(table[:, :63], mask)
    with pytest.raises(ValueError, match=r"views: PL-KNN has its own training loop, without views"):
        model(method="pl_knn").fit(images, mask)
    fitted = model().fit(images, mask)
    with pytest.raises(ValueError, match=r"X: rows have shape \(1, 7, 8\); the model was fitted on"):
        fitted.predict(images[:, 1:])
    with pytest.raises(
        ValueError, match=r"X: rows have shape \(3, 8, 8\); the model was fitted on \(1, 8, 8\)"
    ):
        fitted.predict(np.stack([images] * 3, -1))
    with pytest.raises(
        ValueError, match=r"X: got shape \(8, 8\), one image; .* \(1, 8, 8\)\. Pass X\[None\]"
    ):
        fitted.predict(images[0])
    with pytest.raises(ValueError, match=r"rows of shape \(64,\); .* Reshape X to \(n, 1, 8, 8\)"):
        fitted.predict(table)
    with pytest.raises(ValueError, match=r"views: unknown name 'yes'"):
        model(views="yes").fit(images, mask)
    with pytest.raises(TypeError, match=r"views: got 2; expected True, None, a name or a Views"):
        model(views=2).fit(images, mask)


@pytest.mark.parametrize("shape", [(3, 12, 10), (12, 10, 3)])
def test_one_color_image_is_answered_with_what_to_pass(shape):
    X = np.random.default_rng(0).random((8, *shape))
    fitted = model(epochs=1).fit(X, ["a", "b"] * 4)
    with pytest.raises(ValueError, match=r"one image; the model was fitted on images of shape \(3, 12, 10\)"):
        fitted.predict(X[0])
    assert len(fitted.predict(X[0][None])) == 1


def test_a_module_that_cannot_take_the_images_is_named():
    images, mask = digits()
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 10))
    with pytest.raises(ValueError, match=r"net: it cannot take rows of shape \(1, 8, 8\) \(.*3 channels"):
        PartialLabelClassifier(net=net, views=True, epochs=1).fit(images, mask)
