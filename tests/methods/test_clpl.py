import numpy as np
import pytest
import torch
from sklearn.svm import LinearSVC

from propall.data.dataset import PartialDataset
from propall.methods.clpl import CLPL, clpl_objective, clpl_optimum
from propall.training.contract import Run


def problem(seed: int = 0, n: int = 40, d: int = 5, k: int = 4) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(seed)
    truth = torch.randint(k, (n,), generator=draw)
    centers = 2 * torch.randn(k, d, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    x = centers[truth] + torch.randn(n, d, generator=draw, dtype=torch.float64)
    candidates = torch.rand(n, k, generator=draw) < 0.3
    candidates[torch.arange(n), truth] = True
    return x, candidates, truth


def literal_objective(weight: torch.Tensor, x: torch.Tensor, candidates: torch.Tensor, c: float) -> float:
    total = 0.5 * float((weight**2).sum())
    for row, inside in zip(x, candidates, strict=True):
        scores = [float(w @ row) for w in weight]
        chosen = [s for s, yes in zip(scores, inside, strict=True) if yes]
        total += c * max(0.0, 1 - sum(chosen) / len(chosen)) ** 2
        total += c * sum(max(0.0, 1 + s) ** 2 for s, yes in zip(scores, inside, strict=True) if not yes)
    return total


def test_objective_term_by_term() -> None:
    x, candidates, _ = problem()
    candidates[0] = True  # a full row has only the first term
    weight = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    value, _ = clpl_objective(weight, x, candidates, 0.7)
    assert float(value) == pytest.approx(literal_objective(weight, x, candidates, 0.7), rel=1e-12)


def test_gradient_is_that_of_the_value() -> None:
    x, candidates, _ = problem()
    weight = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    leaf = weight.clone().requires_grad_()
    clpl_objective(leaf, x, candidates, 0.7)[0].backward()
    torch.testing.assert_close(
        clpl_objective(weight, x, candidates, 0.7)[1], leaf.grad, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("c", [0.001, 1.0, 100.0])
def test_optimum_has_no_gradient(c: float) -> None:
    x, candidates, _ = problem()
    weight = clpl_optimum(x, candidates, c)
    _, gradient = clpl_objective(weight, x, candidates, c)
    start, _ = clpl_objective(torch.zeros_like(weight), x, candidates, c)
    assert gradient.abs().max() <= 1e-7 * start


def test_singletons_are_one_support_vector_machine_per_class() -> None:
    # With one candidate each, the objective separates into binary squared-hinge machines.
    x, _, truth = problem(d=6)
    candidates = torch.nn.functional.one_hot(truth, 4).bool()
    weight = clpl_optimum(x, candidates, 0.5)
    for c in range(4):
        machine = LinearSVC(
            C=0.5, loss="squared_hinge", fit_intercept=False, dual=False, tol=1e-10, max_iter=10_000
        ).fit(x.numpy(), truth.numpy() == c)
        np.testing.assert_allclose(weight[c].numpy(), machine.coef_[0], atol=1e-5)


def test_intercept_is_a_constant_feature() -> None:
    x, candidates, _ = problem()
    [classifier] = CLPL(c=0.3, intercept=True).fit([Run(PartialDataset(x, candidates), 0)])
    wide = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], 1)
    weight = clpl_optimum(wide, candidates, 0.3)
    torch.testing.assert_close(classifier.scores(x), wide @ weight.T, rtol=1e-9, atol=1e-9)
    assert classifier.bias.abs().max() > 1e-3


def test_learns() -> None:
    x, candidates, _ = problem(n=200)
    first, second = CLPL().fit([Run(PartialDataset(x.float(), candidates), seed) for seed in (0, 1)])
    assert isinstance(first, CLPL.classifier)
    assert torch.equal(first.weight, second.weight)
    assert (first.bias == 0).all()
    query, _, answer = problem(1, n=200)
    assert (first.predict(query) == answer).double().mean() > 0.75


def test_uninformative_rows_are_accepted() -> None:
    x, candidates, _ = problem()
    [classifier] = CLPL().fit([Run(PartialDataset(x, torch.ones_like(candidates)), 0)])
    weight = classifier.weight
    torch.testing.assert_close(weight, weight[:1].expand_as(weight), rtol=0, atol=1e-9)


def test_too_few_evaluations_are_reported() -> None:
    x, candidates, _ = problem()
    with pytest.warns(RuntimeWarning, match="evaluations: . left the gradient above tol"):
        CLPL(c=10.0, evaluations=3).fit([Run(PartialDataset(x, candidates), 0)])


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"c: got 0\.0; expected a positive number"):
        CLPL(c=0.0)


@pytest.mark.gpu
def test_cuda_equals_cpu() -> None:
    x, candidates, _ = problem(n=200)
    [here] = CLPL().fit([Run(PartialDataset(x, candidates), 0)])
    [there] = CLPL().fit([Run(PartialDataset(x, candidates).to("cuda"), 0)])
    assert there.weight.is_cuda
    torch.testing.assert_close(there.scores(x).cpu(), here.scores(x), rtol=0, atol=1e-6)
