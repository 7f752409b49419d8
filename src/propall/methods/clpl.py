"""CLPL (Cour, Sapp and Taskar): linear scores, high on average over the candidates and low elsewhere."""

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from propall.methods._classical import ClassicalAlgorithm, LinearClassifier
from propall.training.contract import Classifier


def clpl_objective(
    weight: Float[Tensor, "k d"], x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], c: float
) -> tuple[Float[Tensor, ""], Float[Tensor, "k d"]]:
    r"""Convex objective and its gradient.

    .. math:: \tfrac12 \lVert W \rVert^2
        + C \sum_i \Bigl(1 - \frac{1}{|S_i|} \sum_{a \in S_i} s_a(x_i)\Bigr)_+^2
        + C \sum_i \sum_{a \notin S_i} \bigl(1 + s_a(x_i)\bigr)_+^2

    with scores s = W x: a support vector machine with squared hinge loss on the averaged candidates and on
    every other label, written in terms of W so rows need not be repeated per label.

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
    """Minimize `clpl_objective` over W by L-BFGS, starting from zero.

    Stops when no gradient entry exceeds `tol` times the objective at W = 0, or after `evaluations`. The
    objective is 1-strongly convex, so the error of W is at most the norm of the gradient.
    """
    # Importing scipy.optimize takes half a second, which other methods should not pay.
    from scipy.optimize import fmin_l_bfgs_b

    shape = (candidates.shape[1], x.shape[1])
    # Dividing by the value at zero makes the stopping rule independent of C, n and k.
    unit = float(clpl_objective(x.new_zeros(shape), x, candidates, c)[0])

    def evaluate(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weight = torch.from_numpy(flat.reshape(shape)).to(x.device)
        value, gradient = clpl_objective(weight, x, candidates, c)
        return float(value) / unit, np.asarray((gradient / unit).cpu(), dtype=np.float64).ravel()

    start = np.zeros(shape).ravel()
    flat, _, end = fmin_l_bfgs_b(
        evaluate, start, m=20, factr=0, pgtol=tol, maxfun=evaluations, maxiter=evaluations
    )
    # Near the optimum the value can stop changing before the gradient reaches tol, so allow some slack.
    if np.abs(end["grad"]).max() > max(tol, 1e-6):
        warnings.warn(
            f"evaluations: {end['funcalls']} left the gradient above tol={tol}; allow more evaluations.",
            RuntimeWarning,
            stacklevel=2,
        )
    return torch.from_numpy(flat.reshape(shape)).to(x.device)


@dataclass(frozen=True)
class CLPL(ClassicalAlgorithm):
    """Convex learning from partial labels.

    Attributes:
        c: weight of the losses relative to the regularizer.
        intercept: append a constant feature, regularized like the others.
        tol: see `clpl_optimum`.
        evaluations: maximum number of objective evaluations.

    Notes:
        The paper gives no C; 0.01 suits standardized features. Its scores have no intercept.
    """

    c: float = 0.01
    intercept: bool = False
    tol: float = 1e-9
    evaluations: int = 20_000

    name, title, reference = "clpl", "CLPL", "cour2011learning"
    assumes = "scores are linear, and no wrong label always comes with the true one"
    use_when = "As a linear baseline for tables: convex, so the result depends on no seed."
    cost = "2dk per row, tens to hundreds of L-BFGS evaluations"
    classifier = LinearClassifier

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.c <= 0:
            raise ValueError(f"c: got {self.c}; expected a positive number.")

    def fit_rows(self, x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], seed: int) -> Classifier:
        """Minimize the objective."""
        if self.intercept:
            x = torch.cat([x, x.new_ones(len(x), 1)], 1)
        weight = clpl_optimum(x, candidates, self.c, tol=self.tol, evaluations=self.evaluations)
        if self.intercept:
            return LinearClassifier(weight[:, :-1].contiguous(), weight[:, -1].contiguous())
        return LinearClassifier(weight, weight.new_zeros(len(weight)))
