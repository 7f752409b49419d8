"""Rows of the tables, and the methods behind them."""

from typing import NamedTuple

from propall.methods import METHODS
from propall.methods.pl_svm import PLSVM
from propall.methods.plle import PLLE_EXPLORED
from propall.methods.propall import ProPaLL
from propall.training.contract import Algorithm, Objective


class PaperRow(NamedTuple):
    """A row of a table: a method in one setting."""

    name: str  # on the command line
    title: str  # as printed
    published: str  # the paper's row it is compared with; several of our rows may share one


NO_NOISE = PaperRow("propall-no-noise", "ProPaLL without noise", "propall-no-noise")
#: Rows that are a method in another setting than its default.
_VARIANTS: dict[str, Objective | Algorithm] = {
    NO_NOISE.name: ProPaLL(noise=0.0),
    "pl_svm-auto": PLSVM(lam="auto"),
    "plle-explored": PLLE_EXPLORED,
}


def method_rows(*names: str) -> tuple[PaperRow, ...]:
    """Return rows that have the names and titles of their methods."""
    return tuple(PaperRow(name, METHODS[name].title, name) for name in names)


def build_method(row: str) -> Objective | Algorithm:
    """Return the method of a row by its name; rows may be methods that the paper does not have."""
    return _VARIANTS[row] if row in _VARIANTS else METHODS[row]()
