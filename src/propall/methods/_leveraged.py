"""Shared by LWS and LWC: label weights normalized separately over candidates and non-candidates."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.numerics import full_precision


def side_weights(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b k"]:
    r"""Softmax probabilities, normalized over the candidates and over the non-candidates.

    .. math:: w_j = p_j \Big/ \Bigl(\sum_{i \in T_j} p_i + 10^{-8} k\Bigr)

    where T_j is the candidate set if it contains j, and its complement otherwise. The constant is that of the
    authors' code.

    References:
        [wen2021leveraged].
    """
    p = full_precision(logits).softmax(-1)
    inside = (p * candidates).sum(-1, keepdim=True)
    outside = (p * ~candidates).sum(-1, keepdim=True)
    return p / (torch.where(candidates, inside, outside) + 1e-8 * p.shape[-1])
