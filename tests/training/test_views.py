import json
import math
from dataclasses import replace

import pytest
import torch
from jaxtyping import TypeCheckError

from propall.methods._leveraged import side_weights
from propall.methods.cavl import CAVL
from propall.methods.cc import CC
from propall.methods.lwc import LWC
from propall.methods.lws import LWS
from propall.methods.proden import PRODEN
from propall.methods.propall import ProPaLL
from propall.methods.rc import RC
from propall.numerics import restricted_softmax, uniform_weights
from propall.training.cleaning import KEPT, THRESHOLD, ConformalCleaning, Purification
from propall.training.consistency import MEMORY, PREDICTIONS, TOLERANCE, ConsistentObjective
from propall.training.contract import State, Step
from propall.training.views import Views, balance_term, rectified, soft_target, widened

ALL = torch.ones(5, 4, dtype=torch.bool)


def batch(views=3, n=5, k=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(views * n, k, generator=generator, dtype=torch.float64)
    sets = torch.rand(n, k, generator=generator) < 0.5
    sets[torch.arange(n), torch.randint(k, (n,), generator=generator)] = True
    return logits, sets


def at(progress):
    return Step(torch.tensor(progress), torch.tensor(0.0))


def test_without_strong_views_the_base_loss_is_unchanged():
    logits, sets = batch(1)
    consistent = ConsistentObjective(CC(), Views(n_strong=0))
    assert torch.equal(
        consistent.loss(logits, sets, State(), at(0.5)), CC().loss(logits, sets, State(), at(0.5))
    )


def test_single_candidates_give_one_hot_targets():
    logits, _ = batch()
    truth = torch.tensor([0, 1, 2, 3, 0])
    sets = torch.nn.functional.one_hot(truth, 4).bool()
    loss = ConsistentObjective(CC(), Views(n_strong=2)).loss(logits, sets, State(), at(1.0))
    supervised = torch.nn.functional.cross_entropy(logits, truth.repeat(3))
    torch.testing.assert_close(loss, 2 * supervised)


def test_full_sets_leave_self_training():
    logits, _ = batch()
    loss = ConsistentObjective(CC(), Views(n_strong=2)).loss(logits, ALL, State(), at(1.0))
    target = logits[:5].softmax(-1)
    expected = -(target.repeat(3, 1) * logits.log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(loss, expected)


def test_targets_carry_no_gradient():
    logits, sets = batch()
    logits.requires_grad_()
    views = Views(n_strong=2, consistency_views="strong", base_views="weak", weight=1.0, ramp=0)
    with_consistency = ConsistentObjective(CC(), views)
    without = ConsistentObjective(CC(), replace(views, weight=0.0))
    (gradient,) = torch.autograd.grad(with_consistency.loss(logits, sets, State(), at(1.0)), logits)
    (plain,) = torch.autograd.grad(without.loss(logits, sets, State(), at(1.0)), logits)
    torch.testing.assert_close(gradient[:5], plain[:5])
    assert not torch.allclose(gradient[5:], plain[5:])


@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.0), (0.125, 0.5), (0.25, 1.0), (0.9, 1.0)])
def test_the_consistency_weight_rises_to_its_height(progress, share):
    logits, sets = batch()
    views = Views(n_strong=2, weight=2.0)
    base, full = (
        ConsistentObjective(ProPaLL(), replace(views, weight=weight)).loss(logits, sets, State(), step)
        for weight, step in ((0.0, noiseless(progress)), (2.0, noiseless(1.0)))
    )
    risen = ConsistentObjective(ProPaLL(), views).loss(logits, sets, State(), noiseless(progress))
    torch.testing.assert_close(risen - base, share * (full - base))


def noiseless(progress):
    return at(progress)._replace(uniform=torch.full((5, 4), 0.5, dtype=torch.float64))


def test_rectified_targets_rank_candidates_first():
    logits, sets = batch(1)
    sets[0] = True
    target = rectified(logits, sets)
    torch.testing.assert_close(target.sum(-1), torch.ones(5, dtype=torch.float64))
    multiple = 1 / (logits.softmax(-1) * sets).sum(-1)
    lowest = target.masked_fill(~sets, 9).amin(-1)
    highest = target.masked_fill(sets, 0).amax(-1)
    partial = ~sets.all(-1)
    assert partial.sum() >= 3
    torch.testing.assert_close(lowest[partial], (multiple * highest)[partial])
    torch.testing.assert_close(target[0], logits[0].softmax(-1))


def test_tolerance_interpolates_between_the_set_and_self_training():
    logits, sets = batch(1)
    torch.testing.assert_close(widened(logits, sets, 0.0), restricted_softmax(logits, sets))
    torch.testing.assert_close(widened(logits, sets, 1.0), logits.softmax(-1))


@pytest.mark.parametrize("tolerance", [0.0, torch.tensor(0.0)])
def test_targets_stay_in_the_set_however_unlikely_it_is(tolerance):
    logits, sets = torch.tensor([[300.0, 1.0, 0.0]]), torch.tensor([[False, True, True]])
    torch.testing.assert_close(widened(logits, sets, tolerance), restricted_softmax(logits, sets))
    torch.testing.assert_close(widened(logits, sets, 0.5), torch.tensor([[1.0, 0.0, 0.0]]))
    hard = soft_target(logits, sets, Views(mask="widened", one_hot=True), tolerance)
    assert hard.tolist() == [[0.0, 1.0, 0.0]]


def test_remembered_targets_move_by_their_momentum():
    logits, sets = batch()
    views = Views(n_strong=2, targets="memory", momentum=0.75)
    consistent = ConsistentObjective(PRODEN(), views)
    state = consistent.init(sets)
    old = state.rows[MEMORY].double()
    new = consistent.update(logits, sets, state, at(0.5))
    torch.testing.assert_close(new.rows[MEMORY], 0.75 * old + 0.25 * restricted_softmax(logits[:5], sets))
    base = PRODEN().update(logits[:5], sets, PRODEN().init(sets), at(0.5))
    for name, rows in base.rows.items():
        assert torch.equal(new.rows[name], rows)


def test_removed_candidates_are_missing_in_loss_targets_and_base():
    logits, sets = batch()
    sets[:, 2:] = True
    kept = sets.clone()
    kept[:, 2] = False
    plain = Views(n_strong=2, targets="memory", momentum=0.0)
    cleaned = ConsistentObjective(PRODEN(), replace(plain, cleaning=Purification()))
    state = cleaned.init(sets).with_rows(**{KEPT: kept})
    expected = ConsistentObjective(PRODEN(), plain)
    after, other = (
        consistent.update(logits, given, state, at(0.5))
        for consistent, given in ((cleaned, sets), (expected, kept))
    )
    for name in (MEMORY, "weights"):
        assert not after.rows[name][:, 2].any()
        assert torch.equal(after.rows[name], other.rows[name])
    weak = replace(plain, targets="weak")
    losses = [
        ConsistentObjective(CC(), views).loss(logits, given, state, at(0.5))
        for views, given in ((replace(weak, cleaning=Purification()), sets), (weak, kept))
    ]
    torch.testing.assert_close(*losses)


def test_remembered_targets_leave_removed_candidates():
    sets = torch.ones(120, 3, dtype=torch.bool)
    sure = torch.linspace(0.6, 0.9, 120)
    log_p = torch.stack([sure, 0.99 - sure, torch.full_like(sure, 0.01)], -1).log()
    views = Views(targets="memory", cleaning=ConformalCleaning(start=1))
    consistent = ConsistentObjective(CC(), views)
    state = consistent.init(sets).with_rows(**{PREDICTIONS: log_p})
    after = consistent.end_epoch(sets, state, Step(torch.tensor(0.5), torch.tensor(20.0))).rows
    assert not after[KEPT].all()
    assert not after[MEMORY][~after[KEPT]].any()
    torch.testing.assert_close(after[MEMORY].sum(-1), torch.ones(120))


def of_one_class(n=120):
    """Sets of all three labels, and predictions that conformal cleaning leaves without the third."""
    sure = torch.linspace(0.6, 0.9, n)
    log_p = torch.stack([sure, 0.99 - sure, torch.full_like(sure, 0.01)], -1).log()
    return torch.ones(n, 3, dtype=torch.bool), log_p


def test_a_candidate_that_comes_back_has_its_weight_at_once():
    sets, log_p = of_one_class()
    views = Views(targets="memory", momentum=0.0, cleaning=ConformalCleaning(start=1))
    consistent = ConsistentObjective(PRODEN(), views)
    later = log_p.clone()
    later[-5:] = torch.tensor([0.05, 0.35, 0.60]).log()
    state, kept = consistent.init(sets), []
    for epoch, seen in enumerate((log_p, later), start=12):
        step = Step(torch.tensor(0.5), torch.tensor(float(epoch)))
        state = consistent.update(seen.repeat(2, 1), sets, state, step)
        state = consistent.end_epoch(sets, state, step)
        kept.append(state.rows[KEPT])
    assert (kept[1] & ~kept[0])[-5:, 2].all()
    expected = restricted_softmax(later, kept[1])
    assert (expected[-5:, 2] > 0.5).all()
    torch.testing.assert_close(state.rows[MEMORY], expected)
    torch.testing.assert_close(state.rows["weights"], expected)  # those of the base objective


def test_conformal_cleaning_keeps_what_targets_remember():
    sets = torch.ones(100, 3, dtype=torch.bool)
    uniform = uniform_weights(sets)
    likely = torch.tensor([0.5, 0.3, 0.2]).log().expand(100, 3)
    old = torch.tensor([0.2, 0.3, 0.5]).expand(100, 3)

    def after(memory, progress=0.5, **settings):
        views = Views(targets="memory", cleaning=ConformalCleaning(start=1, alpha=0.0), **settings)
        state = ConsistentObjective(CC(), views).init(sets).with_rows(**{MEMORY: memory, PREDICTIONS: likely})
        step = Step(torch.tensor(progress), torch.tensor(12.0))
        state = ConsistentObjective(CC(), views).end_epoch(sets, state, step)
        assert state.rows[KEPT].all()  # nothing is removed
        return state.rows[MEMORY]

    torch.testing.assert_close(after(old, momentum=0.9), old)
    torch.testing.assert_close(after(old, momentum=0.0, temperature=2.0), old)
    hard = torch.eye(3)[[2]].expand(100, 3)
    torch.testing.assert_close(after(hard, one_hot=True), hard)
    torch.testing.assert_close(after(uniform, memory_from=0.9), uniform)
    # A label that comes back has the weight that the views' own rule gives it.
    views = Views(targets="memory", one_hot=True, cleaning=ConformalCleaning(start=1, alpha=0.0))
    consistent = ConsistentObjective(CC(), views)
    kept = torch.tensor([False, True, True]).expand(100, 3).clone()
    rows = {MEMORY: hard, PREDICTIONS: likely, KEPT: kept}
    step = Step(torch.tensor(0.5), torch.tensor(12.0))
    state = consistent.end_epoch(sets, consistent.init(sets).with_rows(**rows), step)
    torch.testing.assert_close(state.rows[MEMORY], torch.eye(3)[[0]].expand(100, 3))


def test_purification_of_hard_targets_averages_predictions():
    sets = torch.ones(2, 3, dtype=torch.bool)
    rule = Purification(start=1, window=1, threshold=0.1)
    consistent = ConsistentObjective(CC(), Views(targets="memory", one_hot=True, cleaning=rule))
    likely = torch.tensor([[0.5, 0.3, 0.2], [0.4, 0.59, 0.01]])
    state = consistent.init(sets).with_rows(**{MEMORY: torch.eye(3)[:2], PREDICTIONS: likely.log()})
    after = consistent.end_epoch(sets, state, Step(torch.tensor(0.5), torch.tensor(1.0)))
    assert after.rows[KEPT].tolist() == [[True] * 3, [True, True, False]]
    torch.testing.assert_close(after.rows[MEMORY], torch.eye(3)[:2])


def test_weights_outside_the_candidates_follow_a_cleaning_too():
    sets, log_p = of_one_class()
    sets = torch.cat([sets, torch.zeros(120, 2, dtype=torch.bool)], 1)
    log_p = torch.cat([log_p, log_p[:, :2] - 2], 1).log_softmax(-1)
    for base in (LWS(), LWC()):
        views = Views(cleaning=Purification(1, 1, threshold=0.05))
        consistent = ConsistentObjective(base, views)
        state = consistent.init(sets).with_rows(**{PREDICTIONS: log_p})
        step = Step(torch.tensor(0.5), torch.tensor(1.0))
        state = consistent.end_epoch(sets, consistent.update(log_p.repeat(2, 1), sets, state, step), step)
        kept = state.rows[KEPT]
        assert (kept != sets).any()
        expected = side_weights(log_p, kept)
        torch.testing.assert_close(state.rows["weights"], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("cleaning", [ConformalCleaning(start=1), Purification(1, 1, threshold=0.05)])
@pytest.mark.parametrize("targets", ["memory", "weak"])
def test_a_base_objective_with_memory_is_cleaned_at_once(cleaning, targets):
    sets, log_p = of_one_class()
    views = Views(targets=targets, momentum=0.0 if targets == "memory" else 0.9, cleaning=cleaning)
    for base in (PRODEN(), RC(), CAVL()):
        consistent = ConsistentObjective(base, views)
        step = Step(torch.tensor(0.5), torch.tensor(20.0))
        state = consistent.init(sets).with_rows(**{PREDICTIONS: log_p})
        if base.name == "cavl":  # has selected the label that will be removed
            state = state.with_rows(weights=torch.tensor([0.0, 0.0, 1.0]).expand(120, 3).clone())
        after = consistent.end_epoch(sets, consistent.update(log_p.repeat(2, 1), sets, state, step), step)
        removed = ~after.rows[KEPT]
        assert removed.any()
        assert not after.rows["weights"][removed].any()
        torch.testing.assert_close(after.rows["weights"].sum(-1), torch.ones(120))


def test_a_selected_label_stays_selected_until_it_is_removed():
    kept = torch.tensor([[True, True, False], [True, True, False]])
    selected, seen = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), torch.full((2, 3), 1 / 3)
    state = CAVL().init(torch.ones(2, 3, dtype=torch.bool)).with_rows(weights=selected)
    after = CAVL().after_cleaning(kept, torch.tensor([[0.9, 0.1, 0.0]] * 2), seen.log(), state)
    assert after.rows["weights"].tolist() == [[0, 1, 0], [0.5, 0.5, 0]]


@pytest.mark.parametrize("mask", ["rectified", "widened"])
@pytest.mark.parametrize("cleaning", [ConformalCleaning(start=1), Purification(1, 1, threshold=0.05)])
def test_remembered_targets_with_labels_outside_the_set_follow_a_cleaning(mask, cleaning):
    sets, log_p = of_one_class()
    sets[:3] = torch.eye(3, dtype=torch.bool)  # nothing can be removed here
    tolerance = "auto" if mask == "widened" else 0.0
    views = Views(targets="memory", mask=mask, tolerance=tolerance, cleaning=cleaning)
    consistent = ConsistentObjective(CC(), views)
    old = torch.tensor([0.2, 0.2, 0.6]).expand(120, 3)
    state = consistent.init(sets).with_rows(**{MEMORY: old, PREDICTIONS: log_p})
    if mask == "widened":
        state = state.with_shared(**{TOLERANCE: torch.tensor(0.1)})
    after = consistent.end_epoch(sets, state, Step(torch.tensor(0.5), torch.tensor(20.0))).rows
    changed = (after[KEPT] != sets).any(-1)
    assert changed.any()
    assert not changed[:3].any()
    expected = soft_target(log_p, after[KEPT], views, 0.1)
    torch.testing.assert_close(after[MEMORY][changed], expected[changed])
    assert torch.equal(after[MEMORY][~changed], old[~changed])


def test_new_targets_after_a_cleaning_have_the_temperature():
    sets = torch.ones(100, 3, dtype=torch.bool)
    likely = torch.tensor([0.5, 0.3, 0.2]).log().expand(100, 3)
    rule = ConformalCleaning(start=1, alpha=0.0)
    consistent = ConsistentObjective(CC(), Views(targets="memory", temperature=2.0, cleaning=rule))
    rows = {PREDICTIONS: likely, KEPT: torch.tensor([True, True, False]).expand(100, 3).clone()}
    step = Step(torch.tensor(0.5), torch.tensor(12.0))
    after = consistent.end_epoch(sets, consistent.init(sets).with_rows(**rows), step).rows
    assert after[KEPT].all()  # the third label comes back
    torch.testing.assert_close(after[MEMORY], (likely / 2).softmax(-1))


def test_targets_stay_equal_until_memory_starts():
    sets = torch.ones(2, 3, dtype=torch.bool)
    views = Views(targets="memory", one_hot=True, memory_from=0.9, cleaning=Purification(1, 1))
    consistent = ConsistentObjective(CC(), views)
    likely = torch.tensor([[0.5, 0.3, 0.2], [0.4, 0.59, 0.01]])
    state = consistent.init(sets).with_rows(**{PREDICTIONS: likely.log()})
    after = consistent.end_epoch(sets, state, Step(torch.tensor(0.5), torch.tensor(1.0)))
    torch.testing.assert_close(after.rows[MEMORY], torch.full((2, 3), 1 / 3))


def test_purification_replaces_targets_by_their_average():
    sets = torch.ones(1, 3, dtype=torch.bool)
    views = Views(targets="memory", momentum=0.0, cleaning=Purification(2, 2, threshold=0.0))
    consistent, state = ConsistentObjective(CC(), views), None
    for epoch, seen in enumerate(([0.7, 0.2, 0.1], [0.1, 0.2, 0.7]), start=1):
        state = consistent.init(sets) if state is None else state
        state = state.with_rows(**{MEMORY: torch.tensor([seen])})
        state = consistent.end_epoch(sets, state, Step(torch.tensor(0.5), torch.tensor(float(epoch))))
    torch.testing.assert_close(state.rows[MEMORY], torch.tensor([[0.4, 0.2, 0.4]]))


def test_rows_of_weight_0_do_not_decide_whether_the_threshold_grows():
    sets = torch.ones(2, 3, dtype=torch.bool)
    rule = Purification(1, 1, threshold=0.1, growth=0.5, change=0.01)
    consistent = ConsistentObjective(CC(), Views(cleaning=rule))
    likely = torch.tensor([[0.5, 0.49, 0.01], [0.4, 0.3, 0.3]])  # the first row loses a candidate
    state = consistent.init(sets).with_rows(**{PREDICTIONS: likely.log()})
    for weight, expected in (([1.0, 1.0], 0.1), ([0.0, 1.0], 0.15)):
        step = Step(torch.tensor(0.5), torch.tensor(1.0), weight=torch.tensor(weight))
        assert consistent.end_epoch(sets, state, step).shared[THRESHOLD] == pytest.approx(expected)


def test_purification_averages_the_targets_of_rows_that_were_not_visited():
    sets = torch.ones(2, 3, dtype=torch.bool)
    views = Views(targets="memory", momentum=0.0, cleaning=Purification(start=1, window=1, threshold=0.0))
    consistent = ConsistentObjective(CC(), views)
    weights = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    old = torch.tensor([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]]).log()  # of the latest visits
    state = consistent.init(sets).with_rows(**{MEMORY: weights, PREDICTIONS: old})
    after = consistent.end_epoch(sets, state, Step(torch.tensor(0.5), torch.tensor(1.0)))
    torch.testing.assert_close(after.rows[MEMORY], weights)


@pytest.mark.parametrize(
    "cleaning", [ConformalCleaning(start=1, alpha=0.2), Purification(1, 1, threshold=0.3)]
)
def test_rows_of_weight_0_take_no_part_in_cleaning_and_tolerance(cleaning):
    generator = torch.Generator().manual_seed(3)
    sets = torch.rand(300, 4, generator=generator) < 0.5
    sets[:, 0], sets[:, 3] = True, False
    weight = (torch.rand(300, generator=generator) < 0.5).float()
    counted = weight > 0
    # The network prefers a label outside the set in a quarter of the rows that count, and in all others.
    outside = ~counted | (torch.rand(300, generator=generator) < 0.25)
    preferred = torch.where(outside, 3, 0)[:, None] == torch.arange(4)
    log_p = (4 * preferred + torch.randn(300, 4, generator=generator)).log_softmax(-1)
    views = Views(mask="widened", tolerance="auto", tolerance_from=0.0, cleaning=cleaning)
    consistent = ConsistentObjective(CC(), views)
    step = Step(torch.tensor(0.9), torch.tensor(15.0))

    def after(rows, weight):
        state = consistent.init(sets[rows]).with_rows(**{PREDICTIONS: log_p[rows]})
        return consistent.end_epoch(sets[rows], state, step._replace(weight=weight))

    everything = slice(None)
    weighted, alone, equal = after(everything, weight), after(counted, None), after(everything, None)
    assert torch.equal(weighted.rows[KEPT][counted], alone.rows[KEPT])
    for name, value in alone.shared.items():
        assert torch.equal(weighted.shared[name], value), name
    assert not torch.equal(equal.shared[TOLERANCE], alone.shared[TOLERANCE])
    nothing = after(everything, torch.zeros(300))
    assert torch.equal(nothing.rows[KEPT], sets)


def test_without_strong_views_the_balance_term_remains():
    logits, sets = batch(1)
    views = Views(n_strong=0, balance=0.5, prior=(0.4, 0.3, 0.2, 0.1))
    loss = ConsistentObjective(CC(), views).loss(logits, sets, State(), at(0.5))
    expected = CC().loss(logits, sets, State(), at(0.5)) + 0.5 * balance_term(logits, views.prior)
    torch.testing.assert_close(loss, expected)
    with pytest.raises(ValueError, match="base_weight: got 0 with n_strong=0"):
        Views(n_strong=0, base_weight=0.0)


@pytest.mark.parametrize("gap", [5.0, 20.0, 60.0])
def test_the_smallest_candidate_keeps_its_multiple_where_the_network_is_sure(gap):
    logits, sets = torch.tensor([[gap, 0.0, -1.0, -2.0]]), torch.tensor([[True, True, False, False]])
    target = rectified(logits, sets)
    mass = (logits.double().softmax(-1) * sets).sum()
    ratio = target[0, :2].min().double() / target[0, 2:].max()
    torch.testing.assert_close(ratio, 1 / mass, rtol=1e-5, atol=0)
    torch.testing.assert_close(target.sum(), torch.tensor(1.0))


def test_balance_is_least_at_the_prior():
    flat, tilted = torch.zeros(6, 4), torch.tensor([2.0, 0, 0, 0]).expand(6, 4)
    assert balance_term(flat, None) < balance_term(tilted, None)
    prior = tuple(tilted[0].softmax(-1).tolist())
    assert balance_term(tilted, prior) < balance_term(flat, prior)
    torch.testing.assert_close(balance_term(tilted, (0.25,) * 4), balance_term(tilted, None))


@pytest.mark.parametrize("prior", [None, (0.4, 0.3, 0.2, 0.1)])
def test_balance_counts_rows_by_their_weights(prior):
    logits, _ = batch(1)
    weight, times = torch.tensor([1.0, 0.0, 2.0, 0.0, 3.0]), torch.tensor([1, 0, 2, 0, 3])
    expected = balance_term(logits.repeat_interleave(times, 0), prior)
    torch.testing.assert_close(balance_term(logits, prior, weight), expected)
    logits.requires_grad_()
    (gradient,) = torch.autograd.grad(balance_term(logits, prior, torch.zeros(5)), logits)
    assert not gradient.any()


@pytest.mark.parametrize("mask", ["candidates", "rectified", "widened"])
def test_classes_can_be_renamed(mask):
    logits, sets = batch()
    tolerance = 0.2 if mask == "widened" else 0.0
    consistent = ConsistentObjective(CC(), Views(n_strong=2, mask=mask, balance=0.3, tolerance=tolerance))
    order = torch.tensor([2, 0, 3, 1])
    loss = consistent.loss(logits, sets, State(), at(0.7))
    torch.testing.assert_close(consistent.loss(logits[:, order], sets[:, order], State(), at(0.7)), loss)


def test_the_stateless_recipe_of_glws():
    logits, sets = batch()
    views = Views(n_strong=2, ramp=0, balance=0.1, base_views="weak")
    weak, p = logits[:5], logits[:5].softmax(-1)
    target = restricted_softmax(weak, sets)
    consistency = -(target.repeat(3, 1) * logits.log_softmax(-1)).sum(-1).mean()
    balance = -0.1 * p.mean(0).log().mean()
    base = CC().loss(weak, sets, State(), at(0.0))
    loss = ConsistentObjective(CC(), views).loss(logits, sets, State(), at(1e-6))
    torch.testing.assert_close(loss, base + consistency + balance)


def test_the_balance_term_fades():
    logits, sets = batch()
    plain = ConsistentObjective(CC(), Views(n_strong=2, ramp=0))
    fading = ConsistentObjective(CC(), Views(n_strong=2, ramp=0, balance=0.8, balance_fade=0.5))
    term = balance_term(logits[:5], None)
    for progress, factor in ((0.0, 0.8), (0.25, 0.4), (0.5, 0.0), (0.9, 0.0)):
        losses = [objective.loss(logits, sets, State(), at(progress)) for objective in (fading, plain)]
        torch.testing.assert_close(losses[0] - losses[1], factor * term)


def test_the_temperature_divides_the_logits_of_targets():
    logits, sets = torch.tensor([[2.0, 1.0, 5.0]]), torch.tensor([[True, True, False]])
    target = soft_target(logits, sets, Views(temperature=0.5))
    torch.testing.assert_close(target, torch.tensor([[4.0, 2.0, -torch.inf]]).softmax(-1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("weight", -1.0),
            ("weight", math.nan),
            ("ramp", -0.1),
            ("balance", -0.5),
            ("base_weight", math.inf),
        ),
        *(("temperature", 0.0), ("momentum", 1.5), ("teacher_momentum", -1.0), ("tolerance_from", 2.0)),
        ("balance_fade", 1.5),
        *(("tolerance", -1.0), ("tolerance", 3.0), ("tolerance", "soon"), ("tolerance", None)),
        *(
            ("prior", (2.0, 2.0)),
            ("prior", (1.5, -0.5)),
            ("prior", 0.5),
            ("prior", ("a", "b")),
            ("weak", None),
            ("strong", "flip"),
            ("cleaning", "pop"),
        ),
    ],
)
def test_bad_values_are_named(name, value):
    # With PROPALL_CHECK_SHAPES=1, the wrong type is refused first.
    with pytest.raises((ValueError, TypeError, TypeCheckError), match=rf"^{name}: got |parameter '{name}'"):
        Views(**{name: value})


@pytest.mark.parametrize(
    ("message", "settings"),
    [
        ("tolerance: needs mask='widened'; got mask='candidates'", {"tolerance": "auto"}),
        ("tolerance: needs mask='widened'; got mask='rectified'", {"tolerance": 0.2, "mask": "rectified"}),
        ("prior: needs a balance term; got balance=0", {"prior": (0.5, 0.5)}),
        ("geometric: needs targets='memory'; got targets='weak'", {"geometric": True}),
    ],
)
def test_settings_without_effect_are_refused(message, settings):
    with pytest.raises(ValueError, match=f"^{message}"):
        Views(**settings)


def test_a_prior_is_kept_as_plain_numbers():
    views = Views(balance=0.5, prior=[0.25, 0.75])
    assert views == Views(balance=0.5, prior=(0.25, 0.75))
    assert hash(views) == hash(Views(balance=0.5, prior=(0.25, 0.75)))
    assert Views.from_dict(json.loads(json.dumps(views.to_dict()))) == views


def test_a_prior_has_a_share_for_each_class():
    with pytest.raises(ValueError, match="prior: got 2 shares for 4 classes; expected one for each class"):
        balance_term(torch.zeros(6, 4), (0.5, 0.5))
