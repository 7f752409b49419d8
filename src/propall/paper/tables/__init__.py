"""The tables of the paper, one file each: settings, runs behind every cell, and published numbers."""

from propall.paper.tables import (
    candidates5,
    candidates10,
    complementary,
    instance,
    noise,
    real,
    uniform,
)
from propall.paper.tables.paper_table import MethodSetting as MethodSetting
from propall.paper.tables.paper_table import PaperCell as PaperCell
from propall.paper.tables.paper_table import PaperRow as PaperRow
from propall.paper.tables.paper_table import PaperTable as PaperTable
from propall.paper.tables.paper_table import PublishedAccuracy as PublishedAccuracy
from propall.paper.tables.paper_table import published_accuracies as published_accuracies
from propall.registry import Registry, UnknownNameError

_TABLES = (
    uniform.TABLE,
    instance.TABLE,
    real.TABLE,
    candidates10.TABLE,
    candidates5.TABLE,
    complementary.TABLE,
    *noise.TABLES,
)
#: The tables of the paper by name.
TABLES: Registry[PaperTable] = Registry("table", ((table.name, table) for table in _TABLES))


def find_cell(name: str) -> PaperCell:
    """Return a cell by its name, such as `real/lost/propall` or `candidates10/mnist/pc/8`."""
    cells = TABLES[name.partition("/")[0]].cells()
    for cell in cells:
        if cell.name == name:
            return cell
    raise UnknownNameError(
        f"cell: table {cells[0].table} has no cell {name!r}; expected TABLE/DATA/METHOD (in candidates10 and "
        f"candidates5 also /N), such as {cells[0].name}."
    )
