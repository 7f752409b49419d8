"""Views for custom loops are those of the engine."""

from dataclasses import replace

import pytest
import torch
from jaxtyping import TypeCheckError

from propall.data.augmentation import Augmentation
from propall.data.dataset import PartialDataset
from propall.training.contract import Run
from propall.training.image_views import ImageViews, default_views
from propall.training.recipe import Recipe
from propall.training.stream import Stream
from propall.training.views import Views

VIEWS = Views(strong=Augmentation(crop=1, operations=2, cutout=3), n_strong=2)


def photos(n=12, channels=3):
    return torch.rand(n, channels, 8, 8, generator=torch.Generator().manual_seed(0))


def test_views_are_those_the_trainer_sees():
    x, index = photos(), torch.tensor([5, 0, 9])
    stream = Stream([Run(PartialDataset(x, torch.ones(12, 3, dtype=torch.bool)), 4)], replace(RECIPE))
    for epoch in range(2):
        expected = stream.batch(index[None], torch.tensor(3 * epoch)).x[0]
        assert torch.equal(torch.cat(ImageViews(x, VIEWS, seed=4)(x[index], index, epoch=epoch)), expected)
    assert not torch.equal(torch.cat(ImageViews(x, VIEWS, seed=5)(x[index], index, epoch=1)), expected)


RECIPE = Recipe(epochs=2, batch_size=4, views=VIEWS)


def test_every_view_and_every_epoch_is_drawn_anew():
    x, augment = photos(), ImageViews(photos(), VIEWS)
    _, first, second = augment(x, torch.arange(12), epoch=0)
    _, later, _ = augment(x, torch.arange(12), epoch=2)
    for other in (second, later):
        assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_which_images_are_mirrored_is_drawn_anew_in_every_epoch():
    still = Augmentation(crop=0)
    augment, index = ImageViews(photos(200), Views(weak=still, strong=still)), torch.arange(200)
    weak = [augment(photos(200), index, epoch=epoch)[0] for epoch in range(3)]
    mirrored = [(part != photos(200)).flatten(1).any(1) for part in weak]
    for earlier, later in ((0, 1), (0, 2)):
        assert 0.3 < (mirrored[earlier] == mirrored[later]).float().mean() < 0.7


def test_alternating_flips_show_both_versions_in_two_epochs():
    x = photos(400)
    flip = Augmentation(flip="alternating", crop=0)
    views = Views(weak=flip, strong=flip)
    by_epoch = [ImageViews(x, views, seed=3)(x, torch.arange(400), epoch=epoch) for epoch in range(4)]
    mirrored = [[(part == x).flatten(1).all(1).logical_not() for part in parts] for parts in by_epoch]
    for view in range(2):
        first, second, third, fourth = (parts[view] for parts in mirrored)
        assert torch.equal(second, ~first)
        assert torch.equal(third, first)
        assert torch.equal(fourth, second)
        assert 150 < int(first.sum()) < 250
        assert torch.equal(by_epoch[0][view][first], x[first].flip(-1))
    assert not torch.equal(mirrored[0][0], mirrored[0][1])  # views are mirrored independently
    other = ImageViews(x, views, seed=4)(x, torch.arange(400))
    assert not torch.equal(other[0], by_epoch[0][0])
    # Everything else is drawn anew in every epoch.
    shifting = replace(views, weak=replace(flip, crop=1), strong=replace(flip, crop=1))
    augment = ImageViews(x, shifting)
    assert not torch.equal(augment(x, torch.arange(400))[0], augment(x, torch.arange(400), epoch=2)[0])
    assert Views.from_dict(views.to_dict()) == views


def test_a_view_does_not_depend_on_its_batch():
    x, augment = photos(), ImageViews(photos())
    together = augment(x, torch.arange(12), epoch=3)
    for i in range(12):
        alone = augment(x[i : i + 1], torch.tensor([i]), epoch=3)
        assert all(torch.equal(a[0], t[i]) for a, t in zip(alone, together, strict=True))
    assert not torch.equal(together[0], together[1])


def test_defaults_by_kind_of_image():
    assert default_views((3, 32, 32)) == Views(balance=0.5, balance_fade=0.5)
    assert not default_views((1, 28, 28)).strong.flip
    assert default_views((1, 28, 28), mirrored=True).strong.flip
    digits = default_views((1, 8, 8))
    assert (digits.weak.crop, digits.strong.crop, digits.strong.cutout) == (0, 1, 2)


def test_errors_say_what_is_expected():
    x = photos()
    for shape in ((8, 8), (1797, 1, 8, 8)):
        with pytest.raises(
            ValueError, match=r"in_shape: got .*; expected \(channels, height, width\) of one"
        ):
            default_views(shape)
    with pytest.raises(ValueError, match=r"views need images of shape \(n, c, h, w\); x has shape \(12, 3\)"):
        ImageViews(torch.rand(12, 3))
    with pytest.raises(TypeError, match=r"images: got torch.uint8; expected floating point"):
        ImageViews(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"index: got shape \(2,\) for 12 images"):
        ImageViews(x)(x, torch.arange(2))
    with pytest.raises(ValueError, match=r"images: got shape \(2, 8, 8, 3\), whose channels seem to be last"):
        ImageViews(torch.zeros(2, 8, 8, 3))
    refused = (TypeError, TypeCheckError)  # with PROPALL_CHECK_SHAPES=1, by the annotation
    with pytest.raises(
        refused, match=r"images: got ndarray; .* torch.as_tensor\(images\)|parameter 'images'"
    ):
        ImageViews(x.numpy())
    with pytest.raises(refused, match=r"views: got 'crdpll'; expected a Views|parameter 'views'"):
        ImageViews(x, "crdpll")
    with pytest.raises(ValueError, match=r"images: got none; expected the training images"):
        ImageViews(x[:0])
    spoiled = x.clone()
    spoiled[3, 0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"images: 1 rows contain NaN or infinity \(first: 3\)"):
        ImageViews(spoiled)
    with pytest.raises(ValueError, match=r"images: got 1 channels; the training images had 3"):
        ImageViews(x)(x[:, :1], torch.arange(12))
    with pytest.raises(
        ValueError, match=r"images: got values up to 255; those of the training images reach 1\."
    ):
        ImageViews(x / x.max())(255 * x / x.max(), torch.arange(12))
    for index in (list(range(12)), torch.arange(12.0)):
        with pytest.raises(refused, match=r"index: got .*; expected a tensor of integers|parameter 'index'"):
            ImageViews(x)(x, index)


@pytest.mark.compiled
def test_compiled_views_are_the_same_images():
    images = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    augment, index = ImageViews(images), torch.arange(64)
    fast = torch.compile(lambda x, i, epoch: augment(x, i, epoch=epoch), fullgraph=True)
    for epoch in range(4):  # from the second on, the epoch is a variable of the compiled code
        for view, expected in zip(
            fast(images, index, epoch), augment(images, index, epoch=epoch), strict=True
        ):
            torch.testing.assert_close(view, expected, rtol=0, atol=1e-4)
