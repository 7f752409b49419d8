"""Appendix: ProPaLL with and without noise on exactly n candidates of five classes."""

from dataclasses import replace

from propall.paper.tables import candidates5
from propall.paper.tables.baselines import NOISE_ROWS

TABLE = replace(
    candidates5.TABLE,
    name="noise_candidates5",
    title="Appendix: noise, exactly n candidates of five classes",
    rows=NOISE_ROWS,
)
