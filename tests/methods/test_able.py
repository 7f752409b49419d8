"""ABLE: the contrastive term by a loop over pairs of rows; values of a step are in golden."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from propall.methods.able import AmbiguityPhase, ambiguity_contrast
from propall.methods.cc import CC
from propall.training.contract import State, Step


def test_the_contrast_pair_by_pair() -> None:
    n, k, tau = 5, 3, 0.1
    g = torch.Generator().manual_seed(0)
    f = normalize(torch.randn(2 * n, 4, generator=g, dtype=torch.float64), dim=-1)
    weights = torch.rand(n, k, generator=g, dtype=torch.float64).softmax(-1)
    labels = torch.tensor([0, 1, 0, 2, 0])
    losses = ambiguity_contrast(f, labels, weights, tau)
    for a in range(2 * n):
        rest = [b for b in range(2 * n) if b != a]
        total = math.log(sum(math.exp(float(f[a] @ f[b]) / tau) for b in rest))
        loss = 0.0
        for b in rest:
            label = int(labels[b % n])
            attraction = float(weights[a % n, label]) / labels.tolist().count(label)
            loss -= attraction * (float(f[a] @ f[b]) / tau - total)
        assert losses[a].item() == pytest.approx(tau / 0.07 * loss)


def test_another_base_replaces_only_the_classification_term() -> None:
    g = torch.Generator().manual_seed(1)
    candidates = torch.tensor([[True, True, False], [False, True, True], [True, False, False]])
    vectors = normalize(torch.randn(2, 3, 4, generator=g), dim=-1)
    logits = torch.randn(2, 3, 3, generator=g)
    outputs = torch.cat([logits[0], vectors[0], logits[1], vectors[1]], -1)
    step = Step(torch.tensor(0.0), torch.tensor(0.0))
    own, based = (AmbiguityPhase(base=base, views=2, dimension=4) for base in (None, CC()))
    state = own.init(candidates)
    weights = state.rows["weights"]
    difference = based.loss(outputs, candidates, state, step) - own.loss(outputs, candidates, state, step)
    classified = -(weights * logits[0].log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(difference, CC().loss(logits[0], candidates, State(), step) - classified)


def test_weights_of_rows_weigh_both_terms() -> None:
    g = torch.Generator().manual_seed(1)
    candidates = torch.tensor([[True, True, False], [False, True, True], [True, False, False]])
    vectors = normalize(torch.randn(2, 3, 4, generator=g), dim=-1)
    logits = torch.randn(2, 3, 3, generator=g)
    outputs = torch.cat([logits[0], vectors[0], logits[1], vectors[1]], -1)
    phase, weight = AmbiguityPhase(base=None, views=2, dimension=4), torch.tensor([1.0, 0.0, 3.0])
    state = phase.init(candidates)
    labels = logits[0].masked_fill(~candidates, -torch.inf).argmax(-1)
    contrast = ambiguity_contrast(vectors.flatten(0, 1), labels, state.rows["weights"], 0.1)
    by_row = -(state.rows["weights"] * logits[0].log_softmax(-1)).sum(-1) + (contrast[:3] + contrast[3:]) / 2
    step = Step(torch.tensor(0.0), torch.tensor(0.0), weight=weight)
    torch.testing.assert_close(phase.loss(outputs, candidates, state, step), by_row @ weight / 4)
