"""PL-SVM (Nguyen and Caruana): maximize the margin between the best candidate and the best other label."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from propall.counter_rng import order, seed_for, uniform
from propall.methods._classical import ClassicalAlgorithm, LinearClassifier
from propall.training.contract import Classifier

#: Values that `lam="auto"` selects from.
LAMBDAS = tuple(10.0**power for power in range(-3, 4))


def margins(
    scores: Float[Tensor, "n k"], candidates: Bool[Tensor, "n k"]
) -> tuple[Float[Tensor, "n"], Int[Tensor, "n"], Int[Tensor, "n"]]:
    """Margin between the best candidate and the best other label, and both labels (ties: lowest index).

    The margin is infinite where every label is a candidate.
    """
    inside = scores.masked_fill(~candidates, -torch.inf).max(1)
    outside = scores.masked_fill(candidates, -torch.inf).max(1)
    return inside.values - outside.values, inside.indices, outside.indices


def pl_svm_objective(
    weight: Float[Tensor, "k d"], x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], lam: float
) -> Float[Tensor, ""]:
    r"""Regularized hinge loss of the margin between the best candidate and the best other label.

    .. math:: \frac{\lambda}{2} \lVert W \rVert_F^2 + \frac1n \sum_i
        \Bigl(1 - \max_{a \in S_i} s_a(x_i) + \max_{a \notin S_i} s_a(x_i)\Bigr)_+

    with scores s = W x. Convex only if every set has one label. A row in which every label is a candidate has
    zero loss.

    References:
        [nguyen2008classification].
    """
    margin, _, _ = margins(x @ weight.T, candidates)
    return lam / 2 * weight.square().sum() + (1 - margin).clamp(min=0).mean()


def into_ball(weight: Float[Tensor, "k d"], lam: float) -> Float[Tensor, "k d"]:
    """Project W onto the ball of Frobenius norm 1/sqrt(lambda), which contains every optimum."""
    norm = torch.linalg.vector_norm(weight)
    shrink: Tensor = (lam**-0.5 / norm).clamp(max=1.0)
    return weight * shrink


def pegasos_round(
    weight: Float[Tensor, "k d"], x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], lam: float, t: int
) -> Float[Tensor, "k d"]:
    r"""Round t (from 1) of projected subgradient descent on `pl_svm_objective` over all rows.

    .. math:: W \leftarrow \Pi\Bigl[\bigl(1 - \tfrac1t\bigr) W + \frac{1}{\lambda t n}
        \sum_{i : \text{margin} < 1} (e_{a_i} - e_{b_i}) x_i^\top\Bigr]

    with a the best candidate, b the best other label and the projection `into_ball`. Round 1 depends on the
    initial W only through the labels a and b.
    """
    margin, best, rival = margins(x @ weight.T, candidates)
    violated = (margin < 1).to(x.dtype)[:, None]
    pull = torch.zeros_like(candidates, dtype=x.dtype).scatter(1, best[:, None], violated)
    # Without a rival the margin is infinite and both values are 0, so overwriting is harmless.
    pull = pull.scatter(1, rival[:, None], -violated)
    # Sum before scaling: equal sums of integers stay exactly equal, so ties go to the lower label.
    return into_ball((1 - 1 / t) * weight + (pull.T @ x) / (lam * t * len(x)), lam)


def pegasos(
    start: Float[Tensor, "k d"],
    x: Float[Tensor, "n d"],
    candidates: Bool[Tensor, "n k"],
    lam: float,
    rounds: int,
    keep: Literal["last", "best", "average"] = "last",
) -> Float[Tensor, "k d"]:
    """Run `pegasos_round` repeatedly from the initial W.

    Returns the last W, the one with the lowest objective, or the average over the second half of the rounds.
    """
    weight, kept = start, start
    lowest, averaged = torch.inf, 0
    for t in range(1, rounds + 1):
        weight = pegasos_round(weight, x, candidates, lam, t)
        if keep == "best":
            value = float(pl_svm_objective(weight, x, candidates, lam))
            if value < lowest:
                lowest, kept = value, weight
        elif keep == "average" and t > rounds // 2:
            averaged += 1
            kept = weight if averaged == 1 else kept + (weight - kept) / averaged
    return weight if keep == "last" else kept


@dataclass(frozen=True)
class PLSVM(ClassicalAlgorithm):
    """Maximum-margin learning from partial labels by projected subgradient descent.

    Attributes:
        lam: regularization strength, or "auto": the value of `LAMBDAS` whose predictions most often lie in
            the candidate sets of a held-out fifth of the training rows (ties: the larger value).
        rounds: number of rounds over all rows.
        start: "random" (uniform on (0, 1), projected onto the ball) or "zeros", where all scores tie and the
            first round favors low class indices.
        keep: which iterate to return, see `pegasos`.

    Notes:
        Public code stops when an objective with the spectral norm of W instead of the squared Frobenius norm
        stops changing, and masks by subtracting 1e5. Here the number of rounds is fixed and masks are exact.
    """

    lam: float | Literal["auto"] = 0.01
    rounds: int = 1000
    start: Literal["random", "zeros"] = "random"
    keep: Literal["last", "best", "average"] = "last"

    name, title, reference = "pl_svm", "PL-SVM", "nguyen2008classification"
    assumes = "scores are linear, and the best candidate beats every other label by a margin"
    use_when = (
        'As a linear baseline with a margin; `lam="auto"` chooses its regularization without true labels.'
    )
    cost = "4dk per row, 1,000 rounds"
    classifier = LinearClassifier

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lam != "auto" and not self.lam > 0:
            raise ValueError(f"lam: got {self.lam}; expected a positive number or 'auto'.")
        if self.rounds < 1:
            raise ValueError(f"rounds: got {self.rounds}; expected at least 1.")

    def fit_rows(self, x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], seed: int) -> Classifier:
        """Fit the weight matrix."""
        lam = self.select(x, candidates, seed) if self.lam == "auto" else self.lam
        weight = self.train(x, candidates, lam, seed)
        return LinearClassifier(weight, weight.new_zeros(len(weight)))

    def train(
        self, x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], lam: float, seed: int
    ) -> Float[Tensor, "k d"]:
        """Run `pegasos` from the initial W of this seed."""
        label = torch.arange(candidates.shape[1], device=x.device)[:, None]
        feature = torch.arange(x.shape[1], device=x.device)
        start = uniform(seed_for(seed, "initialisation"), label, feature, dtype=torch.float64)
        start = into_ball(start if self.start == "random" else torch.zeros_like(start), lam)
        return pegasos(start, x, candidates, lam, self.rounds, self.keep)

    def select(self, x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], seed: int) -> float:
        """Select lambda by the candidate accuracy on held-out rows, which needs no true labels."""
        if len(x) < 2:
            raise ValueError(f"lam: 'auto' needs at least 2 rows, got {len(x)}; pass a number instead.")
        shuffled = order(seed_for(seed, "lambda"), torch.arange(len(x), device=x.device))
        held_out, rest = shuffled.tensor_split([max(1, len(x) // 5)])

        def accuracy(lam: float) -> float:
            weight = self.train(x[rest], candidates[rest], lam, seed)
            predicted = (x[held_out] @ weight.T).argmax(1, keepdim=True)
            return float(candidates[held_out].gather(1, predicted).double().mean())

        return max(reversed(LAMBDAS), key=accuracy)
