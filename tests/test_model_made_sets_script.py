"""results/scripts/model_made_sets.py and crowds_cifar10n.py: what they add to the library's pieces."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from propall.data.dataset import PartialDataset
from propall.nets import NETS
from propall.training.contract import Run, State, Step
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer
from results.scripts.crowds_cifar10n import held_out_evidence, lookup_accuracy
from results.scripts.model_made_sets import Distillation, FixMatch, Probabilities

STEP = Step(torch.tensor(0.0), torch.tensor(0))


def test_distillation_is_cross_entropy_to_the_teacher() -> None:
    torch.manual_seed(0)
    logits, target = torch.randn(6, 3), torch.randn(6, 3).softmax(-1)
    sets = torch.ones(6, 3, dtype=torch.bool)
    objective = Distillation(Probabilities(target))
    loss = objective.loss(logits, sets, objective.init(sets), STEP)
    torch.testing.assert_close(loss, cross_entropy(logits, target))


def test_a_student_learns_the_probabilities_of_its_teacher() -> None:
    x = torch.eye(4).repeat(8, 1)
    target = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.1, 0.4, 0.5]]).repeat(8, 1)
    sets = torch.ones(32, 3, dtype=torch.bool)
    recipe = Recipe(epochs=200, batch_size=32, learning_rate=0.05)
    trainer = Trainer(Distillation(Probabilities(target)), NETS["linear"], recipe)
    (student,) = trainer.fit([Run(PartialDataset(x, sets), 0)])
    torch.testing.assert_close(student.probabilities(x), target, atol=0.02, rtol=0)


def test_fixmatch_learns_from_labels_and_confident_predictions_only() -> None:
    weak = torch.tensor([[0.0, 1.0, 0.0], [9.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
    strong = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    sets = torch.ones(3, 3, dtype=torch.bool)
    sets[0] = one_hot(torch.tensor(2), 3).bool()  # labeled; the second row is confident, the third is not
    loss = FixMatch().loss(torch.cat([weak, strong]), sets, State(), STEP)
    label = cross_entropy(weak[:1], torch.tensor([2]))
    guess = cross_entropy(strong[1:2], torch.tensor([0])) / 2
    torch.testing.assert_close(loss, label + guess)


def test_lookup_counts_the_other_images() -> None:
    answers = np.array([[0, 1], [1, 0], [0, 1], [2, 2], [2, 2], [1, 1]])
    truth = np.array([0, 0, 1, 2, 2, 1])
    # 0 and 1 are seen as 0 or 1 once each by the others, 2 as 0, both 2 as 2; the last has no other image.
    assert lookup_accuracy(answers, truth) == pytest.approx((0.5 + 0.5 + 0 + 1 + 1 + 1 / 3) / 6)


def test_evidence_prefers_the_true_way_to_err() -> None:
    draw = np.random.default_rng(0)
    truth = draw.integers(0, 3, 1500)
    # Class 2 is mostly answered as 0, which one accuracy per person cannot say.
    confusion = np.array([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.45, 0.0, 0.55]])
    answers = np.stack([[draw.choice(3, p=confusion[y]) for y in truth] for _ in range(3)], axis=1)
    evidence = held_out_evidence(answers, 3)
    assert evidence["shrunk, estimated classes"] > evidence["one_coin, estimated classes"] + 0.01
