"""Parts of VALEN's autoencoder: encoder and classifier, decoder, and the reconstruction of the graph."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear

from propall.training.contract import NetFactory, total_weight

#: Rows of the batch's graph compared at once.
GRAPH_ROWS = 1024


class Twins(nn.Module):
    """Classifier and encoder, two networks of the same architecture.

    In training mode the output is (b, 2k + d): the logits of the classifier, those of the encoder, and the
    flattened input, which the decoder has to reconstruct. In evaluation mode it is the classifier's logits.
    """

    def __init__(self, classifier: nn.Module, encoder: nn.Module) -> None:
        super().__init__()
        self.classifier, self.encoder = classifier, encoder

    def forward(self, x: Float[Tensor, "b ..."]) -> Float[Tensor, "b m"]:
        """See the class."""
        if not self.training:
            scores: Tensor = self.classifier(x)
            return scores
        return torch.cat([self.classifier(x), self.encoder(x), x.flatten(1)], -1)


@dataclass(frozen=True)
class TwinsOf:
    """Builds `Twins` of one architecture, whose weights are set later; equal for equal networks."""

    net: NetFactory | nn.Module

    def __call__(self, in_shape: tuple[int, ...], n_classes: int) -> Twins:
        """Both networks."""
        net = copy.deepcopy(self.net) if isinstance(self.net, nn.Module) else self.net(in_shape, n_classes)
        return Twins(net, copy.deepcopy(net))


def new_decoder(n_classes: int, width: int, seed: int = 0) -> dict[str, Tensor]:
    """A decoder k - d - d before training: Xavier-normal weights, biases 0.01."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "first_weight": nn.init.xavier_normal_(torch.empty(width, n_classes), generator=generator),
        "first_bias": torch.full((width,), 0.01),
        "second_weight": nn.init.xavier_normal_(torch.empty(width, width), generator=generator),
        "second_bias": torch.full((width,), 0.01),
    }


def decode(sample: Float[Tensor, "b k"], decoder: Mapping[str, Tensor]) -> Float[Tensor, "b d"]:
    """The input that the decoder reconstructs from a label distribution."""
    hidden = linear(sample, decoder["first_weight"], decoder["first_bias"]).relu()
    return linear(hidden, decoder["second_weight"], decoder["second_bias"])


def adjacency_rows(
    rows: Int[Tensor, "c"],
    neighbours: Int[Tensor, "c m"],
    columns: Int[Tensor, "b"],
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "c b"]:
    """Rows of the adjacency matrix: 1/(m + 1) at the row itself and at each of its m neighbors.

    Args:
        rows: indices of the rows in the training set.
        neighbours: indices of their neighbors in the training set; those outside the columns are ignored.
        columns: indices of the columns in the training set.
        dtype: of the result.
    """
    near = (neighbours.unsqueeze(-1) == columns).any(-2) | (rows.unsqueeze(-1) == columns)
    return near.to(dtype) / (neighbours.shape[-1] + 1)


def graph_reconstruction(
    sample: Float[Tensor, "b k"],
    index: Int[Tensor, "b"],
    neighbours: Int[Tensor, "b m"],
    weight: Float[Tensor, "b"] | None = None,
    *,
    rows_at_once: int = GRAPH_ROWS,
) -> Float[Tensor, ""]:
    r"""Mean squared error of the graph implied by the sampled label distributions.

    .. math:: \frac{1}{b^2} \sum_{ij} \bigl(Q_{ij} - A_{ij}\bigr)^2, \qquad
        Q = \operatorname{rowsoftmax}\bigl(\sigma(z z^\top)\bigr)

    Value and gradient are computed together, a block of rows at a time, so that neither Q nor A is ever
    stored in full: a batch may be the whole training set.

    Args:
        sample: label distributions z of the batch.
        index: indices of the batch in the training set.
        neighbours: indices of each row's neighbors in the training set.
        weight: of each row.
        rows_at_once: rows of Q in memory at the same time.

    References:
        [xu2021instance].
    """
    z, b = sample.detach(), sample.shape[0]
    share = torch.full_like(z[:, 0], 1 / b) if weight is None else weight / total_weight(weight)
    value, as_row, as_column = torch.zeros_like(share.sum()), [], torch.zeros_like(z)
    for first in range(0, b, rows_at_once):
        rows = slice(first, first + rows_at_once)
        link = (z[rows] @ z.T).sigmoid()
        implied = link.softmax(-1)
        error = implied - adjacency_rows(index[rows], neighbours[rows], index, z.dtype)
        value = value + (share[rows] * error.square().mean(-1)).sum()
        gradient = error * (2 / b * share[rows, None])
        gradient = implied * (gradient - (gradient * implied).sum(-1, keepdim=True)) * link * (1 - link)
        as_row.append(gradient @ z)
        as_column = as_column + gradient.T @ z[rows]
    # The value, with this gradient in the sample.
    return value + ((torch.cat(as_row) + as_column) * (sample - z)).sum()
