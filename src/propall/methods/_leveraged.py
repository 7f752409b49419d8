"""What LWS and LWC share: weights relative to the candidate and the non-candidate side."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.numerics import full_precision


def side_weights(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b k"]:
    r"""Softmax probabilities, divided by the mass of their own side: candidates or non-candidates.

    .. math:: w_j = p_j \Big/ \Bigl(\sum_{i \text{ on the side of } j} p_i + 10^{-8} k\Bigr)

    The small number is in the authors' code.

    References:
        [wen2021leveraged].
    """
    p = full_precision(logits).softmax(-1)
    inside = (p * candidates).sum(-1, keepdim=True)
    outside = (p * ~candidates).sum(-1, keepdim=True)
    return p / (torch.where(candidates, inside, outside) + 1e-8 * p.shape[-1])
