"""Appendix: ProPaLL with and without noise on one complementary label."""

from dataclasses import replace

from propall.experiments.paper import complementary
from propall.experiments.paper.baselines import NOISE_ROWS

TABLE = replace(
    complementary.TABLE,
    name="noise_complementary",
    title="Appendix: noise, one complementary label",
    rows=NOISE_ROWS,
    remark=complementary.TABLED,
)
