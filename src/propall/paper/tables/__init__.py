"""The tables of the paper: settings, runs behind every cell, and published numbers."""

from dataclasses import replace

from propall.paper.specs import TIMED
from propall.paper.tables import complementary, exact, images, real
from propall.paper.tables.paper_table import PaperCell, PaperTable
from propall.paper.tables.paper_table import published_accuracies as published_accuracies
from propall.paper.tables.rows import NO_NOISE, method_rows
from propall.registry import Registry, UnknownNameError


def _noise_table(table: PaperTable, title: str, remark: str | None = None) -> PaperTable:
    """Return a table of ProPaLL with and without noise in the settings of another table."""
    return replace(
        table,
        name=f"noise_{table.name}",
        title=title,
        rows=(NO_NOISE, *method_rows("propall")),
        protocols={name: how for name, how in table.protocols.items() if name != TIMED},
        remark=table.remark if remark is None else remark,
    )


_TABLES = (
    images.UNIFORM,
    images.INSTANCE,
    real.TABLE,
    exact.TABLE_10,
    exact.TABLE_5,
    complementary.TABLE,
    _noise_table(real.TABLE, "Table 8: noise, real-world candidate sets", real.SPLIT_UNKNOWN),
    _noise_table(images.UNIFORM, "Appendix: noise, uniform candidate sets"),
    _noise_table(images.INSTANCE, "Appendix: noise, instance-dependent candidate sets"),
    _noise_table(exact.TABLE_10, "Appendix: noise, exactly n candidates of ten classes"),
    _noise_table(exact.TABLE_5, "Appendix: noise, exactly n candidates of five classes"),
    _noise_table(complementary.TABLE, "Appendix: noise, one complementary label", complementary.REPORTED),
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
