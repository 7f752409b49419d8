"""A file per table of the paper: which value where, the runs behind every cell, and the published numbers."""

from propall.paper.tables import (
    candidates5,
    candidates10,
    complementary,
    instance,
    noise_candidates5,
    noise_candidates10,
    noise_complementary,
    noise_instance,
    noise_real,
    noise_uniform,
    real,
    uniform,
)
from propall.paper.tables.paper_table import Cell as Cell
from propall.paper.tables.paper_table import Published as Published
from propall.paper.tables.paper_table import Row as Row
from propall.paper.tables.paper_table import Setting as Setting
from propall.paper.tables.paper_table import Table as Table
from propall.paper.tables.paper_table import published as published
from propall.registry import Registry, UnknownNameError

_TABLES = (
    uniform.TABLE,
    instance.TABLE,
    real.TABLE,
    candidates10.TABLE,
    candidates5.TABLE,
    complementary.TABLE,
    noise_real.TABLE,
    noise_uniform.TABLE,
    noise_instance.TABLE,
    noise_candidates10.TABLE,
    noise_candidates5.TABLE,
    noise_complementary.TABLE,
)
#: The paper's tables under their names.
TABLES: Registry[Table] = Registry("table", ((table.name, table) for table in _TABLES))


def cell(name: str) -> Cell:
    """A cell by its name, such as `real/lost/propall` or `candidates10/mnist/pc/8`."""
    table = name.partition("/")[0]
    for found in TABLES[table].cells():
        if found.name == name:
            return found
    raise UnknownNameError(
        f"cell: {name!r} is not one of table {table}; names are TABLE/DATA/METHOD, and in candidates10 and "
        f"candidates5 also /N. For instance: {TABLES[table].cells()[0].name}"
    )
