import json
from dataclasses import replace

import pytest
import torch

from propall.training.cleaning import HISTORY, KEPT, ConformalCleaning, Purification
from propall.training.views import Views

SETS = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [0, 1, 1, 1]]).bool()
LIKELY = torch.tensor([[0.9, 0.0999, 1e-4, 1e-6], [0.5, 0.4, 0.05, 0.05], [0.1, 0.3, 0.3, 0.3]])


def test_purification_waits_for_its_start_and_its_window():
    rule = Purification(start=4, window=2, threshold=0.01)
    stored = rule.init(SETS)
    for epoch in range(1, 4):
        stored = rule.end_epoch(LIKELY.log(), SETS, stored, epoch)
        assert torch.equal(stored.rows[KEPT], SETS)
    stored = rule.end_epoch(LIKELY.log(), SETS, stored, 4)
    expected = SETS.clone()
    expected[0, 2] = False
    assert torch.equal(stored.rows[KEPT], expected)
    assert not stored.rows[HISTORY].any()
    torch.testing.assert_close(stored.weights[0, :2], LIKELY[0, :2] / LIKELY[0, :2].sum())
    assert not stored.weights[~expected].any()


def test_purification_never_gives_a_label_back_and_keeps_the_best():
    rule = Purification(start=1, window=1, threshold=0.5)
    stored = rule.init(SETS)
    for epoch in range(1, 6):
        draws = torch.randn(SETS.shape, generator=torch.Generator().manual_seed(epoch)).log_softmax(-1)
        before, stored = stored.rows[KEPT], rule.end_epoch(draws, SETS, stored, epoch)
        assert not (stored.rows[KEPT] & ~before).any()
        assert stored.rows[KEPT].any(-1).all()


def test_conformal_p_values_by_counting():
    generator = torch.Generator().manual_seed(0)
    p = (3 * torch.randn(40, 5, generator=generator)).softmax(-1)
    sets = torch.rand(40, 5, generator=generator) < 0.6
    sets[torch.arange(40), p.argmax(-1)] = True
    rule = ConformalCleaning(alpha=0.1)
    kept = rule.clean(p, sets, optimism=0.25)
    rows = rule.reference_rows(sets).tolist()
    assert rows == list(range(40))  # fewer than 100 rows: all are reference rows
    scores = [min(1 - float(p[v, j]) for j in range(5) if sets[v, j]) for v in rows]
    level = 0.1 + float((p * ~sets).sum(-1).mean())
    for i in range(40):
        values = [(1 + sum(a >= 1 - 0.75 * float(p[i, j]) for a in scores)) / 41 for j in range(5)]
        stays = [bool(sets[i, j]) and values[j] > level for j in range(5)]
        assert kept[i].tolist() == (stays if any(stays) else sets[i].tolist())
    assert (kept != sets).any()


def test_singletons_are_the_reference_if_there_are_enough():
    sets = torch.ones(300, 3, dtype=torch.bool)
    assert len(ConformalCleaning().reference_rows(sets)) == 100
    sets[50:200, 1:] = False
    assert ConformalCleaning().reference_rows(sets).tolist() == list(range(50, 200))


def test_conformal_cleaning_starts_late_and_can_give_back():
    rule, sets = ConformalCleaning(start=3), SETS.repeat(40, 1)
    stored = rule.init(sets)
    assert torch.equal(rule.end_epoch(LIKELY.repeat(40, 1).log(), sets, stored, 2).rows[KEPT], sets)
    cleaned = rule.end_epoch(LIKELY.repeat(40, 1).log(), sets, stored, 20)
    assert not cleaned.rows[KEPT][0, 2]
    flat = torch.full((120, 4), 0.25).log()
    assert torch.equal(rule.end_epoch(flat, sets, cleaned, 21).rows[KEPT], sets)


def test_conformal_cleaning_halves_epsilon_with_every_epoch():
    rule, sets = ConformalCleaning(start=3, alpha=0.1), torch.ones(120, 3, dtype=torch.bool)
    log_p = (3 * torch.randn(120, 3, generator=torch.Generator().manual_seed(0))).log_softmax(-1)
    by_epoch = [rule.end_epoch(log_p, sets, rule.init(sets), epoch).rows[KEPT] for epoch in range(3, 12)]
    by_epsilon = [rule.clean(log_p.exp(), sets, 0.5**power) for power in range(1, 10)]
    assert len({int(kept.sum()) for kept in by_epsilon}) > 2
    assert all(torch.equal(kept, expected) for kept, expected in zip(by_epoch, by_epsilon, strict=True))


@pytest.mark.parametrize("rule", [Purification(window=3), ConformalCleaning(alpha=0.2)])
def test_rules_survive_json(rule):
    views = Views(cleaning=rule)
    assert Views.from_dict(json.loads(json.dumps(views.to_dict()))) == views


def test_purification_waits_for_the_end_of_a_window():
    rule = Purification(start=0, window=2, threshold=0.9)
    once = rule.end_epoch(LIKELY.log(), SETS, rule.init(SETS), 1)
    assert torch.equal(once.rows[KEPT], SETS)
    assert not torch.equal(rule.end_epoch(LIKELY.log(), SETS, once, 2).rows[KEPT], SETS)


def test_only_rows_that_count_decide_whether_the_threshold_grows():
    rule = Purification(start=1, window=1, threshold=0.1, growth=0.5, change=0.01)
    average = torch.tensor([[0.5, 0.49, 0.01], [0.4, 0.3, 0.3]])
    sets = torch.ones(2, 3, dtype=torch.bool)
    both = rule.purify(average, sets, torch.tensor(0.1))
    second = rule.purify(average, sets, torch.tensor(0.1), torch.tensor([False, True]))
    assert both.threshold == pytest.approx(0.1)  # a sixth of the candidates was removed
    assert second.threshold == pytest.approx(0.15)
    # A third of the entries of the rows that count, a sixth of all.
    first = replace(rule, change=0.25).purify(average, sets, torch.tensor(0.1), torch.tensor([True, False]))
    assert first.threshold == pytest.approx(0.1)
