"""Appendix: ProPaLL with and without noise on exactly n candidates of ten classes."""

from dataclasses import replace

from propall.paper.tables import candidates10
from propall.paper.tables.baselines import NOISE_ROWS

TABLE = replace(
    candidates10.TABLE,
    name="noise_candidates10",
    title="Appendix: noise, exactly n candidates of ten classes",
    rows=NOISE_ROWS,
)
