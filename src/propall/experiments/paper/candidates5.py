"""Table 6: exactly n candidates out of five classes."""

from propall.experiments.paper import candidates10
from propall.experiments.paper.baselines import IMAGES
from propall.experiments.paper.table import Cell, Setting, Table
from propall.experiments.spec import Spec

#: The paper keeps the last five classes; the code of PC and OVA the first five.
CLASSES = (5, 6, 7, 8, 9)


def runs(cell: Cell, setting: Setting, protocol: str) -> list[Spec]:
    """Three seeds on the last five classes."""
    return candidates10.runs_on(CLASSES, cell, setting, protocol)


TABLE = Table(
    name="candidates5",
    title="Table 6: exactly n candidates of five classes",
    data=IMAGES,
    rows=candidates10.ROWS,
    protocols=candidates10.PROTOCOLS,
    settings=candidates10.settings,
    runs=runs,
    candidates=(1, 2, 3, 4),
    reports="last10",
    remark=candidates10.TABLE.remark,
)
