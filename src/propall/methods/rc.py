"""RC (Feng et al.): risk-consistent loss, cross-entropy with weights from the outputs after each step."""

from dataclasses import dataclass

from propall.methods._label_weights import LabelWeights


@dataclass(frozen=True)
class RC(LabelWeights):
    r"""Risk-consistent partial label learning.

    .. math:: \ell = -\sum_{j \in S} w_j \log p_j

    with p = softmax(r) and w an estimate of the label posterior given the candidate set S. The loss is
    PRODEN's, but the weights are updated later: `update` sees logits computed after the optimizer step, so
    they already reflect this visit's step.

    References:
        [feng2020provably].

    Notes:
        The constant factor of the paper's risk estimator is omitted, as in the authors' code; it does not
        change the optimum. That code normalizes the weights of all instances after each step. Only those of
        the batch can have changed, so only they are updated here.
    """

    name, title, reference = "rc", "RC", "feng2020provably"
    assumes = "every set that contains the true label is equally likely"
    use_when = (
        "To compare with PRODEN: the same loss, with weights from a second forward pass after each step."
    )
    cost = "2 forward + 1 backward"
    fresh_logits = True
