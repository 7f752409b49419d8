import math

import pytest
import torch
from sklearn.datasets import load_digits

from propall.data.synthetic import LOADERS, blobs, digits


def nearest_center_accuracy(n: int, d: int, k: int, spread: float) -> float:
    source = blobs(n, d, k, spread=spread)
    x, truth = source.x, source.truth
    centers = torch.stack([x[truth == label].mean(0) for label in range(k)])
    predicted = torch.cdist(source.test_x, centers).argmin(-1)
    return float((predicted == source.test_truth).double().mean())


@pytest.mark.parametrize(("d", "k"), [(2, 3), (4, 5), (10, 10), (3, 2)])
def test_blobs_are_balanced_scaled_and_easy(d: int, k: int) -> None:
    source = blobs(20 * k * 10, d, k)
    assert source.x.shape == (200 * k, d)
    assert torch.bincount(source.truth).tolist() == [200] * k
    assert torch.bincount(source.test_truth).tolist() == [200] * k
    assert abs(float(source.x.square().mean()) - 1) < 0.1
    assert nearest_center_accuracy(200 * k, d, k, 1.0) > 0.98


def test_wide_blobs_overlap() -> None:
    # Neighbors are 6 apart: with a deviation of 3, about two thirds of the rows are nearest to their center.
    assert 0.6 < nearest_center_accuracy(4000, 4, 5, 3.0) < 0.76


def test_blobs_are_a_function_of_their_seed() -> None:
    assert torch.equal(blobs(seed=4).x, blobs(seed=4).x)
    assert not torch.equal(blobs(seed=4).x, blobs(seed=5).x)
    assert not torch.equal(blobs().x, blobs().test_x)


def test_rows_are_normal_around_their_center() -> None:
    n, d, k = 8000, 3, 2
    source = blobs(n, d, k, spread=1.5)
    scale = math.sqrt(9.0 / d + 1.5**2)
    for label in range(k):
        rows = source.x[source.truth == label].double() * scale
        z = (rows - rows.mean(0)) / 1.5
        assert (z.square().mean(0) - 1).abs().max() < 5 * (2 / len(z)) ** 0.5
        assert (z.pow(4).mean(0) - 3).abs().max() < 5 * (96 / len(z)) ** 0.5
        assert abs(float((z[:, 0] * z[:, 1]).mean())) < 5 / len(z) ** 0.5


@pytest.mark.parametrize(("n", "d", "k"), [(10, 1, 3), (10, 2, 1), (2, 2, 3)])
def test_invalid_blobs_are_refused(n: int, d: int, k: int) -> None:
    with pytest.raises(ValueError, match="n, d, k: got "):
        blobs(n, d, k)


def test_digits_are_complete_and_the_split_is_fixed() -> None:
    source = digits()
    bundled = load_digits()
    assert (len(source), len(source.test_raw)) == (1437, 360)
    rows = torch.cat([source.raw, source.test_raw]).tolist()
    assert sorted(rows) == sorted(bundled.data.astype(int).tolist())
    assert torch.bincount(torch.cat([source.truth, source.test_truth])).tolist() == [
        178, 182, 177, 183, 181, 182, 181, 179, 174, 180,
    ]  # fmt: skip
    assert source.x.min() == 0
    assert source.x.max() == 1
    assert torch.equal(source.test_raw, digits().test_raw)


@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: loader.name)
def test_built_in_data_matches_its_description(loader, tmp_path) -> None:
    source = loader.load(tmp_path / "nowhere")
    assert source.name == loader.name
    assert (len(source), len(source.test_raw)) == (loader.n, loader.n_test)
    assert tuple(source.raw.shape[1:]) == loader.shape
    assert source.n_classes == loader.n_classes
