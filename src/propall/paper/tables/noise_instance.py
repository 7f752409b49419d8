"""Appendix: ProPaLL with and without noise on instance-dependent candidate sets."""

from dataclasses import replace

from propall.paper.tables import instance
from propall.paper.tables.baselines import NOISE_ROWS

TABLE = replace(
    instance.TABLE,
    name="noise_instance",
    title="Appendix: noise, instance-dependent candidate sets",
    rows=NOISE_ROWS,
)
