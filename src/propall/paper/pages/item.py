"""A table or figure of the report under a name of its own, with where its numbers come from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from propall.data import DATASETS
from propall.paper.results import RunResult
from propall.report.charts import Figure
from propall.report.tables import ReportTable


@dataclass(frozen=True)
class Item:
    """One table or figure.

    Attributes:
        name: of its files, such as `uniform-q0.5`.
        block: what is shown.
        provenance: data, corruption, protocol, seeds, epochs, precision, hardware, version, commit, date.
    """

    name: str
    block: ReportTable | Figure
    provenance: Mapping[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """The provenance in one line."""
        return " · ".join(f"{name} {value}" for name, value in self.provenance.items())

    def to_html(self, anchor: str) -> str:
        """The block, its provenance at its foot."""
        origin = f'<p class="origin">{escape(self.origin)}</p>' if self.provenance else ""
        return f"{self.block.to_html(anchor)}\n{origin}"


def provenance(results: Iterable[RunResult]) -> dict[str, str]:
    """Where the numbers of an item come from."""
    own = list(results)
    if not own:
        return {}
    specs = [result.spec for result in own]
    laws = [spec.corruption for spec in specs]
    epochs = {spec.recipe.epochs for spec in specs if spec.trains_a_net}
    folds = {spec.split.fold for spec in specs}
    days = sorted({result.when[:10] for result in own})
    found = {
        "data": _listed(DATASETS[spec.data].title for spec in specs),
        "corruption": _listed("the data's own" if law is None else law.name for law in laws),
        **{
            name: _listed(f"{getattr(law, name):g}" for law in laws if hasattr(law, name))
            for name in ("q", "rate")
        },
        "protocol": _listed(spec.protocol for spec in specs),
        "runs": str(len(own)),
        "seeds": _span({spec.seed for spec in specs}),
        "folds": _span({fold for fold in folds if fold is not None}),
        "epochs": _listed(map(str, sorted(epochs))),
        "precision": _listed(spec.recipe.precision for spec in specs if spec.trains_a_net),
        "hardware": _listed(result.hardware for result in own),
        "propall": _listed(result.version for result in own),
        "commit": _listed(result.commit for result in own),
        "torch": _listed(result.torch for result in own),
        "date": days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}",
    }
    return {name: value for name, value in found.items() if value}


def _listed(words: Iterable[str], at_most: int = 6) -> str:
    different = [word for word in dict.fromkeys(words) if word]
    more = f" and {len(different) - at_most} more" if len(different) > at_most else ""
    return ", ".join(different[:at_most]) + more


def _span(numbers: set[int]) -> str:
    ordered: Sequence[int] = sorted(numbers)
    if len(ordered) > 2 and list(ordered) == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]}-{ordered[-1]}"
    return ", ".join(map(str, ordered))
