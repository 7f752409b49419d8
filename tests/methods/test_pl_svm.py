import math

import pytest
import torch

from propall.data.dataset import PartialDataset
from propall.methods.pl_svm import (
    LAMBDAS,
    PLSVM,
    into_ball,
    margins,
    pegasos,
    pegasos_round,
    pl_svm_objective,
)
from propall.training.contract import Run


def problem(seed: int = 0, n: int = 60, d: int = 5, k: int = 4) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(seed)
    truth = torch.randint(k, (n,), generator=draw)
    centers = 2 * torch.randn(k, d, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    x = centers[truth] + torch.randn(n, d, generator=draw, dtype=torch.float64)
    candidates = torch.rand(n, k, generator=draw) < 0.3
    candidates[torch.arange(n), truth] = True
    return x, candidates, truth


def weights(seed: int, k: int = 4, d: int = 5) -> torch.Tensor:
    return torch.randn(k, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_margins_by_hand() -> None:
    scores = torch.tensor([[1.0, 5.0, 5.0], [2.0, 2.0, 0.0], [1.0, 0.0, 9.0], [1e7, 2e7, -1e7]])
    candidates = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 1, 1], [0, 0, 1]]).bool()
    margin, best, rival = margins(scores, candidates)
    assert margin.tolist() == [0.0, 0.0, math.inf, -3e7]
    assert best.tolist() == [1, 1, 2, 2]
    assert rival.tolist()[:2] == [2, 0]
    assert rival[3] == 1


def test_ties_take_the_lowest_label() -> None:
    candidates = torch.tensor([[0, 1, 1, 0, 0], [1, 0, 0, 1, 1]]).bool()
    _, best, rival = margins(torch.zeros(2, 5), candidates)
    assert best.tolist() == [1, 0]
    assert rival.tolist() == [0, 1]


def test_objective_term_by_term() -> None:
    x, candidates, _ = problem()
    candidates[0] = True
    weight = weights(1)
    expected = 0.15 * float((weight**2).sum())
    for row, inside in zip(x, candidates, strict=True):
        scores = weight @ row
        if not inside.all():
            expected += max(0.0, 1 - float(scores[inside].max() - scores[~inside].max())) / len(x)
    assert float(pl_svm_objective(weight, x, candidates, 0.3)) == pytest.approx(expected, rel=1e-12)


def test_a_round_is_a_projected_subgradient_step() -> None:
    x, candidates, _ = problem()
    candidates[0] = True
    lam, t = 0.05, 7
    weight = into_ball(weights(2), lam).requires_grad_()
    pl_svm_objective(weight, x, candidates, lam).backward()
    assert weight.grad is not None
    expected = into_ball(weight.detach() - weight.grad / (lam * t), lam)
    torch.testing.assert_close(
        pegasos_round(weight.detach(), x, candidates, lam, t), expected, rtol=1e-12, atol=1e-12
    )


def test_projection() -> None:
    weight = weights(3)
    assert float(into_ball(weight, 4.0).norm()) == pytest.approx(0.5)
    assert torch.equal(into_ball(0.01 * weight, 1.0), 0.01 * weight)
    assert torch.equal(into_ball(torch.zeros(2, 2), 1.0), torch.zeros(2, 2))


def test_the_first_round_depends_on_the_start_only_through_its_labels() -> None:
    x, candidates, _ = problem()
    small = 1e-6 * weights(4)
    torch.testing.assert_close(
        pegasos_round(small, x, candidates, 0.1, 1), pegasos_round(2 * small, x, candidates, 0.1, 1)
    )


def test_which_iterate_is_kept() -> None:
    x, candidates, _ = problem()
    start = into_ball(weights(5), 0.01)
    path, weight = [], start
    for t in range(1, 12):
        weight = pegasos_round(weight, x, candidates, 0.01, t)
        path.append(weight)
    values = [float(pl_svm_objective(w, x, candidates, 0.01)) for w in path]
    keep = {how: pegasos(start, x, candidates, 0.01, 11, how) for how in ("last", "best", "average")}
    assert torch.equal(keep["last"], path[-1])
    assert torch.equal(keep["best"], path[values.index(min(values))])
    torch.testing.assert_close(keep["average"], torch.stack(path[5:]).mean(0))


def test_converges_on_singletons() -> None:
    # With one label each, the objective is convex: both starts reach the same value.
    x, _, truth = problem()
    candidates = torch.nn.functional.one_hot(truth, 4).bool()
    values = [
        float(pl_svm_objective(pegasos(weights(s), x, candidates, 0.1, 2000, "best"), x, candidates, 0.1))
        for s in (6, 7)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-3)


def test_learns_and_depends_on_the_seed_alone() -> None:
    x, candidates, _ = problem(n=200)
    same, again, other = PLSVM(rounds=100).fit(
        [Run(PartialDataset(x.float(), candidates), seed) for seed in (0, 0, 1)]
    )
    assert isinstance(same, PLSVM.classifier)
    assert torch.equal(same.weight, again.weight)
    assert not torch.equal(same.weight, other.weight)
    query, _, answer = problem(1, n=200)
    assert (same.predict(query) == answer).double().mean() > 0.85


def test_zeros_need_no_seed() -> None:
    x, candidates, _ = problem()
    first, second = PLSVM(rounds=20, start="zeros").fit(
        [Run(PartialDataset(x, candidates), seed) for seed in (0, 1)]
    )
    assert torch.equal(first.weight, second.weight)
    torch.testing.assert_close(
        first.weight, pegasos(torch.zeros(4, 5, dtype=torch.float64), x, candidates, 0.01, 20)
    )


def test_automatic_lambda_is_the_best_on_held_out_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    x, candidates, _ = problem(n=100)
    method = PLSVM(lam="auto", rounds=30)
    seen: dict[float, tuple[int, float]] = {}
    train = PLSVM.train

    def spy(self: PLSVM, x: torch.Tensor, candidates: torch.Tensor, lam: float, seed: int) -> torch.Tensor:
        # A flipped sign makes all lambdas but one predict the worst label.
        weight = train(self, x, candidates, lam, seed)
        weight = weight if lam == 0.1 else -weight
        seen[lam] = (len(x), lam)
        return weight

    monkeypatch.setattr(PLSVM, "train", spy)
    assert method.select(x, candidates, seed=3) == 0.1
    assert set(seen) == set(LAMBDAS)
    assert {rows for rows, _ in seen.values()} == {80}


def test_automatic_lambda_trains_with_what_it_selects() -> None:
    x, candidates, _ = problem(n=100)
    lam = PLSVM(lam="auto", rounds=30).select(x, candidates, seed=0)
    run = Run(PartialDataset(x, candidates), 0)
    [automatic], [explicit] = PLSVM(lam="auto", rounds=30).fit([run]), PLSVM(lam=lam, rounds=30).fit([run])
    assert lam in LAMBDAS
    assert torch.equal(automatic.weight, explicit.weight)


def test_uninformative_rows_are_dropped() -> None:
    x, candidates, _ = problem()
    [classifier] = PLSVM(rounds=5).fit([Run(PartialDataset(x, torch.ones_like(candidates)), 0)])
    assert (classifier.weight == 0).all()


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"lam: got 0\.0; expected a positive number"):
        PLSVM(lam=0.0)
    with pytest.raises(ValueError, match="rounds: got 0"):
        PLSVM(rounds=0)
    one = Run(PartialDataset(torch.ones(1, 2), torch.tensor([[True, False]])), 0)
    with pytest.raises(ValueError, match="lam: 'auto' needs at least 2 rows"):
        PLSVM(lam="auto").fit([one])


@pytest.mark.gpu
def test_cuda_equals_cpu() -> None:
    x, candidates, _ = problem(n=200)
    [here] = PLSVM(rounds=50).fit([Run(PartialDataset(x, candidates), 0)])
    [there] = PLSVM(rounds=50).fit([Run(PartialDataset(x, candidates).to("cuda"), 0)])
    torch.testing.assert_close(there.scores(x).cpu(), here.scores(x), rtol=0, atol=1e-9)


def test_equal_pulls_tie_exactly():
    # Eleven rows pull label 1 by 1 each, one row pulls label 2 by 11: the scores tie exactly.
    x = torch.tensor([1.0] * 11 + [11.0], dtype=torch.float64)[:, None]
    candidates = torch.eye(3).bool()[[1] * 11 + [2]]
    for lam in (0.01, 0.03, 0.07, 0.3, 0.7):
        weight = pegasos(torch.zeros(3, 1, dtype=torch.float64), x, candidates, lam, 1)
        assert weight[1] == weight[2] > 0
