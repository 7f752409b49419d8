"""D2CNN (Yao et al.): suppress non-candidates, minimize entropy, and agree with past predictions."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from propall.numerics import full_precision, probabilities_and_complements, restrict_weights
from propall.training.contract import Candidates, Logits, RowLosses, RowwiseObjective, State, Step


class D2CNNTerms(NamedTuple):
    """The three unweighted terms of the loss, one value per row."""

    fidelity: Float[Tensor, "*b"]
    entropy: Float[Tensor, "*b"]
    ensembling: Float[Tensor, "*b"]


def d2cnn_terms(
    logits: Float[Tensor, "*b k"],
    candidates: Bool[Tensor, "*b k"],
    teacher: Float[Tensor, "*b k"],
    sample_weights: Tensor | float = 1.0,
) -> D2CNNTerms:
    r"""Fidelity to the candidate set, entropy of the output, and cross-entropy with past outputs.

    .. math::
        -\sum_{j \notin S} \log(1 - p_j + 10^{-5}), \qquad
        -\sum_j p_j \log(p_j + 10^{-10}), \qquad
        -\omega \sum_j q_j \log(p_j + 10^{-5})

    with p = softmax(r). All three are minimized.

    Args:
        logits: scores r.
        candidates: True on S.
        teacher: q, which may be nonzero outside S.
        sample_weights: omega, one per row or a single value.

    References:
        [yao2020deep].
    """
    p, complement = probabilities_and_complements(logits)
    return D2CNNTerms(
        fidelity=-((complement + 1e-5).log() * ~candidates).sum(-1),
        entropy=-(p * (p + 1e-10).log()).sum(-1),
        ensembling=-sample_weights * (teacher * (p + 1e-5).log()).sum(-1),
    )


def d2cnn_loss(
    logits: Float[Tensor, "*b k"],
    candidates: Bool[Tensor, "*b k"],
    teacher: Float[Tensor, "*b k"],
    sample_weights: Tensor | float = 1.0,
    *,
    entropy_weight: Tensor | float = 0.1,
    ensemble_weight: Tensor | float = 1.0,
) -> Float[Tensor, "*b"]:
    r"""Weighted sum of `d2cnn_terms`.

    .. math:: \ell = \text{fidelity} + a \cdot \text{entropy} + v \cdot \text{ensembling}

    Args:
        logits, candidates, teacher, sample_weights: see `d2cnn_terms`.
        entropy_weight: a.
        ensemble_weight: v, see `ramp_up`.

    References:
        [yao2020deep].

    Notes:
        The authors published no code. The terms follow the implementation of VALEN's authors, the likely
        source of the D2CNN results in later papers.
    """
    terms = d2cnn_terms(logits, candidates, teacher, sample_weights)
    return terms.fidelity + entropy_weight * terms.entropy + ensemble_weight * terms.ensembling


def ramp_up(
    epoch: Float[Tensor, ""] | Int[Tensor, ""], length: float | Tensor = 80.0, top: float | Tensor = 1.0
) -> Float[Tensor, ""]:
    r"""Weight of the ensembling term after `epoch` completed epochs.

    .. math:: v(t) = v_{\max} \exp\bigl(-5 (1 - \min(t / T, 1))^2\bigr)

    With length T = 0 there is no ramp.
    """
    return top * (-5 * (1 - (epoch / length).nan_to_num(1.0).clamp(max=1)) ** 2).exp()


def ensemble_average(
    ensemble: Float[Tensor, "*b k"], visits: Int[Tensor, "*b"], momentum: float | Tensor
) -> Float[Tensor, "*b k"]:
    """Bias-corrected moving average of past outputs, Z / (1 - m^t); 0 before the first visit."""
    total_weight = (1 - momentum ** visits.clamp(min=1).to(ensemble.dtype)).unsqueeze(-1)
    return ensemble / total_weight


def teacher_from_ensemble(
    ensemble: Float[Tensor, "*b k"],
    visits: Int[Tensor, "*b"],
    candidates: Bool[Tensor, "*b k"],
    momentum: float | Tensor,
) -> Float[Tensor, "*b k"]:
    """Average of past outputs, normalized over the candidates.

    Uniform over the candidates before the first visit, and where the average underflows on all of them. The
    bias correction of `ensemble_average` cancels in the normalization.
    """
    average = ensemble_average(ensemble, visits, momentum)
    return restrict_weights(average * (visits > 0).unsqueeze(-1), candidates)


@dataclass(frozen=True)
class D2CNN(RowwiseObjective):
    """Discriminative network with temporal ensembling.

    The moving average Z of a row's outputs is updated once per epoch, with the output of the training forward
    pass. The loss of the same step uses Z before the update.

    Attributes:
        entropy_weight: a; worth tuning in {0.01, 0.1, 1}.
        momentum: momentum m of the moving average.
        ramp_epochs: epochs until the ensembling term reaches its full weight; see `ramp_up`.
        ensemble_weight: full weight of the ensembling term.
        row_weight: omega, the same for every row.

    Notes:
        No public source gives the momentum, the row weights, a and the ramp. Momentum and ramp default to the
        values of temporal ensembling (Laine and Aila, 2017).
    """

    entropy_weight: float = 0.1
    momentum: float = 0.6
    ramp_epochs: float = 80.0
    ensemble_weight: float = 1.0
    row_weight: float = 1.0

    name, title, reference = "d2cnn", "D2CNN", "yao2020deep"
    assumes = "the set contains the true label; an average of earlier outputs is a better guess than the last"
    use_when = (
        "For tables: it is among the best of the paper's methods on MSRCv2 and BirdSong. Its ensembling term "
        "needs many epochs."
    )
    memory = "k averaged outputs"

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Start with Z = 0 and no visits."""
        visits = torch.zeros(candidates.shape[0], dtype=torch.int64, device=candidates.device)
        ensemble = torch.zeros(candidates.shape, device=candidates.device)
        return State(rows={"ensemble": ensemble, "visits": visits})

    def losses(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> RowLosses:
        """`d2cnn_loss` with `teacher_from_ensemble`."""
        past, visits = state.rows["ensemble"], state.rows["visits"]
        teacher = teacher_from_ensemble(past, visits, candidates, self.momentum)
        ramped, entropy = ramp_up(step.epoch, self.ramp_epochs, self.ensemble_weight), self.entropy_weight
        return d2cnn_loss(
            logits, candidates, teacher, self.row_weight, entropy_weight=entropy, ensemble_weight=ramped
        )

    def update(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> State:
        """Update Z with the output and count the visit."""
        output = full_precision(logits).softmax(-1)
        return state.with_rows(
            ensemble=self.momentum * state.rows["ensemble"] + (1 - self.momentum) * output,
            visits=state.rows["visits"] + 1,
        )
