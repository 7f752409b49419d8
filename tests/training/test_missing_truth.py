import math

import pytest
import torch

from propall.training.missing_truth import automatic_tolerance, estimate_miss_rate, log_margins


def test_margins_compare_the_best_labels_of_both_sides():
    p = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6], [0.2, 0.3, 0.5]], dtype=torch.float64)
    sets = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 1, 1]]).bool()
    torch.testing.assert_close(
        log_margins(p.log(), sets).exp(), torch.tensor([6.0, 0.5], dtype=torch.float64), rtol=1e-7, atol=0
    )  # the full set has no margin


@pytest.mark.parametrize("missing", [0.0, 0.1, 0.2, 0.3])
def test_the_mixture_finds_the_share_of_negative_margins(missing):
    generator = torch.Generator().manual_seed(0)
    low = -3 + torch.randn(round(2000 * missing), generator=generator)
    high = 5 + 2 * torch.randn(2000 - len(low), generator=generator)
    rate = estimate_miss_rate(torch.cat([low, high]))
    assert abs(rate.mixture - missing) < 0.02
    assert abs(rate.estimate - missing) < 0.02


def test_margins_of_one_kind_mean_no_missing_truth():
    margins = 1.5 + torch.randn(2000, generator=torch.Generator().manual_seed(0))
    rate = estimate_miss_rate(margins)
    assert rate.below_one > 0.05  # mistakes of the network
    assert rate.mixture == rate.estimate == 0
    assert estimate_miss_rate(torch.zeros(0)).estimate == 0


def test_the_tolerance_is_a_quantile_of_the_margins():
    margins = torch.tensor([0.1, 0.5, 0.8, 3.0, 4.0]).log()
    assert automatic_tolerance(margins, 0.0) == 0
    assert math.isclose(automatic_tolerance(margins, 0.5), 0.5, rel_tol=1e-6)
    assert math.isclose(automatic_tolerance(margins, 0.6), 0.8, rel_tol=1e-6)
    assert automatic_tolerance(margins, 0.9) == 1
    many = torch.linspace(0.1, 0.5, 100).log()  # 0.29 * 100 is a little less than 29
    assert math.isclose(automatic_tolerance(many, 0.29), float(many[28].exp()), rel_tol=1e-6)
