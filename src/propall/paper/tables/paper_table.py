"""A table of the paper: its cells by name, the runs behind each, and the published number beside them."""

import csv
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Literal, NamedTuple

from propall.data import DATASETS
from propall.paper.specs import TEACHER, TIMED, Spec
from propall.registry import UnknownNameError
from propall.training.contract import Algorithm, Objective
from propall.training.recipe import Precision, Recipe

#: Key of the article whose numbers `published.csv` holds. They are never mixed with measured ones.
REFERENCE = "struski2022propall"

#: The smoke run's training, everywhere: too short to compare anything with.
SHORT = "short"
SHORT_EPOCHS, SHORT_PER_CLASS = 2, 50
#: What is appended to a protocol's name where every method is trained as ProPaLL is.
SAME_RATES = "+same-rates"
#: A protocol's name; at its end stands what networks are trained for in place of their own number of epochs.
_NAME = re.compile(r"(?P<base>.+?)(?P<same>\+same-rates)?(-(?P<epochs>[1-9]\d*)epochs)?")
#: What networks compute in on a GPU. For perceptrons that is what PyTorch did by itself when the compared
#: code was published. Networks that are not named here compute in float32.
_PRECISIONS: Mapping[str, Precision] = {
    "mlp5": "tf32",
    "mlp500": "tf32",
    "valen_mlp4": "tf32",
    "resnet32": "bfloat16",
    "densenet161": "bfloat16",
}
#: The lines whose training time is compared.
TIMED_ROWS = ("propall", "proden", "valen")


@dataclass(frozen=True)
class MethodSetting:
    """What a method is trained with on one data set.

    Attributes:
        method: the method with its hyper-parameters.
        net: name of the network.
        recipe: epochs, batches, optimiser.
    """

    method: Objective | Algorithm
    net: str
    recipe: Recipe

    def at_rates_of(self, other: "MethodSetting") -> "MethodSetting":
        """The same method trained as another one is.

        An objective takes over the whole recipe. An algorithm that trains a network (VALEN) keeps its
        batches and takes over the rates; one without a network stays as it is.
        """
        if isinstance(self.method, Objective):
            return replace(self, recipe=other.recipe)
        if self.method.trains_network:
            ours = other.recipe
            recipe = replace(self.recipe, learning_rate=ours.learning_rate, weight_decay=ours.weight_decay)
            return replace(self, recipe=recipe)
        return self


class PublishedAccuracy(NamedTuple):
    """Mean and standard deviation in percent, as printed in the paper."""

    mean: float
    std: float


class PaperRow(NamedTuple):
    """A line of a table.

    Attributes:
        name: what it is asked for by.
        title: what tables print.
        published: the paper's line it stands beside; several of ours may share one.
    """

    name: str
    title: str
    published: str


class PaperCell(NamedTuple):
    """One entry of a table.

    Attributes:
        table: name of the table.
        data: name of the data set.
        row: name of the line.
        candidates: number of candidates, in the tables that vary it.
    """

    table: str
    data: str
    row: str
    candidates: int | None = None

    @property
    def name(self) -> str:
        """What it is asked for by, such as `real/lost/propall` or `candidates10/mnist/pc/8`."""
        return "/".join(str(part) for part in self if part is not None)


class ProtocolParts(NamedTuple):
    """A protocol's name, taken apart.

    Attributes:
        base: what is run.
        same_rates: whether every method is trained as ProPaLL is.
        epochs: what networks are trained for; None for their own numbers.
    """

    base: str
    same_rates: bool
    epochs: int | None

    @property
    def uncut(self) -> str:
        """The protocol in which networks have their own numbers of epochs."""
        return self.base + (SAME_RATES if self.same_rates else "")


def parse_protocol(protocol: str) -> ProtocolParts:
    """A protocol's name, taken apart."""
    found = _NAME.fullmatch(protocol)
    assert found is not None
    return ProtocolParts(
        found["base"], found["same"] is not None, int(found["epochs"]) if found["epochs"] else None
    )


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper.

    Attributes:
        name: what it is asked for by.
        title: its number and content.
        data: names of its data sets.
        rows: its lines.
        protocols: ways to run it, each with a sentence on what it is; the first is the default.
        settings: line and data set to method, network and recipe.
        runs: cell, its setting and protocol (without `SAME_RATES`) to the runs behind the cell.
        candidates: numbers of candidates, in the tables that vary them.
        reports: what of a run is tabled: the accuracy after the last epoch, or its mean over the last ten.
        remark: what the paper leaves open, and what is done here.
        caveat: line and protocol to the reason why the published number is of another kind; empty where not.
        judged: the protocols that verdicts rest on; the first alone if empty. Others run the same cells once
            more in another way, and to count both would count a cell twice.
    """

    name: str
    title: str
    data: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    protocols: Mapping[str, str]
    settings: Callable[[str, str], MethodSetting]
    runs: Callable[[PaperCell, MethodSetting, str], list[Spec]]
    candidates: tuple[int, ...] = ()
    reports: Literal["accuracy", "last10"] = "accuracy"
    remark: str = ""
    caveat: Callable[[str, str], str] = lambda row, protocol: ""
    judged: tuple[str, ...] = ()

    def incomparable(self, cell: PaperCell, protocol: str) -> str:
        """Why a measured number cannot be held against the published one; empty where it can."""
        own = parse_protocol(protocol)
        if own.base == SHORT:
            return "a smoke run, too short to compare with anything"
        if own.epochs is not None:
            uncut = self.specs(cell, own.uncut, seeds=1)
            if any(spec.recipe.epochs < own.epochs for spec in uncut):
                return f"ours was trained for {own.epochs} epochs, longer than by its own values"
            if self.specs(cell, protocol, seeds=1) != uncut:
                return f"ours was trained for {own.epochs} epochs only"
        return self.caveat(cell.row, own.base)

    def row(self, name: str) -> PaperRow:
        """A line by its name."""
        for row in self.rows:
            if row.name == name:
                return row
        raise UnknownNameError(
            f"method: {name!r} is no line of table {self.name}; there are "
            f"{', '.join(row.name for row in self.rows)}."
        )

    def cells(
        self, *, data: Sequence[str] | None = None, rows: Sequence[str] | None = None
    ) -> list[PaperCell]:
        """All cells, or those of some data sets and lines."""
        for name in data or ():
            if name not in self.data:
                raise UnknownNameError(
                    f"data: {name!r} is not in table {self.name}; there are {', '.join(self.data)}."
                )
        chosen = self.rows if rows is None else tuple(self.row(name) for name in rows)
        return [
            PaperCell(self.name, of, row.name, n)
            for of in self.data
            if data is None or of in data
            for n in self.candidates or (None,)
            for row in chosen
        ]

    def published(self, cell: PaperCell) -> PublishedAccuracy | None:
        """What the paper prints there [struski2022propall]."""
        return published_accuracies().get(cell._replace(row=self.row(cell.row).published))

    def protocol(self, name: str | None = None) -> str:
        """A protocol's own name: None and "full" ask for the default, "same-rates" for its variant.

        Behind any name, "-50epochs" trains every network for 50 epochs instead of its own number.
        """
        default = next(iter(self.protocols))
        if name is None:
            return default
        own = parse_protocol(name)
        asked = own.uncut
        if asked == "full" and "full" not in self.protocols:
            asked = default
        elif asked == SAME_RATES.removeprefix("+"):
            asked = default + SAME_RATES
        if asked not in self.protocols:
            raise UnknownNameError(
                f"protocol: {name!r} is none of table {self.name}; it has {', '.join(self.protocols)}; "
                "-50epochs behind one of them trains that long."
            )
        return asked if own.epochs is None else f"{asked}-{own.epochs}epochs"

    def is_judged(self, protocol: str) -> bool:
        """Whether verdicts rest on a protocol."""
        return protocol in (self.judged or (self.protocol(),))

    def describe(self, protocol: str) -> str:
        """A sentence on what a protocol is."""
        own = parse_protocol(protocol)
        longer = "" if own.epochs is None else f"; networks trained for {own.epochs} epochs"
        return self.protocols[own.uncut] + longer

    def specs(self, cell: PaperCell, protocol: str | None = None, *, seeds: int | None = None) -> list[Spec]:
        """The runs behind a cell; none where the protocol leaves it out (see `left_out`).

        Args:
            cell: one of `cells`.
            protocol: name of a protocol; the default if None.
            seeds: how many seeds, in place of the protocol's number.
        """
        protocol = self.protocol(protocol)
        if self.left_out(cell, protocol):
            return []
        own = parse_protocol(protocol)
        setting, label = self.settings(cell.data, cell.row), own.base
        if own.same_rates:
            changed = setting.at_rates_of(self.settings(cell.data, "propall"))
            # A line that is trained the same either way is the same run, and is not run twice.
            setting, label = changed, own.uncut if changed != setting else own.base
        specs = self.runs(cell, setting, own.base)
        if own.base == SHORT:
            specs = [_shortened(spec) for spec in specs[:1]]
        specs = [replace(_computed(spec), protocol=label) for spec in specs]
        if own.epochs is not None:
            specs = [_trained_for(own.epochs, spec) for spec in specs]
        if seeds is None:
            return specs
        per_seed = [spec for spec in specs if spec.seed == 0]
        return [replace(spec, seed=seed) for seed in range(seeds) for spec in per_seed]

    def left_out(self, cell: PaperCell, protocol: str) -> str:
        """Why a protocol has no runs for a cell; empty where it has some."""
        base = parse_protocol(protocol).base
        if base == SHORT and len(DATASETS[cell.data].shape) > 1:
            return "short runs leave images with channels out"
        if base == TIMED and (cell.row not in TIMED_ROWS or len(DATASETS[cell.data].shape) > 1):
            return "timed are ProPaLL, PRODEN and VALEN on vectors"
        return ""


def _computed(spec: Spec) -> Spec:
    """A run in its network's precision, and its teacher too."""
    precision = _PRECISIONS.get(spec.net, spec.recipe.precision)
    teacher = None if spec.teacher is None else replace(spec.teacher, precision=precision)
    return replace(spec, recipe=replace(spec.recipe, precision=precision), teacher=teacher)


def _shortened(spec: Spec) -> Spec:
    """A run of seconds in place of hours, which shows that everything works and nothing else."""
    split = spec.split
    if split.fold is None:
        split = replace(split, per_class=SHORT_PER_CLASS)
    teacher = spec.teacher
    if spec.corruption is not None and spec.corruption.needs_scores:
        teacher = replace(teacher or TEACHER, epochs=SHORT_EPOCHS)
    return replace(
        spec,
        method=spec.method.shortened(),
        recipe=replace(spec.recipe, epochs=SHORT_EPOCHS),
        split=split,
        teacher=teacher,
        seed=0,
    )


def _trained_for(epochs: int, spec: Spec) -> Spec:
    """A run of so many epochs; the same run where it has no epochs, or just as many."""
    if not spec.trains_a_net or spec.recipe.epochs == epochs:
        return spec
    return replace(
        spec, recipe=replace(spec.recipe, epochs=epochs), protocol=f"{spec.protocol}-{epochs}epochs"
    )


@functools.cache
def published_accuracies() -> Mapping[PaperCell, PublishedAccuracy]:
    """Every number of the paper's tables by its cell, under the paper's own lines [struski2022propall]."""
    text = files("propall.paper.tables").joinpath("published.csv").read_text(encoding="utf-8")
    numbers = {}
    for line in csv.DictReader(text.splitlines()):
        n = int(line["candidates"]) if line["candidates"] else None
        cell = PaperCell(line["table"], line["data"], line["row"], n)
        numbers[cell] = PublishedAccuracy(float(line["mean"]), float(line["std"]))
    return numbers
