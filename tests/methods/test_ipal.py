import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from propall.data.dataset import PartialDataset
from propall.methods._neighbors import BUDGET, nearest
from propall.methods.ipal import (
    IPAL,
    NeighborReconstruction,
    calibrate,
    class_residuals,
    propagate,
    reconstruction_weights,
    unit_rows,
)
from propall.training.contract import Run


def blobs(seed: int = 0, n: int = 90, d: int = 12, k: int = 3) -> tuple[torch.Tensor, ...]:
    """Separated classes with random additional candidates."""
    draw = torch.Generator().manual_seed(seed)
    truth = torch.randint(k, (n,), generator=draw)
    centers = 2 * torch.randn(k, d, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    x = centers[truth] + torch.randn(n, d, generator=draw, dtype=torch.float64)
    candidates = torch.rand(n, k, generator=draw) < 0.4
    candidates[torch.arange(n), truth] = True
    return x, candidates, truth


def one_by_one(near: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.stack([nnls(b.T.numpy(), v.numpy())[0] for b, v in zip(near, x, strict=True)]))


def test_weights_reconstruct_rows_from_their_neighbors() -> None:
    x, _, _ = blobs(n=30)
    neighbors, _ = nearest(x, x, 6, exclude_self=True)
    weights = reconstruction_weights(x, x, neighbors)
    torch.testing.assert_close(weights, one_by_one(x[neighbors], x), rtol=0, atol=1e-11)


@pytest.mark.parametrize("rounds", [0, 1, 7])
def test_propagation_equals_the_dense_form(rounds: int) -> None:
    x, candidates, _ = blobs(n=25)
    neighbors, _ = nearest(x, x, 4, exclude_self=True)
    weights = reconstruction_weights(x, x, neighbors)
    weights[3] = 0  # a row without weights receives nothing
    dense = torch.zeros(25, 25, dtype=torch.float64).scatter(1, neighbors, weights)
    dense = dense / dense.sum(1, keepdim=True).clamp(min=1e-300)
    start = candidates / candidates.sum(1, keepdim=True).double()
    expected = start
    for _ in range(rounds):
        expected = (0.9 * dense @ expected + 0.1 * start) * candidates
        expected = expected / expected.sum(1, keepdim=True)
    confidence, done = propagate(candidates, neighbors, weights, alpha=0.9, rounds=rounds)
    assert done == rounds
    torch.testing.assert_close(confidence, expected, rtol=0, atol=1e-13)
    torch.testing.assert_close(confidence[3], start[3])


def test_propagation_stops_when_it_converges() -> None:
    x, candidates, _ = blobs(n=40)
    neighbors, _ = nearest(x, x, 5, exclude_self=True)
    weights = reconstruction_weights(x, x, neighbors)
    confidence, done = propagate(candidates, neighbors, weights, tol=1e-6, rounds=500)
    assert 2 < done < 500
    before, _ = propagate(candidates, neighbors, weights, rounds=done - 1)
    earlier, _ = propagate(candidates, neighbors, weights, rounds=done - 2)
    assert (confidence - before).norm() < 1e-6 <= (before - earlier).norm()


def test_calibration_restores_class_masses_per_class() -> None:
    candidates = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 1, 0]]).bool()
    confidence = torch.tensor([[0.9, 0.1, 0], [0.7, 0.3, 0], [0, 1, 0]], dtype=torch.float64)
    corrected = calibrate(confidence, candidates)
    torch.testing.assert_close(corrected.sum(0), torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64))
    # Calibration favors the class whose mass decreased.
    assert confidence.argmax(1).tolist() == [0, 0, 1]
    assert corrected.argmax(1).tolist() == [0, 0, 1]
    torch.testing.assert_close(
        corrected[1, 1] / corrected[1, 0], torch.tensor(0.3 / 0.7 * (2 / 1.4) / (1 / 1.6)).double()
    )


def test_class_residuals_by_hand() -> None:
    x, _, truth = blobs(n=30)
    query = blobs(1, n=5)[0]
    neighbors, _ = nearest(query, x, 8)
    weights = reconstruction_weights(query, x, neighbors)
    residuals = class_residuals(query, x, neighbors, weights, truth, 4)
    for i in range(5):
        for c in range(4):
            reconstructed = torch.zeros(12, dtype=torch.float64)
            for a in range(8):
                if truth[neighbors[i, a]] == c:
                    reconstructed += weights[i, a] * x[neighbors[i, a]]
            expected = (query[i] - reconstructed).square().sum()
            torch.testing.assert_close(residuals[i, c], expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(residuals[:, 3], query.square().sum(1))


def test_learns_and_disambiguates() -> None:
    x, candidates, truth = blobs()
    [classifier] = IPAL().fit([Run(PartialDataset(x, candidates), 0)])
    assert isinstance(classifier, IPAL.classifier)
    assert isinstance(classifier, NeighborReconstruction)
    assert (classifier.labels == truth).double().mean() > 0.95
    assert candidates.gather(1, classifier.labels[:, None]).all()
    query, _, answer = blobs(1)
    assert (classifier.predict(query) == answer).double().mean() > 0.9
    assert classifier.scores(query[:0]).shape == (0, 3)


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    x, candidates, _ = blobs()
    run = Run(PartialDataset(x, candidates), 0)
    [whole] = IPAL().fit([run])
    scores = whole.scores(x)
    monkeypatch.setitem(BUDGET, "cpu", 1 << 13)
    [parts] = IPAL().fit([run])
    torch.testing.assert_close(parts.scores(x), scores, rtol=0, atol=1e-12)


def test_rows_on_different_scales() -> None:
    # With unit rows, the length of a row is irrelevant in training and prediction.
    x, candidates, _ = blobs()
    factor = torch.linspace(0.1, 10, len(x), dtype=torch.float64)[:, None]
    [plain], [scaled] = (IPAL().fit([Run(PartialDataset(rows, candidates), 0)]) for rows in (x, factor * x))
    torch.testing.assert_close(plain.scores(x), scaled.scores(factor * x), rtol=0, atol=1e-9)
    torch.testing.assert_close(unit_rows(torch.zeros(1, 3)), torch.zeros(1, 3))
    [raw] = IPAL(row_normalise=False).fit([Run(PartialDataset(factor * x, candidates), 0)])
    torch.testing.assert_close(raw.x, factor * x)


def test_same_run_same_scores() -> None:
    x, candidates, _ = blobs()
    runs = [Run(PartialDataset(x, candidates), seed) for seed in (0, 0, 7)]
    scores = [classifier.scores(x) for classifier in IPAL().fit(runs)]
    assert torch.equal(scores[0], scores[1])
    assert torch.equal(scores[0], scores[2])


def test_duplicated_training_rows_and_one_neighbor() -> None:
    x, candidates, truth = blobs(n=30)
    x, candidates, truth = x.repeat(3, 1), candidates.repeat(3, 1), truth.repeat(3)
    for neighbours in (1, 10):
        [classifier] = IPAL(neighbours=neighbours).fit([Run(PartialDataset(x, candidates), 0)])
        scores = classifier.scores(x)
        assert scores.isfinite().all()
        # A twin reconstructs a row exactly, so the row gets its twin's label; a second twin adds nothing.
        assert candidates.gather(1, scores.argmax(1, keepdim=True)).all()
    assert (scores.argmax(1) == truth).double().mean() > 0.8


def test_refusals() -> None:
    x, candidates, _ = blobs(n=10)
    with pytest.raises(ValueError, match="neighbours: got 10, but there are only 9 other rows"):
        IPAL().fit([Run(PartialDataset(x, candidates), 0)])
    with pytest.raises(ValueError, match=r"alpha: got 1\.0; expected a number in \[0, 1\)"):
        IPAL(alpha=1.0)


@pytest.mark.gpu
def test_cuda_equals_cpu() -> None:
    x, candidates, _ = blobs(n=200)
    [here] = IPAL().fit([Run(PartialDataset(x, candidates), 0)])
    [there] = IPAL().fit([Run(PartialDataset(x, candidates).to("cuda"), 0)])
    torch.testing.assert_close(there.scores(x).cpu(), here.scores(x), rtol=0, atol=1e-10)


@pytest.mark.parametrize("tol", [None, 1e-3])
def test_visiting_only_candidates_propagates_the_same_labels(tol, monkeypatch) -> None:
    x, candidates, _ = blobs(k=6)
    neighbors, _ = nearest(x, x, 5, exclude_self=True)
    weights = reconstruction_weights(x, x, neighbors)
    weights[3] = 0  # a row without neighbors
    expected, expected_rounds = propagate(candidates, neighbors, weights, tol=tol)
    monkeypatch.setattr("propall.methods.ipal.MANY_CLASSES", 5)
    monkeypatch.setattr("propall.methods.ipal.LARGEST_SHARE", 1.0)
    monkeypatch.setattr("propall.methods.ipal.embedding_bag", None)  # is not called
    confidence, rounds = propagate(candidates, neighbors, weights, tol=tol)
    torch.testing.assert_close(confidence, expected, rtol=1e-10, atol=1e-12)
    assert rounds == expected_rounds
