"""Appendix: ProPaLL with and without noise on one complementary label."""

from dataclasses import replace

from propall.paper.tables import complementary
from propall.paper.tables.baselines import NOISE_ROWS

TABLE = replace(
    complementary.TABLE,
    name="noise_complementary",
    title="Appendix: noise, one complementary label",
    rows=NOISE_ROWS,
    remark=complementary.REPORTED,
)
