"""Claims, verdicts and the paired comparisons they are based on."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple

from propall.paper.reproduction import CellResult
from propall.paper.results import RunResult
from propall.paper.stats import paired_p
from propall.paper.tables import TABLES

#: Significance level of all tests.
ALPHA = 0.05
#: The row of the proposed method.
OURS = "propall"


class Verdict(StrEnum):
    """Whether the results support a claim."""

    HOLDS = "holds"
    PARTLY = "partly holds"
    FAILS = "does not hold"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and what was measured about it."""

    name: str
    statement: str  # what the paper claims, in our words
    verdict: Verdict
    reason: str
    rule: str  # how the verdict follows from the results
    measured: Sequence[str] = ()  # one sentence each
    results: Sequence[RunResult] = field(default=(), repr=False)  # the runs behind them


class Comparison(NamedTuple):
    """Two rows of a table compared on one data set, over the seeds or folds that both have."""

    gap: float  # mean difference in points
    p: float | None  # p-value of the paired t-test; None for a single pair
    pairs: int

    @property
    def outcome(self) -> Literal["better", "worse", "equal", "untested"]:
        """Outcome for the first row."""
        if self.p is None:
            return "untested"
        if self.p >= ALPHA:
            return "equal"
        return "better" if self.gap > 0 else "worse"

    def describe(self) -> str:
        """Return difference, p-value and outcome."""
        p = "" if self.p is None else f", p = {self.p:.2g}"
        outcomes = {
            "better": "significantly better",
            "worse": "significantly worse",
            "equal": "no significant difference",
            "untested": "one run, not tested",
        }
        return f"{self.gap:+.2f} points over {self.pairs} pairs{p}, {outcomes[self.outcome]}"


def compare(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Comparison | None:
    """Compare values by seed or fold; None if no key is in both."""
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        return None
    mine, other = ([values[unit] for unit in shared] for values in (ours, theirs))
    return Comparison(statistics.fmean(mine) - statistics.fmean(other), paired_p(mine, other), len(shared))


def overall_verdict(supporting: int, opposing: int) -> Verdict:
    """Return HOLDS if all comparisons support the claim, FAILS if none does, PARTLY otherwise."""
    if not supporting + opposing:
        return Verdict.NOT_MEASURED
    return Verdict.HOLDS if not opposing else Verdict.PARTLY if supporting else Verdict.FAILS


def runs_of(entries: Iterable[CellResult]) -> list[RunResult]:
    """Return the runs behind some entries, each once."""
    return list({result.spec.key: result for entry in entries for result in entry.results}.values())


def mean_text(entry: CellResult) -> str:
    """Return the mean with its standard deviation."""
    assert entry.mean is not None
    return f"{entry.mean:.2f}" + ("" if entry.std is None else f" ({entry.std:.2f})")


def protocol_label(table: str, protocol: str) -> str:
    """Return the protocol's name, marked if verdicts ignore it."""
    return protocol if TABLES[table].is_judged(protocol) else f"{protocol} (not counted)"
