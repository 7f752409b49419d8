"""Shared by Forest and Boosting: the next label distribution from predictions of held-out rows."""

import numpy as np
import torch
from jaxtyping import Bool, Float

from propall.numerics import balance_classes, uniform_weights


def next_targets(
    weights: Float[np.ndarray, "n k"],
    mask: Bool[np.ndarray, "n k"],
    otherwise: Float[np.ndarray, "n k"],
    *,
    balanced: bool,
) -> Float[np.ndarray, "n k"]:
    """Weights on the candidates, normalized; `otherwise` in rows where they are all 0 or not finite.

    Args:
        weights: nonnegative numbers.
        mask: the candidates.
        otherwise: a distribution on the candidates.
        balanced: give every class the share that it has in the uniform distribution on the candidates.
    """
    inside = np.where(mask, weights, 0.0)
    total = inside.sum(1, keepdims=True)
    usable = np.isfinite(total) & (total > 0)
    target = np.where(usable, inside / np.where(usable, total, 1.0), otherwise)
    if not balanced:
        return target
    shares = uniform_weights(torch.from_numpy(mask), torch.float64).mean(0)
    return np.asarray(balance_classes(torch.from_numpy(target), shares).numpy())
