import itertools

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from propall.methods._risks import (
    as_transition,
    class_risks,
    excluded_prior,
    excluded_units,
    over_excluded,
    require_one_excluded,
    transition_matrix,
)

K = 4
MIXED = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 1]]).bool()


def risks_by_definition(logits, candidates, prior, *, pairs):
    """Loop over the definition: mean loss vectors of the pairs that exclude each class."""
    n, k = logits.shape
    losses = -logits.log_softmax(-1)
    mean = torch.zeros(k, k, dtype=logits.dtype)
    counts = torch.zeros(k, dtype=logits.dtype)
    for c in range(k):
        for i in range(n):
            if not candidates[i, c]:
                unit = 1 / int((~candidates[i]).sum()) if pairs == "instance" else 1.0
                counts[c] += unit
                mean[c] += unit * losses[i]
        if counts[c] > 0:
            mean[c] /= counts[c]
    risks = [sum(prior[c] * mean[c, j] for c in range(k)) - (k - 1) * prior[j] * mean[j, j] for j in range(k)]
    return torch.stack(risks), counts


@pytest.mark.parametrize("pairs", ["instance", "pooled"])
def test_class_risks_by_definition(pairs):
    logits = 3 * torch.randn(5, K, dtype=torch.float64)
    prior = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    risks, counts = class_risks(logits, MIXED, prior, pairs=pairs)
    expected_risks, expected_counts = risks_by_definition(logits, MIXED, prior, pairs=pairs)
    torch.testing.assert_close(risks, expected_risks, rtol=0, atol=1e-13)
    torch.testing.assert_close(counts, expected_counts, rtol=0, atol=1e-15)


def test_pairs_agree_where_all_sets_have_one_size():
    logits = torch.randn(6, K, dtype=torch.float64)
    candidates = torch.tensor([[i in pair for i in range(K)] for pair in itertools.combinations(range(K), 2)])
    by_pairs = {}
    for pairs in ("instance", "pooled"):
        prior = excluded_prior(candidates, pairs=pairs)
        by_pairs[pairs] = class_risks(logits, candidates, prior, pairs=pairs).risks
    torch.testing.assert_close(by_pairs["instance"], by_pairs["pooled"], rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_risks_are_unbiased(size):
    # Every instance with every candidate set of one size that contains its class: the exact expectation.
    truth = torch.tensor([0, 0, 2, 3, 3])
    outputs = 2 * torch.randn(len(truth), K, dtype=torch.float64)
    rows = [
        (i, [j in candidate_set for j in range(K)])
        for i, y in enumerate(truth.tolist())
        for candidate_set in itertools.combinations(range(K), size)
        if y in candidate_set
    ]
    logits = outputs[[i for i, _ in rows]]
    candidates = torch.tensor([members for _, members in rows])
    risks = class_risks(logits, candidates, excluded_prior(candidates)).risks
    losses = cross_entropy(outputs, truth, reduction="none")
    expected = torch.stack([(losses * (truth == j)).mean() for j in range(K)])
    torch.testing.assert_close(risks, expected, rtol=0, atol=1e-13)


def test_singletons_with_the_batch_prior_are_cross_entropy():
    truth = torch.tensor([0, 1, 1, 3, 2, 0])
    logits = torch.randn(6, K, dtype=torch.float64)
    candidates = one_hot(truth, K).bool()
    risks = class_risks(logits, candidates, excluded_prior(candidates)).risks
    torch.testing.assert_close(risks.sum(), cross_entropy(logits, truth), rtol=0, atol=1e-14)


def test_cancellation_loses_no_precision():
    # For k = 2 an excluded label is a known one, and the large losses of a fitted batch cancel exactly.
    excluded = torch.arange(37) % 2
    candidates = ~one_hot(excluded, 2).bool()
    logits = 200 * (1 - 2 * one_hot(excluded, 2).float()) + torch.randn(37, 2)
    logits[:4] = torch.randn(4, 2)
    prior = excluded_prior(candidates)
    expected = class_risks(logits.double(), candidates, prior).risks
    torch.testing.assert_close(
        class_risks(logits, candidates, prior).risks.double(), expected, rtol=1e-6, atol=0
    )


@pytest.mark.parametrize("pairs", ["instance", "pooled"])
def test_weights_are_repetitions(pairs):
    logits = torch.randn(5, K, dtype=torch.float64)
    times = torch.tensor([1, 3, 2, 1, 0])
    repeated = torch.arange(5).repeat_interleave(times)
    prior = excluded_prior(MIXED, pairs=pairs, weight=times.double())
    torch.testing.assert_close(prior, excluded_prior(MIXED[repeated], pairs=pairs))
    weighted = class_risks(logits, MIXED, prior, pairs=pairs, weight=times.double())
    plain = class_risks(logits[repeated], MIXED[repeated], prior, pairs=pairs)
    torch.testing.assert_close(weighted, plain, rtol=0, atol=1e-13)


def test_a_batch_that_excludes_nothing_has_no_risk_and_no_gradient():
    logits = torch.randn(3, K, requires_grad=True)
    risks = class_risks(logits, torch.ones(3, K, dtype=torch.bool), torch.full((K,), 1 / K)).risks
    risks.sum().backward()
    assert (risks == 0).all()
    assert (logits.grad == 0).all()


def test_units_and_prior():
    units = excluded_units(MIXED)
    assert units[0].tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3])
    assert units[3].tolist() == [0, 0, 0, 0]
    assert excluded_units(MIXED, pairs="pooled").equal((~MIXED).float())
    prior = excluded_prior(MIXED)
    assert prior.dtype == torch.float64
    # Row 3 excludes nothing; the others divide one unit each into thirds, halves, one and thirds.
    assert prior.tolist() == pytest.approx([4 / 12, 2 / 12, 3.5 / 12, 2.5 / 12])
    assert excluded_prior(MIXED, pairs="pooled").tolist() == pytest.approx([2 / 9, 2 / 9, 3 / 9, 2 / 9])


def test_prior_needs_an_excluded_label():
    with pytest.raises(ValueError, match=r"candidates: no row .* excludes a label"):
        excluded_prior(torch.ones(3, K, dtype=torch.bool))
    with pytest.raises(ValueError, match="positive weight"):
        excluded_prior(MIXED, weight=torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0]))


def test_refusals_count_rows_and_name_alternatives():
    with pytest.raises(
        ValueError, match=r"4 of 5 rows .* \(first: 0, which excludes 3\); X expects one .* Use y\."
    ):
        require_one_excluded(MIXED, "X", "y")
    require_one_excluded(MIXED[2:3], "X", "y")


def test_rows_that_exclude_nothing_are_skipped():
    losses = torch.ones(5, requires_grad=True)
    shared = over_excluded(losses, MIXED)
    shared.sum().backward()
    expected = [0.0 if row.all() else 1 / (~row).sum().item() for row in MIXED]
    assert shared.tolist() == pytest.approx(expected)
    assert losses.grad.tolist() == pytest.approx(expected)
    assert 0.0 in expected


def test_transition_matrix():
    uniform = transition_matrix("uniform", 3)
    assert uniform.tolist() == [[0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]]
    rows = as_transition([[0.0, 1.0], [1.0, 0.0]])
    assert rows == ((0.0, 1.0), (1.0, 0.0))
    assert transition_matrix(rows, 2).equal(torch.tensor([[0, 1.0], [1.0, 0]], dtype=torch.float64))


@pytest.mark.parametrize(
    ("transition", "message"),
    [
        (((0.0, 1.0), (1.0, 0.0)), r"2 rows of length \[2\] for 3 classes"),
        (((0.0, 1.0, 0.0), (1.0, 0.0), (0.5, 0.5, 0.0)), r"rows of length \[2, 3\]"),
        (((0.0, 0.5, 0.5), (0.9, 0.0, 0.3), (0.5, 0.5, 0.0)), r"1 of 3 rows .* \(first: 1, .*1\.2\)"),
        (((0.0, 0.5, 0.5), (1.5, 0.0, -0.5), (0.5, 0.5, 0.0)), r"\(first: 1, which sums to 1\)"),
        (((0.0, 0.5, 0.5), (0.5, 0.0, 0.5), (float("nan"), 0.5, 0.0)), r"\(first: 2, which sums to nan\)"),
    ],
)
def test_transition_matrix_refuses(transition, message):
    with pytest.raises(ValueError, match=message):
        transition_matrix(transition, 3)


def test_an_unknown_transition_is_refused():
    with pytest.raises(ValueError, match="transition: got 'unifrom'"):
        as_transition("unifrom")
