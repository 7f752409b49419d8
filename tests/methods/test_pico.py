"""PiCO: the queue, the two contrastive losses and when prototypes start to count; values are in golden."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from propall.methods._label_weights import weighted_cross_entropy
from propall.methods.pico import EMPTY, ContrastivePhase, instance_contrast, supervised_contrast
from propall.training.contract import State, Step


def units(n: int, d: int, seed: int) -> Tensor:
    return normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)), dim=-1)


def at(epoch: float) -> Step:
    return Step(torch.tensor(0.1), torch.tensor(float(epoch)))


def batch(n: int = 4, k: int = 3, d: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    candidates = torch.rand(n, k, generator=g) < 0.5
    candidates[:, 0] = True
    outputs = [torch.randn(n, k, generator=g), units(n, d, seed + 1), units(n, d, seed + 2)]
    return torch.cat(outputs, -1), candidates


def test_the_queue_is_a_ring_that_keeps_the_newest_keys() -> None:
    phase = ContrastivePhase(views=2, epochs=5, dimension=5, queue=6)
    state = phase.init(batch()[1])
    assert state.shared["queue_labels"].tolist() == [EMPTY] * 6
    seen: list[Tensor] = []
    for visit in range(4):  # 16 keys; the queue is no multiple of the batch
        outputs, candidates = batch(seed=10 * visit)
        state = phase.update(outputs, candidates, state, at(0))
        seen += list(outputs[:, 8:])
        newest = {tuple(key.tolist()) for key in seen[-6:]}
        kept = state.shared["queue"][state.shared["queue_labels"] != EMPTY]
        assert {tuple(key.tolist()) for key in kept} == newest
    assert state.shared["position"].item() == 16 % 6


def test_a_batch_larger_than_the_queue_leaves_its_last_keys() -> None:
    phase = ContrastivePhase(views=2, epochs=5, dimension=5, queue=3)
    outputs, candidates = batch()
    state = phase.update(outputs, candidates, phase.init(candidates), at(0))
    assert torch.equal(state.shared["queue"], outputs[1:, 8:])


def test_empty_places_of_the_queue_change_nothing() -> None:
    features, labels = units(8, 5, 0), torch.tensor([0, 1, 0, 1, 1, 0, 2, 1])
    padded = torch.cat([features, torch.zeros(3, 5)])
    with_empty = torch.cat([labels, torch.full((3,), EMPTY)])
    torch.testing.assert_close(
        supervised_contrast(padded, with_empty, 2, 0.07), supervised_contrast(features, labels, 2, 0.07)
    )
    queue, filled = padded[4:], torch.arange(7) < 4
    everything = torch.ones(4, dtype=torch.bool)
    torch.testing.assert_close(
        instance_contrast(features[:2], features[2:4], queue, filled, 0.07),
        instance_contrast(features[:2], features[2:4], queue[:4], everything, 0.07),
    )


@pytest.mark.parametrize("epoch", [0.0, 1.0])
def test_prototypes_count_from_their_first_epoch_on(epoch: float) -> None:
    phase = ContrastivePhase(views=2, epochs=5, dimension=5, queue=6, start=1, contrast=0.5)
    outputs, candidates = batch()
    state = phase.update(outputs, candidates, phase.init(candidates), at(0))
    logits, queries, keys = outputs.split([3, 5, 5], -1)
    after = phase.update(outputs, candidates, state, at(epoch))
    old = state.rows["weights"]
    labels = logits.masked_fill(~candidates, -torch.inf).argmax(-1)
    queue, queue_labels = state.shared["queue"], state.shared["queue_labels"]
    if epoch == 0:
        assert torch.equal(after.rows["weights"], old)
        contrast = instance_contrast(queries, keys, queue, queue_labels >= 0, 0.07)
    else:
        nearest = (queries @ state.shared["prototypes"].mT).masked_fill(~candidates, -torch.inf).argmax(-1)
        expected = 0.95 * old
        expected[torch.arange(4), nearest] += 0.05
        torch.testing.assert_close(after.rows["weights"], expected)
        everything = torch.cat([queries, keys, queue])
        contrast = supervised_contrast(everything, torch.cat([labels, labels, queue_labels]), 4, 0.07)
    classified = weighted_cross_entropy(logits, after.rows["weights"])
    loss = phase.loss(outputs, candidates, state, at(epoch))
    torch.testing.assert_close(loss, (classified + 0.5 * contrast).mean())


def test_weights_of_rows_weigh_both_terms() -> None:
    phase = ContrastivePhase(views=2, epochs=5, dimension=5, queue=6)
    outputs, candidates = batch()
    state: State = phase.init(candidates)
    only_first = torch.tensor([1.0, 0.0, 0.0, 0.0])
    weighted = phase.loss(outputs, candidates, state, at(0)._replace(weight=only_first))
    alone = phase.loss(
        outputs[:1], candidates[:1], state._replace(rows={"weights": state.rows["weights"][:1]}), at(0)
    )
    torch.testing.assert_close(weighted, alone)
