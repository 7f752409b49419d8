"""Table 8: ProPaLL with and without noise on real-world candidate sets."""

from dataclasses import replace

from propall.paper.tables import real
from propall.paper.tables.baselines import NOISE_ROWS

TABLE = replace(
    real.TABLE,
    name="noise_real",
    title="Table 8: noise, real-world candidate sets",
    rows=NOISE_ROWS,
    remark=real.SPLIT_UNKNOWN,
)
