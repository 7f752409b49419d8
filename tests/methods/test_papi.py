"""PaPi: a step by hand, and which prototypes and label weights it uses."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import kl_div, normalize

from propall.methods._contrast import ProjectedNetwork
from propall.methods._multiview import draw_mixing
from propall.methods.cc import CC
from propall.methods.papi import PaPi, PrototypePhase, prototype_divergence
from propall.nets import MLP
from propall.numerics import restricted_softmax
from propall.training.contract import Objective, State, Step

N, K, D = 6, 3, 5


def step(epoch: float) -> Step:
    uniform = torch.rand(N, K, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    return Step(torch.tensor(0.1), torch.tensor(epoch, dtype=torch.float64), uniform)


def visit(base: Objective | None = None) -> tuple[PrototypePhase, Tensor, Tensor, State]:
    g = torch.Generator().manual_seed(0)
    candidates = torch.rand(N, K, generator=g) < 0.5
    candidates[:, 0] = True
    parts: list[Tensor] = []
    for _ in range(4):
        parts.append(torch.randn(N, K, generator=g, dtype=torch.float64))
        parts.append(normalize(torch.randn(N, D, generator=g, dtype=torch.float64), dim=-1))
    phase = PrototypePhase(base=base, views=2, epochs=20, dimension=D)
    state = phase.init(candidates)
    prototypes = normalize(torch.randn(K, D, generator=g, dtype=torch.float64), dim=-1)
    state = state.with_rows(weights=state.rows["weights"].double()).with_shared(prototypes=prototypes)
    return phase, torch.cat(parts, -1), candidates, state


@pytest.mark.parametrize("epoch", [0.0, 5.0, 19.0])
def test_the_loss_by_hand(epoch: float) -> None:
    phase, outputs, candidates, state = visit()
    outputs.requires_grad_()
    weak, *_ = parts = [part for view in outputs.chunk(4, -1) for part in view.split([K, D], -1)]
    phi = 0.99 if epoch == 0 else 0.95 - 0.15 * (epoch - 1) / 20
    w = phi * state.rows["weights"] + (1 - phi) * restricted_softmax(weak.detach(), candidates)
    share, partner = draw_mixing(step(epoch).uniform, 8.0)  # type: ignore[arg-type]
    similarity = torch.tensor(0.0, dtype=torch.float64)
    for mixed in (parts[5], parts[7]):
        g = (mixed @ state.shared["prototypes"].mT / 0.3).log_softmax(-1)
        similarity = similarity + share * kl_div(g, w, reduction="batchmean")
        similarity = similarity + (1 - share) * kl_div(g, w[partner], reduction="batchmean")
    expected = -(w * weak.log_softmax(-1)).sum(-1).mean() + min(epoch / 10, 1) * similarity
    loss = phase.loss(outputs, candidates, state, step(epoch))
    torch.testing.assert_close(loss, expected)
    gradients = [torch.autograd.grad(value, outputs)[0] for value in (loss, expected)]
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(phase.update(outputs, candidates, state, step(epoch)).rows["weights"], w)


@pytest.mark.parametrize(("epoch", "momentum"), [(0.0, 0.99), (1.0, 0.9), (11.0, 0.7)])
def test_prototypes_follow_the_weak_and_then_the_strong_views(epoch: float, momentum: float) -> None:
    phase, outputs, candidates, state = visit()
    parts = [view.split([K, D], -1) for view in outputs.chunk(4, -1)]
    mu = state.shared["prototypes"].clone()
    for logits, features in parts[:2]:
        labels = logits.masked_fill(~candidates, -torch.inf).argmax(-1)
        for label, feature in zip(labels, features, strict=True):
            mu[label] = momentum * mu[label] + (1 - momentum) * feature
    after = phase.update(outputs, candidates, state, step(epoch))
    torch.testing.assert_close(after.shared["prototypes"], normalize(mu, dim=-1))


def test_inputs_are_both_views_and_their_mixtures() -> None:
    phase, *_ = visit()
    x = torch.randn(2 * N, 2, dtype=torch.float64)
    weak, strong, mixed_weak, mixed_strong = phase.network_inputs(x, step(0).uniform).chunk(4)
    share, partner = draw_mixing(step(0).uniform, 8.0)  # type: ignore[arg-type]
    assert torch.equal(torch.cat([weak, strong]), x)
    torch.testing.assert_close(mixed_weak, share * weak + (1 - share) * weak[partner])
    torch.testing.assert_close(mixed_strong, share * strong + (1 - share) * strong[partner])


def test_rows_of_weight_0_count_in_neither_term() -> None:
    phase, outputs, candidates, state = visit()
    alone = step(10.0)._replace(weight=torch.eye(N, dtype=torch.float64)[0])
    changed = outputs.clone()
    changed[1:, K:] = outputs[:1, K:]  # all but the weak logits, which a partner's label weights come from
    losses = [phase.loss(given, candidates, state, alone) for given in (outputs, changed)]
    torch.testing.assert_close(*losses)
    weak, alone = outputs[0, :K], alone._replace(epoch=torch.tensor(0.0, dtype=torch.float64))
    weights = 0.99 * state.rows["weights"][0] + 0.01 * restricted_softmax(weak, candidates[0])
    expected = -(weights * weak.log_softmax(-1)).sum()
    torch.testing.assert_close(phase.loss(outputs, candidates, state, alone), expected)


def test_the_four_inputs_of_a_row_are_normalized_separately() -> None:
    net = PaPi().training_net(MLP)((4,), K)
    assert isinstance(net, ProjectedNetwork)
    assert (net.views, net.together) == (4, False)


def test_another_base_replaces_only_the_classification_term() -> None:
    phase, outputs, candidates, state = visit()
    based, *_ = visit(CC())
    difference = based.loss(outputs, candidates, state, step(3)) - phase.loss(
        outputs, candidates, state, step(3)
    )
    weights = phase.update(outputs, candidates, state, step(3)).rows["weights"]
    own = -(weights * outputs[:, :K].log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(difference, CC().loss(outputs[:, :K], candidates, State(), step(3)) - own)


def test_the_divergence_of_one_hot_weights_is_finite() -> None:
    weights = torch.eye(2)
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    losses = prototype_divergence(features, torch.zeros(2, 2), weights, 0.3)
    torch.testing.assert_close(losses, torch.full((2,), 2.0).log())
    (gradient,) = torch.autograd.grad(losses.sum(), features)
    assert gradient.isfinite().all()
