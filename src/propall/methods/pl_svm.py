"""PL-SVM (Nguyen and Caruana): the best candidate beats the best other label by a margin."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from propall.counter_rng import order, seed_for, uniform
from propall.methods._classical import LinearClassifier, rows_and_candidates
from propall.training.contract import Algorithm, Classifier, Monitor, Run

#: What `lam="auto"` chooses from.
LAMBDAS = tuple(10.0**power for power in range(-3, 4))


def margins(
    scores: Float[Tensor, "n k"], candidates: Bool[Tensor, "n k"]
) -> tuple[Float[Tensor, "n"], Int[Tensor, "n"], Int[Tensor, "n"]]:
    """Best candidate's score minus the best other label's, and which labels they are (lowest on ties).

    Infinite where every label is a candidate.
    """
    inside = scores.masked_fill(~candidates, -torch.inf).max(1)
    outside = scores.masked_fill(candidates, -torch.inf).max(1)
    return inside.values - outside.values, inside.indices, outside.indices


def pl_svm_objective(
    weight: Float[Tensor, "k d"], x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], lam: float
) -> Float[Tensor, ""]:
    r"""Regularised hinge loss of the margin between the best candidate and the best other label.

    .. math:: \frac{\lambda}{2} \lVert W \rVert_F^2 + \frac1n \sum_i
        \Bigl(1 - \max_{a \in S_i} s_a(x_i) + \max_{a \notin S_i} s_a(x_i)\Bigr)_+

    with scores s = W x. Convex only where every set has one label. A row whose every label is a candidate
    costs nothing.

    References:
        [nguyen2008classification].
    """
    margin, _, _ = margins(x @ weight.T, candidates)
    return lam / 2 * weight.square().sum() + (1 - margin).clamp(min=0).mean()


def into_ball(weight: Float[Tensor, "k d"], lam: float) -> Float[Tensor, "k d"]:
    """W scaled down to Frobenius norm 1/sqrt(lambda) where it is longer; no optimum lies outside."""
    norm = torch.linalg.vector_norm(weight)
    shrink: Tensor = (lam**-0.5 / norm).clamp(max=1.0)
    return weight * shrink


def pegasos_round(
    weight: Float[Tensor, "k d"], x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], lam: float, t: int
) -> Float[Tensor, "k d"]:
    r"""Round t (from 1) of projected subgradient descent on `pl_svm_objective` over all rows.

    .. math:: W \leftarrow \Pi\Bigl[\bigl(1 - \tfrac1t\bigr) W + \frac{1}{\lambda t n}
        \sum_{i : \text{margin} < 1} (e_{a_i} - e_{b_i}) x_i^\top\Bigr]

    with a the best candidate, b the best other label and the projection of `into_ball`. Round 1 keeps nothing
    of the start but its choice of labels.

    References:
        [nguyen2008classification].
    """
    margin, best, rival = margins(x @ weight.T, candidates)
    violated = (margin < 1).to(x.dtype)[:, None]
    pull = torch.zeros_like(candidates, dtype=x.dtype).scatter(1, best[:, None], violated)
    # A row without a rival has an infinite margin and a pull of 0, so nothing of worth is overwritten there.
    pull = pull.scatter(1, rival[:, None], -violated)
    # Summed before it is scaled: equal sums of whole numbers stay equal, so their ties go to the lower label.
    return into_ball((1 - 1 / t) * weight + (pull.T @ x) / (lam * t * len(x)), lam)


def pegasos(
    start: Float[Tensor, "k d"],
    x: Float[Tensor, "n d"],
    candidates: Bool[Tensor, "n k"],
    lam: float,
    rounds: int,
    keep: Literal["last", "best", "average"] = "last",
) -> Float[Tensor, "k d"]:
    """W after `rounds` times `pegasos_round`.

    Args:
        start: the first W.
        x: features.
        candidates: True on S; every row holds at least one True.
        lam: the regulariser's factor lambda.
        rounds: how many rounds.
        keep: the last W, the one of lowest objective, or the average over the second half.
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
class PLSVM(Algorithm):
    """Maximum-margin learning from partial labels by projected subgradient descent.

    Attributes:
        lam: the regulariser's factor, or "auto": the one of `LAMBDAS` whose predictions fall most often into
            the candidate sets of a held-out fifth of the training rows (the larger of equals).
        rounds: rounds over all rows.
        start: "random" (uniform on (0, 1), scaled into the ball) or "zeros", where all scores tie and the
            first round favours low class indices.
        keep: which iterate is returned, see `pegasos`.

    References:
        [nguyen2008classification].

    Notes:
        Public code stops once an objective with the spectral norm of W in place of the squared Frobenius norm
        stands still, and masks by subtracting 1e5; here the rounds are fixed and the mask is infinite.
    """

    lam: float | Literal["auto"] = 0.01
    rounds: int = 1000
    start: Literal["random", "zeros"] = "random"
    keep: Literal["last", "best", "average"] = "last"

    name, title, reference = "pl_svm", "PL-SVM", "nguyen2008classification"
    memory = "none"
    cost = "4dk per row and round, 1000 rounds"
    classifier: ClassVar[type[Classifier]] = LinearClassifier

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lam != "auto" and not self.lam > 0:
            raise ValueError(f'lam: {self.lam} is not positive; give a factor above 0 or "auto".')
        if self.rounds < 1:
            raise ValueError(f"rounds: {self.rounds}; at least one is needed.")

    def fit(self, runs: Sequence[Run], *, monitor: Monitor | None = None) -> list[Classifier]:
        """One weight matrix per run."""
        return [self._fit(run) for run in runs]

    def _fit(self, run: Run) -> LinearClassifier:
        x, candidates = rows_and_candidates(run, self.title)
        lam = self.select(x, candidates, run.seed) if self.lam == "auto" else self.lam
        weight = self.train(x, candidates, lam, run.seed)
        return LinearClassifier(weight, weight.new_zeros(len(weight)))

    def train(
        self, x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], lam: float, seed: int
    ) -> Float[Tensor, "k d"]:
        """`pegasos` from this seed's start."""
        label = torch.arange(candidates.shape[1], device=x.device)[:, None]
        feature = torch.arange(x.shape[1], device=x.device)
        start = uniform(seed_for(seed, "initialisation"), label, feature, dtype=torch.float64)
        start = into_ball(start if self.start == "random" else torch.zeros_like(start), lam)
        return pegasos(start, x, candidates, lam, self.rounds, self.keep)

    def select(self, x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], seed: int) -> float:
        """The factor of `LAMBDAS` with the highest candidate accuracy on held-out rows; needs no truth."""
        if len(x) < 2:
            raise ValueError('lam: "auto" needs 2 rows or more to hold some out; give a number.')
        shuffled = order(seed_for(seed, "lambda"), torch.arange(len(x), device=x.device))
        held, rest = shuffled.tensor_split([max(1, len(x) // 5)])

        def accuracy(lam: float) -> float:
            weight = self.train(x[rest], candidates[rest], lam, seed)
            chosen = (x[held] @ weight.T).argmax(1, keepdim=True)
            return float(candidates[held].gather(1, chosen).double().mean())

        return max(reversed(LAMBDAS), key=accuracy)
