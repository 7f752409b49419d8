"""Appendix: ProPaLL with and without noise on uniform candidate sets."""

from dataclasses import replace

from propall.experiments.paper import uniform
from propall.experiments.paper.baselines import NOISE_ROWS
from propall.experiments.spec import TIMED

TABLE = replace(
    uniform.TABLE,
    name="noise_uniform",
    title="Appendix: noise, uniform candidate sets",
    rows=NOISE_ROWS,
    protocols={name: how for name, how in uniform.PROTOCOLS.items() if name != TIMED},
)
