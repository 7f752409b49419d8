"""CroSel: selection, a step by hand, the bank after an epoch, and the ensemble of two."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from propall.data.dataset import PartialDataset
from propall.methods._multiview import draw_mixing
from propall.methods.crosel import CroSel, PairOf, SelectionPhase, select_rows
from propall.nets import MLP, Linear
from propall.numerics import negative_log_mass, restricted_softmax
from propall.training.contract import Run, Step, TrainingSetup
from propall.training.networks import NetClassifier
from propall.training.recipe import Recipe

N, K = 5, 3


def test_rows_are_selected_by_candidate_stability_and_confidence() -> None:
    sure, unsure = [0.0, 0.95, 0.05], [0.2, 0.7, 0.1]
    other = [0.95, 0.05, 0.0]
    bank = torch.tensor(
        [
            [sure, sure, sure],
            [other, sure, sure],  # the label changed
            [sure, unsure, sure],  # mean probability 0.87
            [sure, sure, sure],  # not a candidate
            [[0.0] * 3, sure, sure],  # one epoch is missing
        ]
    )
    candidates = torch.ones(5, 3, dtype=torch.bool)
    candidates[3, 1] = False
    selected, labels = select_rows(bank, candidates, 0.9)
    assert selected.tolist() == [True, False, False, False, False]
    assert labels[0] == 1


def visit() -> tuple[nn.Module, Tensor, Tensor, Step]:
    torch.manual_seed(0)
    net = PairOf(Linear)((4,), K).double()
    candidates = torch.rand(N, K) < 0.5
    candidates[:, 0] = True
    uniform = torch.rand(N, K, dtype=torch.float64)
    step = Step(torch.tensor(0.1), torch.tensor(5.0, dtype=torch.float64), uniform)
    return net, torch.randn(2 * N, 4, dtype=torch.float64), candidates, step


def test_a_step_by_hand() -> None:
    net, x, candidates, step = visit()
    phase = SelectionPhase(base=None, views=2, warm_up=2, consistency=4.0)
    state = phase.init(candidates)
    selected = torch.tensor([[1, 0], [1, 1], [0, 0], [1, 0], [0, 0]]).bool()
    labels = torch.tensor([[0, 1], [2, 1], [0, 0], [1, 1], [0, 2]])
    state = state.with_rows(selected=selected, labels=labels).with_shared(share=torch.tensor(0.4).double())
    outputs = net.train()(phase.network_inputs(x, step.uniform))
    expected = torch.zeros((), dtype=torch.float64)
    share, partner = draw_mixing(step.uniform, 0.75, copies=2)  # type: ignore[arg-type]
    share = max(share, 1 - share)
    weak, strong = x.chunk(2)
    for number, part in enumerate((net.first, net.second)):
        other = 1 - number
        rows = selected[:, other]
        expected = expected + cross_entropy(part(weak)[rows], labels[rows, other])  # type: ignore[operator]
        # The target of the weak view comes from the strong one, and the other way round.
        targets = torch.cat([restricted_softmax(part(view), candidates) for view in (strong, weak)])  # type: ignore[operator]
        mixed = part(share * x + (1 - share) * x[partner])  # type: ignore[operator]
        target = share * targets + (1 - share) * targets[partner]
        expected = expected + (1 - 0.4) * 4.0 * cross_entropy(mixed, target)
    loss = phase.loss(outputs, candidates, state, step)
    torch.testing.assert_close(loss, expected)


def test_the_warm_up_is_cc_on_the_weak_view_of_both_networks() -> None:
    net, x, candidates, step = visit()
    phase = SelectionPhase(base=None, views=2, warm_up=6)
    outputs = net.train()(phase.network_inputs(x, step.uniform))
    expected = sum(negative_log_mass(part(x[:N]), candidates).mean() for part in (net.first, net.second))  # type: ignore[operator]
    torch.testing.assert_close(phase.loss(outputs, candidates, phase.init(candidates), step), expected)


@pytest.mark.parametrize("weight", [[1.0, 2.0, 0.0, 3.0, 0.0], [0.0] * N])
def test_weights_of_rows_weigh_both_terms(weight: list[float]) -> None:
    net, x, candidates, step = visit()
    phase = SelectionPhase(base=None, views=2, warm_up=5)  # the warm-up has just ended
    selected = torch.tensor([[1, 0], [1, 1], [1, 0], [1, 1], [1, 0]]).bool()
    labels = torch.tensor([[0, 1], [2, 1], [0, 0], [1, 1], [0, 2]])
    state = phase.init(candidates).with_rows(selected=selected, labels=labels)
    outputs = net.train()(phase.network_inputs(x, step.uniform)).detach()
    loss = phase.loss(outputs, candidates, state, step._replace(weight=torch.tensor(weight).double()))
    expected = 0.0
    share, partner = draw_mixing(step.uniform, 0.75, copies=2)  # type: ignore[arg-type]
    share = max(share, 1 - share)
    for number, of_network in enumerate(outputs.chunk(2, -1)):
        weak, for_weak, for_strong, *mixed = of_network.split(K, -1)
        rows, label = selected[:, 1 - number], labels[:, 1 - number]
        of_selected = [w * bool(chosen) for w, chosen in zip(weight, rows, strict=True)]
        by_row = cross_entropy(weak, label, reduction="none")
        expected += float(by_row @ torch.tensor(of_selected).double()) / (sum(of_selected) or 1)
        targets = torch.cat([restricted_softmax(part, candidates) for part in (for_weak, for_strong)])
        targets = share * targets + (1 - share) * targets[partner]
        by_row = cross_entropy(torch.cat(mixed), targets, reduction="none")
        expected += float(by_row @ torch.tensor(2 * weight).double()) / (2 * sum(weight) or 1)
    assert loss.item() == pytest.approx(expected)


class Normalized(nn.Module):
    """A linear network behind batch norm."""

    def __init__(self, in_shape: tuple[int, ...], n_classes: int) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(*in_shape), nn.Linear(*in_shape, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def test_running_statistics_are_those_of_the_weak_views() -> None:
    pair, weak = PairOf(Normalized)((4,), K).train(), torch.randn(N, 4)
    pair(torch.cat([weak, weak + 5, 3 * weak, weak - 7]))
    for net in (pair.first, pair.second):
        torch.testing.assert_close(net.norm.running_mean, 0.1 * weak.mean(0))  # type: ignore[union-attr]
        torch.testing.assert_close(net.norm.running_var, 0.9 + 0.1 * weak.var(0))  # type: ignore[union-attr]


def test_targets_carry_no_gradient() -> None:
    net, x, candidates, step = visit()
    phase = SelectionPhase(base=None, views=2, warm_up=0)
    outputs = net.train()(phase.network_inputs(x, step.uniform)).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(phase.loss(outputs, candidates, phase.init(candidates), step), outputs)
    for of_network in gradient.chunk(2, -1):
        weak, for_weak, for_strong, *mixed = of_network.split(K, -1)
        assert not weak.any(), "no row is selected"
        assert not for_weak.any()
        assert not for_strong.any()
        assert all(part.any() for part in mixed)


def fitted(epochs: int) -> tuple[NetClassifier, PartialDataset]:
    g = torch.Generator().manual_seed(0)
    truth = torch.arange(50) % K
    x = torch.randn(50, 4, generator=g) + 6 * torch.nn.functional.one_hot(truth, 4)
    candidates = torch.nn.functional.one_hot(truth, K).bool() | (torch.rand(50, K, generator=g) < 0.3)
    train = PartialDataset(x, candidates)
    recipe = Recipe(epochs=epochs, batch_size=16, optimizer="adam", learning_rate=0.02, last_batch="drop")
    (classifier,) = CroSel(warm_up=4).with_training(TrainingSetup(MLP, recipe)).fit([Run(train, 0)])
    assert isinstance(classifier, NetClassifier)
    return classifier, train


def test_the_bank_holds_the_outputs_of_all_rows_after_the_last_epochs() -> None:
    classifier, train = fitted(epochs=6)
    bank, last = classifier.state.rows["bank"], classifier.logits(train.x).chunk(2, -1)
    for number, logits in enumerate(last):
        torch.testing.assert_close(bank[:, number, -1], logits.softmax(-1))
    # 50 rows in batches of 16 leave two out of an epoch, but not out of the bank.
    torch.testing.assert_close(bank.sum(-1), torch.ones(50, 2, 3))
    selected = classifier.state.rows["selected"]
    assert selected.float().mean() > 0.5
    assert classifier.state.shared["share"].item() == pytest.approx(selected.float().mean().item())


def test_the_share_of_selected_rows_counts_weights() -> None:
    phase = SelectionPhase(base=None, views=2, history=1, threshold=0.5)
    sets = torch.nn.functional.one_hot(torch.arange(4) % K, K).bool()
    scores = 9.0 * torch.cat([sets, sets], 1).float()
    scores[:2] = 0.0  # neither network is sure of the first two rows
    state, step = phase.init(sets), Step(torch.tensor(0.5), torch.tensor(20.0), outputs=scores)
    for weight, share in ((None, 0.5), ([1.0, 1.0, 0.0, 0.0], 0.0), ([1.0, 0.0, 3.0, 0.0], 0.75)):
        weighted = step._replace(weight=None if weight is None else torch.tensor(weight))
        assert phase.end_epoch(sets, state, weighted).shared["share"] == share


def test_the_classifier_is_the_mean_of_two_different_networks() -> None:
    classifier, train = fitted(epochs=1)
    net = classifier.net
    first, second = net.first(train.x), net.second(train.x)  # type: ignore[operator]
    assert not torch.allclose(first, second)
    torch.testing.assert_close(classifier.scores(train.x), (first + second) / 2)


def test_a_module_is_refused() -> None:
    setup = TrainingSetup(Linear((4,), K), Recipe(epochs=1))
    with pytest.raises(ValueError, match=r"net: got a module \(Linear\).*two networks"):
        CroSel().with_training(setup).fit([])
