"""Appendix: ProPaLL with and without noise on uniform candidate sets."""

from dataclasses import replace

from propall.paper.specs import TIMED
from propall.paper.tables import uniform
from propall.paper.tables.baselines import NOISE_ROWS

TABLE = replace(
    uniform.TABLE,
    name="noise_uniform",
    title="Appendix: noise, uniform candidate sets",
    rows=NOISE_ROWS,
    protocols={name: how for name, how in uniform.PROTOCOLS.items() if name != TIMED},
)
