import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from propall.data.dataset import PartialDataset
from propall.methods._neighbors import BUDGET, nearest
from propall.methods.ipal import (
    IPAL,
    NeighbourReconstruction,
    calibrate,
    class_residuals,
    nonnegative_least_squares,
    propagate,
    reconstruction_weights,
    unit_rows,
)
from propall.training.contract import Run


def blobs(seed: int = 0, n: int = 90, d: int = 12, k: int = 3) -> tuple[torch.Tensor, ...]:
    """Separated classes, each with a random other candidate."""
    draw = torch.Generator().manual_seed(seed)
    truth = torch.randint(k, (n,), generator=draw)
    centres = 2 * torch.randn(k, d, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    x = centres[truth] + torch.randn(n, d, generator=draw, dtype=torch.float64)
    candidates = torch.rand(n, k, generator=draw) < 0.4
    candidates[torch.arange(n), truth] = True
    return x, candidates, truth


def least_squares(seed: int, b: int, a: int, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    near = torch.randn(b, a, d, generator=draw, dtype=torch.float64)
    return near, torch.randn(b, d, generator=draw, dtype=torch.float64) + near.mean(1)


def solve(near: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return nonnegative_least_squares(near @ near.mT, (near @ x[..., None])[..., 0])


def one_by_one(near: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.stack([nnls(b.T.numpy(), v.numpy())[0] for b, v in zip(near, x, strict=True)]))


def residual(near: torch.Tensor, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return (x - (weights[..., None] * near).sum(1)).square().sum(1)


@pytest.mark.parametrize(("a", "d"), [(1, 5), (2, 2), (10, 30), (25, 40)])
def test_pivoting_equals_an_active_set_solver(a: int, d: int) -> None:
    near, x = least_squares(a, 60, a, d)
    weights = solve(near, x)
    assert (weights >= 0).all()
    assert a == 1 or (weights == 0).any()
    torch.testing.assert_close(weights, one_by_one(near, x), rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    "case", ["duplicates", "few features", "zero rows", "all equal", "nearly duplicates"]
)
def test_singular_matrices_reach_the_same_residual(case: str) -> None:
    near, x = least_squares(3, 60, 10, 4 if case == "few features" else 20)
    if case == "duplicates":
        near[:, 5:] = near[:, :5]
    elif case == "zero rows":
        near[:, 3:] = 0
    elif case == "all equal":
        near[:] = near[:, :1]
    elif case == "nearly duplicates":
        near[:, 5:] = near[:, :5] * (1 + 1e-7 * torch.arange(1, 6, dtype=torch.float64)[:, None])
    weights = solve(near, x)
    assert weights.isfinite().all()
    assert (weights >= 0).all()
    best = residual(near, x, one_by_one(near, x))
    assert (residual(near, x, weights) <= best + 1e-9 * x.square().sum(1)).all()


def test_duplicated_rows_share_their_weight() -> None:
    # Of all minimisers the one of least norm: twins get the same.
    near, x = least_squares(4, 30, 6, 20)
    near[:, 3:] = near[:, :3]
    weights = solve(near, x)
    torch.testing.assert_close(weights[:, 3:], weights[:, :3], rtol=0, atol=1e-6)
    alone = one_by_one(near[:, :3], x)
    torch.testing.assert_close(weights[:, :3] + weights[:, 3:], alone, rtol=0, atol=1e-6)


def test_nothing_to_rebuild_from() -> None:
    assert (nonnegative_least_squares(torch.zeros(2, 3, 3), torch.zeros(2, 3)) == 0).all()
    # Neighbours that all point away from the row.
    near, x = -torch.eye(3, dtype=torch.float64)[None], torch.ones(1, 3, dtype=torch.float64)
    assert (solve(near, x) == 0).all()
    assert nonnegative_least_squares(torch.zeros(0, 3, 3), torch.zeros(0, 3)).shape == (0, 3)


def test_problems_that_flipping_everything_would_cycle_on() -> None:
    # Nearly collinear rows of both signs: among 5000 such problems some settle by single flips only.
    draw = torch.Generator().manual_seed(5)
    near = torch.randn(5000, 4, 4, generator=draw, dtype=torch.float64)
    sign = torch.randn(5000, 3, 1, generator=draw, dtype=torch.float64).sign()
    near[:, 1:] = sign * near[:, :1] + 0.1 * near[:, 1:]
    gram, target = near @ near.mT, torch.randn(5000, 4, generator=draw, dtype=torch.float64)
    weights = nonnegative_least_squares(gram, target)
    # The conditions that make a weight vector the minimiser.
    slope = (gram @ weights[..., None])[..., 0] - target
    scale = 1 + (gram.abs() @ weights[..., None])[..., 0]
    assert (weights >= 0).all()
    assert (slope / scale > -1e-9).all()
    assert (slope[weights > 0] / scale[weights > 0]).abs().max() < 1e-9


def test_weights_rebuild_rows_from_their_neighbours() -> None:
    x, _, _ = blobs(n=30)
    found, _ = nearest(x, x, 6, exclude_self=True)
    weights = reconstruction_weights(x, x, found)
    torch.testing.assert_close(weights, one_by_one(x[found], x), rtol=0, atol=1e-11)


@pytest.mark.parametrize("rounds", [0, 1, 7])
def test_propagation_equals_the_dense_form(rounds: int) -> None:
    x, candidates, _ = blobs(n=25)
    found, _ = nearest(x, x, 4, exclude_self=True)
    weights = reconstruction_weights(x, x, found)
    weights[3] = 0  # a row that nothing rebuilds hears nothing
    dense = torch.zeros(25, 25, dtype=torch.float64).scatter(1, found, weights)
    dense = dense / dense.sum(1, keepdim=True).clamp(min=1e-300)
    start = candidates / candidates.sum(1, keepdim=True).double()
    expected = start
    for _ in range(rounds):
        expected = (0.9 * dense @ expected + 0.1 * start) * candidates
        expected = expected / expected.sum(1, keepdim=True)
    confidence, done = propagate(candidates, found, weights, alpha=0.9, rounds=rounds)
    assert done == rounds
    torch.testing.assert_close(confidence, expected, rtol=0, atol=1e-13)
    torch.testing.assert_close(confidence[3], start[3])


def test_propagation_stops_once_it_stands_still() -> None:
    x, candidates, _ = blobs(n=40)
    found, _ = nearest(x, x, 5, exclude_self=True)
    weights = reconstruction_weights(x, x, found)
    confidence, done = propagate(candidates, found, weights, tol=1e-6, rounds=500)
    assert 2 < done < 500
    before, _ = propagate(candidates, found, weights, rounds=done - 1)
    earlier, _ = propagate(candidates, found, weights, rounds=done - 2)
    assert (confidence - before).norm() < 1e-6 <= (before - earlier).norm()


def test_calibration_restores_class_masses_per_class() -> None:
    candidates = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 1, 0]]).bool()
    confidence = torch.tensor([[0.9, 0.1, 0], [0.7, 0.3, 0], [0, 1, 0]], dtype=torch.float64)
    corrected = calibrate(confidence, candidates)
    torch.testing.assert_close(corrected.sum(0), torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64))
    # The class that propagation shrank wins the row it had narrowly lost.
    assert confidence.argmax(1).tolist() == [0, 0, 1]
    assert corrected.argmax(1).tolist() == [0, 0, 1]
    torch.testing.assert_close(
        corrected[1, 1] / corrected[1, 0], torch.tensor(0.3 / 0.7 * (2 / 1.4) / (1 / 1.6)).double()
    )


def test_class_residuals_by_hand() -> None:
    x, _, truth = blobs(n=30)
    query = blobs(1, n=5)[0]
    found, _ = nearest(query, x, 8)
    weights = reconstruction_weights(query, x, found)
    residuals = class_residuals(query, x, found, weights, truth, 4)
    for i in range(5):
        for c in range(4):
            rebuilt = torch.zeros(12, dtype=torch.float64)
            for a in range(8):
                if truth[found[i, a]] == c:
                    rebuilt += weights[i, a] * x[found[i, a]]
            expected = (query[i] - rebuilt).square().sum()
            torch.testing.assert_close(residuals[i, c], expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(residuals[:, 3], query.square().sum(1))


def test_learns_and_disambiguates() -> None:
    x, candidates, truth = blobs()
    [classifier] = IPAL().fit([Run(PartialDataset(x, candidates), 0)])
    assert isinstance(classifier, IPAL.classifier)
    assert isinstance(classifier, NeighbourReconstruction)
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


def test_rows_on_a_scale_of_their_own() -> None:
    # Unit rows make the length of a row irrelevant, in training and in prediction.
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


def test_duplicated_training_rows_and_one_neighbour() -> None:
    x, candidates, truth = blobs(n=30)
    x, candidates, truth = x.repeat(3, 1), candidates.repeat(3, 1), truth.repeat(3)
    for neighbours in (1, 10):
        [classifier] = IPAL(neighbours=neighbours).fit([Run(PartialDataset(x, candidates), 0)])
        scores = classifier.scores(x)
        assert scores.isfinite().all()
        # A twin rebuilds a row exactly, so the row gets its twin's label; one twin alone adds no more.
        assert candidates.gather(1, scores.argmax(1, keepdim=True)).all()
    assert (scores.argmax(1) == truth).double().mean() > 0.8


def test_refusals() -> None:
    x, candidates, _ = blobs(n=10)
    with pytest.raises(ValueError, match="neighbours: 10 were asked for among the 9 other rows of 10"):
        IPAL().fit([Run(PartialDataset(x, candidates), 0)])
    with pytest.raises(ValueError, match=r"alpha: 1\.0 is not in \[0, 1\)"):
        IPAL(alpha=1.0)


@pytest.mark.gpu
def test_cuda_equals_cpu() -> None:
    x, candidates, _ = blobs(n=200)
    [here] = IPAL().fit([Run(PartialDataset(x, candidates), 0)])
    [there] = IPAL().fit([Run(PartialDataset(x, candidates).to("cuda"), 0)])
    torch.testing.assert_close(there.scores(x).cpu(), here.scores(x), rtol=0, atol=1e-10)
