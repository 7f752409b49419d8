import math

import pytest
import torch
from jaxtyping import TypeCheckError

from propall import counter_rng
from propall.data.augmentation import Augmentation, change_colors, cut_out, shifted_crop, warp

LOW, HIGH = torch.zeros(3, 1, 1), torch.ones(3, 1, 1)


def images(n=6, channels=3, size=12):
    return torch.rand(n, channels, size, size, generator=torch.Generator().manual_seed(3))


def draws(augmentation, n, *, epoch=0, view=0, seed=0):
    slots = torch.arange(augmentation.n_draws)
    rows = torch.arange(n)[:, None]
    return counter_rng.uniform(
        counter_rng.seed_for(seed, "views"), epoch, rows, view, slots, dtype=torch.float32
    )


def test_nothing_asked_changes_nothing():
    augmentation, x = Augmentation(flip=False, crop=0), images()
    assert torch.equal(augmentation(x, draws(augmentation, 6), low=LOW, high=HIGH), x)


def test_consecutive_epochs_with_the_same_draws_show_both_mirror_images():
    augmentation, x = Augmentation(crop=0), images()
    u = draws(augmentation, 6)
    even = augmentation(x, u, torch.tensor(False), low=LOW, high=HIGH)
    odd = augmentation(x, u, torch.tensor(True), low=LOW, high=HIGH)
    assert torch.equal(odd, even.flip(-1))
    assert any(torch.equal(a, b) for a, b in zip(even, x, strict=True))


def test_an_image_depends_on_its_own_draws_alone():
    augmentation, x = Augmentation.strong(12), images()
    u = draws(augmentation, 6)
    together = augmentation(x, u, low=LOW, high=HIGH)
    for i in range(6):
        alone = augmentation(x[i : i + 1], u[i : i + 1], low=LOW, high=HIGH)
        torch.testing.assert_close(alone[0], together[i])
    assert not torch.equal(together, augmentation(x, draws(augmentation, 6, view=1), low=LOW, high=HIGH))
    assert torch.equal(together, augmentation(x, draws(augmentation, 6), low=LOW, high=HIGH))


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_crops_are_windows_of_the_reflected_image(chance):
    x = images(2)
    padded = torch.nn.functional.pad(x, [4] * 4, mode="reflect")
    start = int(chance * 9)
    cropped = shifted_crop(x, torch.full((2, 2), chance), 4)
    assert torch.equal(cropped, padded[:, :, start : start + 12, start : start + 12])


def test_crops_shift_rows_by_the_first_draw_and_columns_by_the_second():
    x = images(1)
    padded = torch.nn.functional.pad(x, [4] * 4, mode="reflect")
    assert torch.equal(shifted_crop(x, torch.tensor([[0.0, 0.999]]), 4), padded[:, :, :12, 8:])


def test_holes_are_clipped_squares_of_zeros():
    x = torch.ones(3, 1, 10, 10)
    holes = cut_out(x, torch.tensor([[0.5, 0.5], [0.0, 0.0], [0.999, 0.5]]), 4) == 0
    assert holes.sum((1, 2, 3)).tolist() == [16, 4, 12]
    assert holes[0, 0, 3:7, 3:7].all()


def test_pixel_scale_does_not_matter():
    augmentation, x = Augmentation(operations=2, cutout=0), images()
    u = draws(augmentation, 6)
    mean, std = torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1), torch.tensor([0.2, 0.3, 0.1]).view(3, 1, 1)
    plain = augmentation(x, u, low=LOW, high=HIGH)
    scaled = augmentation((x - mean) / std, u, low=-mean / std, high=(1 - mean) / std)
    torch.testing.assert_close(scaled * std + mean, plain, atol=2e-5, rtol=0)


def test_warp_rotates_about_the_center():
    x = torch.zeros(1, 1, 9, 9)
    x[0, 0, 4, 4] = 1
    turned = warp(x, torch.tensor([[0]]), torch.tensor([[[1.0, 0.0]]]))
    assert turned[0, 0, 4, 4] > 0.9
    unchanged = warp(x, torch.tensor([[7]]), torch.tensor([[[1.0, 1.0]]]))
    torch.testing.assert_close(unchanged, x)


def test_warp_composes_the_operations_of_an_image():
    x = images(1, 1, 16)
    half = math.radians(15) / (math.pi / 6)
    twice = warp(x, torch.tensor([[0, 0]]), torch.tensor([[[half, 0.0], [half, 0.0]]]))
    once = warp(x, torch.tensor([[0]]), torch.tensor([[[1.0, 0.0]]]))
    torch.testing.assert_close(twice, once, atol=1e-5, rtol=0)


def test_warp_translates_by_a_share_of_half_the_side():
    x = images(1, 1, 20)
    moved = warp(x, torch.tensor([[3]]), torch.tensor([[[1.0, 0.0]]]))
    torch.testing.assert_close(moved[..., :17], x[..., 3:], atol=1e-5, rtol=0)
    moved = warp(x, torch.tensor([[3]]), torch.tensor([[[0.0, -1.0]]]))
    torch.testing.assert_close(moved[..., 3:, :], x[..., :17, :], atol=1e-5, rtol=0)


def test_shears_along_both_axes_are_alike():
    x, amount = images(1, 1, 16), torch.tensor([[[0.8, 0.3]]])
    along_x, along_y = warp(x, torch.tensor([[1]]), amount), warp(x.mT, torch.tensor([[2]]), amount)
    torch.testing.assert_close(along_y, along_x.mT)
    assert not torch.allclose(along_x, x, atol=0.1)


def test_strength_scales_the_operations():
    augmentation, x = Augmentation(flip=False, crop=0, operations=1, strength=0.5), images(1)
    u = torch.full((1, augmentation.n_draws), 0.999)
    u[:, 5] = 0.0  # rotate
    expected = warp(x, torch.tensor([[0]]), torch.tensor([[[0.499, 0.499]]]))
    torch.testing.assert_close(augmentation(x, u, low=LOW, high=HIGH), expected)


def test_contrast_moves_pixels_away_from_the_mean_gray():
    x = images(2)
    gray = (x * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1).mean((1, 2))[:, None, None, None]
    expected = (gray + 1.45 * (x - gray)).clamp(0, 1)
    torch.testing.assert_close(change_colors(x, torch.full((2,), 1), torch.full((2,), 0.5)), expected)


@pytest.mark.parametrize(
    ("kind", "amount", "expected"),
    [
        (0, 1.0, lambda z: (1.9 * z).clamp(0, 1)),
        (0, 0.0, lambda z: z),
        (3, 1.0, lambda z: z),
        (3, -1.0, lambda z: 1 - z),
        (4, -1.0, lambda z: (z * 8).floor() / 8),
        (9, 1.0, lambda z: z),
        (-2, 1.0, lambda z: z),
    ],
)
def test_colors(kind, amount, expected):
    x = images(2)
    changed = change_colors(x, torch.full((2,), kind), torch.full((2,), amount))
    torch.testing.assert_close(changed, expected(x))


def test_autocontrast_uses_the_whole_range():
    x = 0.3 + 0.2 * images(2)
    changed = change_colors(x, torch.full((2,), 5), torch.zeros(2))
    torch.testing.assert_close(changed.amin((2, 3)), torch.zeros(2, 3))
    torch.testing.assert_close(changed.amax((2, 3)), torch.ones(2, 3), atol=1e-4, rtol=0)


def test_saturation_leaves_gray_images_alone():
    gray = images(2, 1).expand(-1, 3, -1, -1)
    changed = change_colors(gray, torch.full((2,), 2), torch.ones(2))
    torch.testing.assert_close(changed, gray)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flip", "sometimes"),
        ("crop", -1),
        ("operations", 1.5),
        ("cutout", -3),
        ("strength", -1.0),
        ("strength", "high"),
    ],
)
def test_bad_values_are_named(name, value):
    # With PROPALL_CHECK_SHAPES=1, the wrong type is refused first.
    with pytest.raises((ValueError, TypeCheckError), match=rf"^{name}: |parameter '{name}'"):
        Augmentation(**{name: value})


def test_a_constant_channel_stays_as_it_is():
    images = torch.rand(20, 4, 8, 8)
    images[:, 3] = 1.0
    low, high = images.amin((0, 2, 3))[:, None, None], images.amax((0, 2, 3))[:, None, None]
    augmentation = Augmentation(crop=1, operations=2)
    augmented = augmentation(images, torch.rand(20, augmentation.n_draws), low=low, high=high)
    assert augmented.isfinite().all()
    assert (augmented[:, 3] == 1).all()


def test_images_smaller_than_the_shift_are_refused():
    augmentation = Augmentation(crop=4)
    with pytest.raises(ValueError, match="crop: got 4 for images of 3 x 8 pixels"):
        augmentation(torch.rand(2, 1, 3, 8), torch.rand(2, augmentation.n_draws), low=torch.zeros(1, 1, 1),
                     high=torch.ones(1, 1, 1))  # fmt: skip


def test_images_smaller_than_the_hole_are_refused():
    # The defaults are for 32 pixels; on 8 x 8 pixels, every strong view would be empty.
    strong = Augmentation.strong()
    with pytest.raises(
        ValueError, match=r"cutout: got 16 for images of 8 x 8 pixels.*Augmentation\.strong\(8\)"
    ):
        strong(torch.rand(2, 1, 8, 8), torch.rand(2, strong.n_draws), low=torch.zeros(1, 1, 1),
               high=torch.ones(1, 1, 1))  # fmt: skip
