import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from propall.data.dataset import PartialDataset
from propall.methods.pl_knn import PLKNN, NeighborVoting, pl_knn_votes
from propall.training.contract import Run


def problem(seed: int = 0, n: int = 40, d: int = 3, k: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=draw, dtype=torch.float64)
    candidates = torch.rand(n, k, generator=draw) < 0.4
    candidates[torch.arange(n), torch.randint(k, (n,), generator=draw)] = True
    return x, candidates


def test_votes_equal_a_count_by_hand() -> None:
    x, candidates = problem()
    query = problem(1, n=7)[0]
    distances, neighbors = NearestNeighbors(n_neighbors=5).fit(x.numpy()).kneighbors(query.numpy())
    expected = torch.zeros(7, 4, dtype=torch.float64)
    for i in range(7):
        for a in range(5):
            for c in range(4):
                if candidates[neighbors[i, a], c]:
                    expected[i, c] += 1 - distances[i, a] / distances[i].sum()
    torch.testing.assert_close(pl_knn_votes(query, x, candidates, 5), expected, rtol=0, atol=1e-12)


def test_one_neighbor_votes_in_full() -> None:
    x, candidates = problem()
    query = problem(1, n=7)[0]
    owner = torch.cdist(query, x).argmin(1)
    assert torch.equal(pl_knn_votes(query, x, candidates, 1), candidates[owner].double())


def test_duplicates_of_the_query_vote_equally() -> None:
    x = torch.ones(6, 2)
    candidates = torch.tensor([[1, 0], [1, 1], [0, 1], [1, 0], [1, 0], [0, 1]]).bool()
    assert pl_knn_votes(torch.ones(1, 2), x, candidates, 6).tolist() == [[4.0, 3.0]]
    # Three of six equally distant rows vote: those with the lowest indices.
    assert pl_knn_votes(torch.ones(1, 2), x, candidates, 3).tolist() == [[2.0, 2.0]]


def test_a_tie_falls_to_the_lower_class() -> None:
    x = torch.tensor([[-1.0], [1.0], [9.0]])
    candidates = torch.tensor([[0, 0, 1], [0, 1, 0], [1, 0, 0]]).bool()
    [classifier] = PLKNN(neighbours=2).fit([Run(PartialDataset(x, candidates), 0)])
    scores = classifier.scores(torch.zeros(1, 1))
    assert scores[0, 1] == scores[0, 2] == 0.5
    assert classifier.predict(torch.zeros(1, 1)).tolist() == [1]


def test_fit_keeps_the_training_set() -> None:
    x, candidates = problem()
    [classifier] = PLKNN().fit([Run(PartialDataset(x.float(), candidates), 0)])
    assert isinstance(classifier, PLKNN.classifier)
    assert isinstance(classifier, NeighborVoting)
    query = problem(1, n=7)[0].float()
    assert torch.equal(classifier.scores(query), pl_knn_votes(query, x.float(), candidates, 10))
    assert classifier.scores(query[:0]).shape == (0, 4)
    images = NeighborVoting(x, candidates, 3).scores(query.reshape(7, 3, 1, 1))
    assert torch.equal(images, pl_knn_votes(query, x, candidates, 3))


def test_refuses_more_neighbors_than_rows() -> None:
    x, candidates = problem(n=9)
    with pytest.raises(ValueError, match="neighbours: got 10, but there are only 9 rows"):
        PLKNN().fit([Run(PartialDataset(x, candidates), 0)])
    [classifier] = PLKNN(neighbours=9).fit([Run(PartialDataset(x, candidates), 0)])
    assert classifier.scores(x).isfinite().all()
