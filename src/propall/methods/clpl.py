"""CLPL (Cour, Sapp and Taskar): a linear score that is high on average over the candidates, low elsewhere."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from propall.methods._classical import LinearClassifier, rows_and_candidates
from propall.training.contract import Algorithm, Classifier, Monitor, Run


def clpl_objective(
    weight: Float[Tensor, "k d"], x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], c: float
) -> tuple[Float[Tensor, ""], Float[Tensor, "k d"]]:
    r"""The convex objective and its gradient.

    .. math:: \tfrac12 \lVert W \rVert^2
        + C \sum_i \Bigl(1 - \frac{1}{|S_i|} \sum_{a \in S_i} s_a(x_i)\Bigr)_+^2
        + C \sum_i \sum_{a \notin S_i} \bigl(1 + s_a(x_i)\bigr)_+^2

    with scores s = W x. It is a support vector machine with squared hinge on the averaged candidates against
    every other label, written in W so that no row is ever repeated per label.

    Args:
        weight: W.
        x: features.
        candidates: True on S; every row holds at least one True. A full row keeps its first term.
        c: the factor C.

    Returns:
        The value (0-d) and the gradient in W.

    References:
        [cour2011learning].
    """
    scores = x @ weight.T
    share = candidates / candidates.sum(1, keepdim=True, dtype=x.dtype)
    low = (1 - (scores * share).sum(1, keepdim=True)).clamp(min=0)
    high = (1 + scores).clamp(min=0) * ~candidates
    value = 0.5 * weight.square().sum() + c * (low.square().sum() + high.square().sum())
    return value, weight + (2 * c) * (high - low * share).T @ x


def clpl_optimum(
    x: Float[Tensor, "n d"],
    candidates: Bool[Tensor, "n k"],
    c: float,
    *,
    tol: float = 1e-9,
    evaluations: int = 20_000,
) -> Float[Tensor, "k d"]:
    """The W that minimises `clpl_objective`, by L-BFGS from zero.

    Args:
        x: features, float64.
        candidates: True on S.
        c: the factor C.
        tol: stop where no entry of the gradient exceeds this share of the objective at zero.
        evaluations: most evaluations of the objective.

    Notes:
        The objective minus half the squared norm is convex, so W is off by at most the gradient's norm.
    """
    # Half a second that only this method should cost.
    from scipy.optimize import fmin_l_bfgs_b

    shape = (candidates.shape[1], x.shape[1])
    # Divided by its value at zero, the objective starts at 1 whatever C, n and k are.
    unit = float(clpl_objective(x.new_zeros(shape), x, candidates, c)[0])

    def evaluate(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weight = torch.from_numpy(flat.reshape(shape)).to(x.device)
        value, gradient = clpl_objective(weight, x, candidates, c)
        return float(value) / unit, np.asarray((gradient / unit).cpu(), dtype=np.float64).ravel()

    flat, _, end = fmin_l_bfgs_b(
        evaluate,
        np.zeros(shape).ravel(),
        m=20,
        factr=0,
        pgtol=tol,
        maxfun=evaluations,
        maxiter=evaluations,
    )
    # Close to the optimum the value stands still to its last digit before the gradient does; that is enough.
    if np.abs(end["grad"]).max() > max(tol, 1e-6):
        warnings.warn(
            f"evaluations: {end['funcalls']} did not bring the gradient below tol={tol}; allow more of them.",
            RuntimeWarning,
            stacklevel=2,
        )
    return torch.from_numpy(flat.reshape(shape)).to(x.device)


@dataclass(frozen=True)
class CLPL(Algorithm):
    """Convex learning from partial labels.

    Attributes:
        c: weight of the losses against half the squared norm of W.
        intercept: append a constant feature, whose weights are regularised like the others.
        tol: see `clpl_optimum`.
        evaluations: most evaluations of the objective.

    References:
        [cour2011learning].

    Notes:
        The article names no C; 0.01 suits standardised features. The scores have no intercept there.
    """

    c: float = 0.01
    intercept: bool = False
    tol: float = 1e-9
    evaluations: int = 20_000

    name, title, reference = "clpl", "CLPL", "cour2011learning"
    memory = "none"
    cost = "2dk per row and evaluation, tens to hundreds of evaluations"
    classifier: ClassVar[type[Classifier]] = LinearClassifier

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.c <= 0:
            raise ValueError(f"c: {self.c} is not positive; without losses there is nothing to learn.")

    def fit(self, runs: Sequence[Run], *, monitor: Monitor | None = None) -> list[Classifier]:
        """The unique optimum of every run."""
        return [self._fit(run) for run in runs]

    def _fit(self, run: Run) -> LinearClassifier:
        x, candidates = rows_and_candidates(run, self.title)
        if self.intercept:
            x = torch.cat([x, x.new_ones(len(x), 1)], 1)
        weight = clpl_optimum(x, candidates, self.c, tol=self.tol, evaluations=self.evaluations)
        if self.intercept:
            return LinearClassifier(weight[:, :-1].contiguous(), weight[:, -1].contiguous())
        return LinearClassifier(weight, weight.new_zeros(len(weight)))
