"""A table of the paper: its cells, the runs behind each cell, and the published numbers."""

import csv
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from propall.data import DATASETS
from propall.paper.specs import TEACHER, TIMED, Spec, change_teacher
from propall.paper.tables.rows import PaperRow
from propall.registry import UnknownNameError
from propall.training.contract import Algorithm, Objective
from propall.training.recipe import Precision, Recipe

#: Protocol of smoke runs, and their training.
SHORT = "short"
SHORT_EPOCHS, SHORT_PER_CLASS = 2, 50
#: Suffix of protocols in which every method is trained with ProPaLL's learning rate and weight decay.
SAME_RATES = "+same-rates"
#: A protocol name: base, optional suffix, optional number of epochs.
_PROTOCOL = re.compile(r"(?P<base>.+?)(?P<same>\+same-rates)?(-(?P<epochs>[1-9]\d*)epochs)?")
#: Precision of networks on a GPU; float32 if not listed. TF32 was PyTorch's default for perceptrons when the
#: compared code was published.
_PRECISIONS: Mapping[str, Precision] = {
    **dict.fromkeys(("mlp5", "mlp500", "valen_mlp4"), "tf32"),
    **dict.fromkeys(("resnet32", "densenet161"), "bfloat16"),
}
#: Rows whose training time is compared.
TIMED_ROWS = ("propall", "proden", "valen")


@dataclass(frozen=True)
class MethodSetting:
    """How a method is trained on one data set."""

    method: Objective | Algorithm
    net: str
    recipe: Recipe

    def specs(self, data: str, *, seeds: int, **fields: Any) -> list[Spec]:
        """Return the runs on a data set with seeds from 0; `fields` are other fields of the spec."""
        spec = Spec(data, self.method, self.net, self.recipe, **fields)
        return [replace(spec, seed=seed) for seed in range(seeds)]

    def with_rates_of(self, other: "MethodSetting") -> "MethodSetting":
        """Return the method trained like another one.

        An objective adopts the whole recipe. An algorithm that trains a network (VALEN) keeps its batches and
        adopts learning rate and weight decay; a method without a network does not change.
        """
        recipe, theirs = self.recipe, other.recipe
        if isinstance(self.method, Objective):
            recipe = theirs
        elif self.method.trains_network:
            recipe = replace(recipe, learning_rate=theirs.learning_rate, weight_decay=theirs.weight_decay)
        return replace(self, recipe=recipe)


class PublishedAccuracy(NamedTuple):
    """Mean and standard deviation in percent, as printed in the paper."""

    mean: float
    std: float


class PaperCell(NamedTuple):
    """A cell of a table; `candidates` is their number, in tables that vary it."""

    table: str
    data: str
    row: str
    candidates: int | None = None

    @property
    def name(self) -> str:
        """Name on the command line, such as `real/lost/propall` or `candidates10/mnist/pc/8`."""
        return "/".join(str(part) for part in self if part is not None)


class ProtocolParts(NamedTuple):
    """The parts of a protocol name; without a number of `epochs`, each method has its own."""

    base: str
    same_rates: bool
    epochs: int | None

    @property
    def default_epochs(self) -> str:
        """Name of the protocol with the default numbers of epochs."""
        return self.base + (SAME_RATES if self.same_rates else "")


def parse_protocol(protocol: str) -> ProtocolParts:
    """Split a protocol name into its parts."""
    match = _PROTOCOL.fullmatch(protocol)
    assert match is not None
    epochs = int(match["epochs"]) if match["epochs"] else None
    return ProtocolParts(match["base"], match["same"] is not None, epochs)


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper."""

    name: str  # on the command line
    title: str  # number and subject in the paper
    data: tuple[str, ...]  # names of its data sets
    rows: tuple[PaperRow, ...]
    protocols: Mapping[str, str]  # ways to run it, each with a description; the first is the default
    settings: Callable[[str, str], MethodSetting]  # from data set and row
    runs: Callable[[PaperCell, MethodSetting, str], list[Spec]]  # from a protocol without `SAME_RATES`
    candidates: tuple[int, ...] = ()  # in tables that vary their number
    reports: Literal["accuracy", "last10"] = "accuracy"  # after the last epoch, or mean of the last ten
    remark: str = ""  # what the paper leaves open, and what we do
    caveat: Callable[[str, str], str] = lambda row, protocol: ""  # why a published row is not comparable
    # Protocols that verdicts are based on, by default the first. Others repeat the same cells, and counting
    # them would count a cell twice.
    judged: tuple[str, ...] = ()

    def caveat_for(self, cell: PaperCell, protocol: str) -> str:
        """Return why our number is not comparable with the published one; empty if it is."""
        parts = parse_protocol(protocol)
        if parts.base == SHORT:
            return "a smoke run, too short for a comparison"
        if parts.epochs is not None:
            default = self.specs(cell, parts.default_epochs, seeds=1)
            if any(spec.recipe.epochs < parts.epochs for spec in default):
                return f"ours was trained for {parts.epochs} epochs, more than its setting says"
            if self.specs(cell, protocol, seeds=1) != default:
                return f"ours was trained for only {parts.epochs} epochs"
        return self.caveat(cell.row, parts.base)

    def row(self, name: str) -> PaperRow:
        """Return a row by its name."""
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            known = ", ".join(rows)
            raise UnknownNameError(f"method: table {self.name} has no row {name!r}; expected one of {known}.")
        return rows[name]

    def cells(
        self, *, data: Sequence[str] | None = None, rows: Sequence[str] | None = None
    ) -> list[PaperCell]:
        """Return all cells, or those of some data sets and rows, the rows in the given order."""
        known = [row.name for row in self.rows]
        return [
            PaperCell(self.name, name, row, n)
            for name in self.data
            if data is None or name in data
            for n in self.candidates or (None,)
            for row in (known if rows is None else [row for row in rows if row in known])
        ]

    def published(self, cell: PaperCell) -> PublishedAccuracy | None:
        """Return the published number of a cell [struski2022propall]."""
        return published_accuracies().get(cell._replace(row=self.row(cell.row).published))

    def protocol(self, name: str | None = None) -> str:
        """Return the full name of a protocol.

        None and "full" stand for the default protocol, "same-rates" for its variant with `SAME_RATES`. The
        suffix "-50epochs" trains every network for 50 epochs.
        """
        default = next(iter(self.protocols))
        if name is None:
            return default
        parts = parse_protocol(name)
        base = parts.default_epochs
        if base == "full" and "full" not in self.protocols:
            base = default
        elif base == SAME_RATES.removeprefix("+"):
            base = default + SAME_RATES
        if base not in self.protocols:
            raise UnknownNameError(
                f"protocol: table {self.name} has no protocol {name!r}; expected one of "
                f"{', '.join(self.protocols)}, optionally followed by a number of epochs such as -50epochs."
            )
        return base if parts.epochs is None else f"{base}-{parts.epochs}epochs"

    def is_judged(self, protocol: str) -> bool:
        """Return whether verdicts are based on a protocol."""
        return protocol in (self.judged or (self.protocol(),))

    def describe(self, protocol: str) -> str:
        """Return a description of a protocol."""
        parts = parse_protocol(protocol)
        epochs = "" if parts.epochs is None else f"; networks trained for {parts.epochs} epochs"
        return self.protocols[parts.default_epochs] + epochs

    def specs(self, cell: PaperCell, protocol: str | None = None, *, seeds: int | None = None) -> list[Spec]:
        """Return the runs behind a cell; empty if the protocol leaves it out, see `left_out`.

        `seeds` overrides the protocol's number of seeds.
        """
        protocol = self.protocol(protocol)
        if self.left_out(cell, protocol):
            return []
        parts = parse_protocol(protocol)
        setting, label = self.settings(cell.data, cell.row), parts.base
        if parts.same_rates:
            changed = setting.with_rates_of(self.settings(cell.data, "propall"))
            # A row that does not change is the same run, and is not run twice.
            setting, label = changed, parts.default_epochs if changed != setting else parts.base
        specs = self.runs(cell, setting, parts.base)
        if parts.base == SHORT:
            specs = [_shorten(spec) for spec in specs[:1]]
        specs = [replace(_with_precision(spec), protocol=label) for spec in specs]
        if parts.epochs is not None:
            specs = [_with_epochs(parts.epochs, spec) for spec in specs]
        if seeds is None:
            return specs
        per_seed = [spec for spec in specs if spec.seed == 0]
        return [replace(spec, seed=seed) for seed in range(seeds) for spec in per_seed]

    def left_out(self, cell: PaperCell, protocol: str) -> str:
        """Return why a protocol has no runs for a cell; empty if it has some."""
        base = parse_protocol(protocol).base
        if base == SHORT and len(DATASETS[cell.data].shape) > 1:
            return "not part of smoke runs: images with channels"
        if base == TIMED and (cell.row not in TIMED_ROWS or len(DATASETS[cell.data].shape) > 1):
            return "only ProPaLL, PRODEN and VALEN on vectors are timed"
        return ""


def _with_precision(spec: Spec) -> Spec:
    """Set the precision of a run, and of its teacher, to that of its network."""
    precision = _PRECISIONS.get(spec.net, spec.recipe.precision)
    teacher = None if spec.teacher is None else change_teacher(spec.teacher, precision=precision)
    return replace(spec, recipe=replace(spec.recipe, precision=precision), teacher=teacher)


def _shorten(spec: Spec) -> Spec:
    """Shorten a run from hours to seconds, to test that everything works."""
    split, teacher, recipe = spec.split, spec.teacher, replace(spec.recipe, epochs=SHORT_EPOCHS)
    if split.fold is None:
        split = replace(split, per_class=SHORT_PER_CLASS)
    if spec.corruption is not None and spec.corruption.needs_scores:
        teacher = change_teacher(teacher or TEACHER, epochs=SHORT_EPOCHS)
    method = spec.method.shortened()
    return replace(spec, method=method, recipe=recipe, split=split, teacher=teacher, seed=0)


def _with_epochs(epochs: int, spec: Spec) -> Spec:
    """Set the number of epochs; returns the same spec if it has no epochs, or this number."""
    if not spec.trains_network or spec.recipe.epochs == epochs:
        return spec
    recipe = replace(spec.recipe, epochs=epochs)
    return replace(spec, recipe=recipe, protocol=f"{spec.protocol}-{epochs}epochs")


@functools.cache
def published_accuracies() -> Mapping[PaperCell, PublishedAccuracy]:
    """Return every number of the paper's tables by cell, named by the paper's rows [struski2022propall]."""
    text = files("propall.paper.tables").joinpath("published.csv").read_text(encoding="utf-8")
    numbers = {}
    for line in csv.DictReader(text.splitlines()):
        n = int(line["candidates"]) if line["candidates"] else None
        cell = PaperCell(line["table"], line["data"], line["row"], n)
        numbers[cell] = PublishedAccuracy(float(line["mean"]), float(line["std"]))
    return numbers
