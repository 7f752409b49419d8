"""The paper's claims one by one: what was measured about each, and a verdict by rules from the numbers alone.

The accuracies of two methods are compared by the paired t-test over two or more seeds or folds at the level
`ALPHA`; times come from one long run per method, alone on the device. A verdict rests on each table's judged
protocols; what others say is listed, and not counted. A claim that a store holds nothing about is "not
measured".
"""

import math
import statistics
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, NamedTuple

from propall.data import DATASETS
from propall.paper.evidence import Evidence, first_rows
from propall.paper.reproduction import CellResult
from propall.paper.results import RunResult
from propall.paper.runtime_estimates import exclusive_seconds
from propall.paper.specs import TIMED, Spec
from propall.paper.stats import Blocks, Ranking, RepeatedBlocksWarning, paired_p, ranking_of_runs, sign_p
from propall.paper.tables import TABLES, published_accuracies

ALPHA = 0.05
OURS = "propall"
#: Times that differ by less than this share are called equal: one run each leaves nothing to test.
MARGIN = 0.05
#: From this sensitivity on a class counts as learnt, and up to this one as not begun.
LEARNT, NOT_BEGUN = 0.5, 0.1

#: The public code of PRODEN: seconds of an epoch of 60 000 images in batches of 256 with its own evaluation,
#: measured on an NVIDIA H200. Other sets are estimated by their number of steps.
PUBLIC_SECONDS, PUBLIC_STEPS = 6.5, 60_000 / 256


class Verdict(StrEnum):
    """What the numbers say about a claim."""

    HOLDS = "holds"
    PART = "holds in part"
    FAILS = "does not hold"
    OPEN = "undecided"
    UNKNOWN = "not measured"


@dataclass(frozen=True)
class Claim:
    """One claim of the paper and what was found.

    Attributes:
        name: a short name.
        statement: what the paper claims, in our words.
        verdict: what the numbers say.
        why: the verdict's reason in one line.
        measured: what was found, sentence by sentence.
        rule: how the verdict follows from the numbers.
        results: the runs behind it.
    """

    name: str
    statement: str
    verdict: Verdict
    why: str
    rule: str
    measured: Sequence[str] = ()
    results: Sequence[RunResult] = field(default=(), repr=False)


class Comparison(NamedTuple):
    """Two lines of a table on one data set.

    Attributes:
        gap: mean difference in points, over the seeds or folds that both have.
        p: of the paired t-test; None for a single pair.
        pairs: how many seeds or folds.
    """

    gap: float
    p: float | None
    pairs: int

    @property
    def outcome(self) -> Literal["ahead", "behind", "level", "one run"]:
        """What can be said of the first line."""
        if self.p is None:
            return "one run"
        if self.p >= ALPHA:
            return "level"
        return "ahead" if self.gap > 0 else "behind"


def compared(ours: CellResult, theirs: CellResult) -> Comparison | None:
    """Two entries over the seeds or folds that both have; None where there are none."""
    return _paired(ours.values, theirs.values)


def _paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Comparison | None:
    both = sorted(ours.keys() & theirs.keys())
    if not both:
        return None
    mine, other = ([values[unit] for unit in both] for values in (ours, theirs))
    return Comparison(statistics.fmean(mine) - statistics.fmean(other), paired_p(mine, other), len(both))


def judged(evidence: Evidence) -> list[Claim]:
    """All claims, in the paper's order."""
    return [
        uniform_superiority(evidence),
        robustness(evidence),
        noise(evidence),
        speed(evidence),
        consecutive_classes(evidence),
        *critical_differences(evidence),
    ]


def _results(entries: Iterable[CellResult]) -> list[RunResult]:
    return list({result.spec.key: result for entry in entries for result in entry.results}.values())


def number(entry: CellResult) -> str:
    """A mean with its deviation."""
    assert entry.mean is not None
    return f"{entry.mean:.2f}" + ("" if entry.std is None else f" ({entry.std:.2f})")


def _label(table: str, protocol: str) -> str:
    """A protocol's name, with a word where the verdict does not rest on it."""
    return protocol if TABLES[table].is_judged(protocol) else f"{protocol} (not counted)"


def _overall(good: int, bad: int) -> Verdict:
    """All good, none good, or some."""
    if not good + bad:
        return Verdict.UNKNOWN
    return Verdict.HOLDS if not bad else Verdict.PART if good else Verdict.FAILS


def uniform_superiority(evidence: Evidence) -> Claim:
    """ProPaLL against the best other method on every data set with uniform candidates."""
    measured, used = [], []
    outcomes: dict[str, int] = {"ahead": 0, "level": 0, "behind": 0, "one run": 0}
    rows = {row.name for row in TABLES["uniform"].rows if row.name == row.published}
    for protocol in evidence.uncut_protocols("uniform"):
        for (data, _), own in evidence.columns("uniform", protocol).items():
            rivals = [entry for row, entry in own.items() if row != OURS]
            if not rows <= own.keys():
                continue  # "the highest of all" needs all of them
            best = max(rivals, key=lambda entry: entry.mean or 0.0)
            found = compared(own[OURS], best)
            if found is None:
                continue
            outcomes[found.outcome] += TABLES["uniform"].is_judged(protocol)
            used += [own[OURS], best]
            measured.append(
                f"{DATASETS[data].title}, {_label('uniform', protocol)}: ProPaLL {number(own[OURS])}, "
                f"best other {best.title} {number(best)}: {_said(found)}."
            )
    tested = outcomes["ahead"] + outcomes["level"] + outcomes["behind"]
    verdict = _overall(outcomes["ahead"], tested - outcomes["ahead"])
    why = (
        f"ProPaLL is significantly ahead of the best other method in {outcomes['ahead']} of {tested} "
        f"settings, level in {outcomes['level']}, behind in {outcomes['behind']}"
        if tested
        else "no data set has all methods with two runs or more"
    )
    return Claim(
        "uniform superiority",
        "With uniform candidate sets ProPaLL is more accurate than every other method on every data set.",
        verdict,
        why,
        "Holds where ProPaLL is significantly ahead of the best other method in every setting (data set and "
        "protocol) that has all methods; does not hold where in none.",
        measured,
        _results(used),
    )


def _said(found: Comparison) -> str:
    p = "" if found.p is None else f", p = {found.p:.2g}"
    words = {
        "ahead": "ahead",
        "behind": "behind",
        "level": "no significant difference",
        "one run": "one run, no test",
    }
    return f"{found.gap:+.2f} points over {found.pairs} pairs{p}, {words[found.outcome]}"


def robustness(evidence: Evidence) -> Claim:
    """What ProPaLL and each other method lose from one candidate to the largest number, seed by seed."""
    measured, used = [], []
    good, bad = 0, 0
    words = {
        "ahead": ", significantly more than ProPaLL",
        "behind": ", significantly less than ProPaLL",
        "level": ", not significantly different from ProPaLL",
        "one run": "",
    }
    for table in ("candidates10", "candidates5"):
        most = max(TABLES[table].candidates)
        for protocol in evidence.uncut_protocols(table):
            columns, counts = evidence.columns(table, protocol), TABLES[table].is_judged(protocol)
            for data in TABLES[table].data:
                first, last = columns.get((data, 1), {}), columns.get((data, most), {})
                losses = {row: _lost(first[row], last[row]) for row in last if row in first}
                if OURS not in losses:
                    continue
                parts = []
                for row, lost in losses.items():
                    found = _paired(lost, losses[OURS]) if row != OURS else None
                    if found is not None and counts:
                        good += found.outcome == "ahead"
                        bad += found.outcome in ("level", "behind")
                    against = "" if found is None else words[found.outcome]
                    fallen = f", {statistics.fmean(lost.values()):.2f} below n = 1" if lost else ""
                    parts.append(f"{last[row].title} {number(last[row])}{fallen}{against}")
                    used += [first[row], last[row]]
                measured.append(
                    f"{DATASETS[data].title}, {most} of {most + 1} classes, {_label(table, protocol)}: "
                    f"{'; '.join(parts)}."
                )
    tested = good + bad
    return Claim(
        "robustness to the number of candidates",
        "With more candidates ProPaLL loses far less accuracy than the other methods.",
        _overall(good, bad),
        f"from one candidate to the largest number ProPaLL loses significantly less accuracy in {good} of "
        f"{tested} comparisons"
        if tested
        else "one candidate and the largest number were not run with two seeds or more",
        "Holds where from one candidate to the largest number ProPaLL loses significantly less accuracy, "
        "seed by seed, than every other method on every data set; does not hold where less than none.",
        measured,
        _results(used),
    )


def _lost(first: CellResult, last: CellResult) -> dict[int, float]:
    """Points lost from one entry to another, by seed."""
    return {unit: first.values[unit] - value for unit, value in last.values.items() if unit in first.values}


def noise(evidence: Evidence) -> Claim:
    """ProPaLL with against without noise, over all cells of the six tables with two pairs or more."""
    measured: list[str] = []
    used: list[CellResult] = []
    total = {"better": 0, "worse": 0, "ahead": 0, "behind": 0}
    seen: set[frozenset[str]] = set()
    for table in (name for name in TABLES if name.startswith("noise_")):
        for protocol in evidence.uncut_protocols(table):
            own = {"better": 0, "worse": 0, "ahead": 0, "behind": 0}
            for pair in evidence.columns(table, protocol).values():
                if {OURS, "propall-no-noise"} - pair.keys():
                    continue
                runs = frozenset(pair[OURS].keys)
                found = compared(pair[OURS], pair["propall-no-noise"])
                if found is None or found.pairs < 2 or runs in seen:
                    continue
                seen.add(runs)
                own["better"] += found.gap > 0
                own["worse"] += found.gap < 0
                own["ahead"] += found.outcome == "ahead"
                own["behind"] += found.outcome == "behind"
                used += pair.values()
            if own["better"] + own["worse"]:
                measured.append(
                    f"{table.removeprefix('noise_')}, {_label(table, protocol)}: higher with noise in "
                    f"{own['better']} of {own['better'] + own['worse']} cells (significantly in "
                    f"{own['ahead']}), lower in {own['worse']} (significantly in {own['behind']})."
                )
            if TABLES[table].is_judged(protocol):
                total = {name: total[name] + own[name] for name in total}
    count = total["better"] + total["worse"]
    p = sign_p(total["better"], total["worse"])
    verdict = Verdict.UNKNOWN
    if count:
        verdict = Verdict.OPEN
        if p < ALPHA:
            verdict = Verdict.HOLDS if total["better"] > total["worse"] else Verdict.FAILS
    return Claim(
        "noise",
        "Noise on the logits usually raises ProPaLL's accuracy.",
        verdict,
        f"with noise the mean is higher in {total['better']} of {count} cells (sign test p = {p:.2g}), "
        f"significantly in {total['ahead']}; significantly lower in {total['behind']}"
        if count
        else "no cell has two runs or more with and without noise",
        "Holds where the mean is higher with noise in significantly more cells than not (sign test over "
        "cells; cells of one data set are not independent), does not hold where in significantly fewer.",
        measured,
        _results(used),
    )


class Timing(NamedTuple):
    """A run that was trained by itself.

    Attributes:
        title: the line's title.
        data: name of the data set.
        seconds: of training, compilation included and testing not.
        epochs: that were trained.
        per_epoch: mean seconds of an epoch, see `seconds_an_epoch`.
        trace: (seconds at that rate, accuracy in percent) by epoch.
        result: the run.
    """

    title: str
    data: str
    seconds: float
    epochs: int
    per_epoch: float
    trace: list[tuple[float, float]]
    result: RunResult


def seconds_an_epoch(times: Mapping[int, float]) -> float:
    """Mean over the second half of a run's epochs, of which all compiling comes before.

    A method compiles in its first epoch; VALEN also where its second phase begins.

    Args:
        times: seconds since the start, by epoch; two or more.
    """
    last = max(times)
    middle = max((epoch for epoch in times if 2 * epoch <= last), default=min(times))
    return (times[last] - times[middle]) / (last - middle)


def timings(evidence: Evidence) -> list[Timing]:
    """The timed runs, by data set and line; of a line with several the longest."""
    found: dict[tuple[str, str], Timing] = {}
    for protocol in evidence.protocols("uniform"):
        if not protocol.startswith(TIMED):
            continue
        for entry in evidence.entries("uniform", protocol):
            for result in entry.results:
                if len(result.times) < 2:
                    continue
                last, per_epoch = max(result.times), seconds_an_epoch(result.times)
                trace = [(e * per_epoch, 100 * result.curve[e]) for e in result.times if e in result.curve]
                place = entry.title, entry.cell.data
                own = Timing(*place, result.times[last], last, per_epoch, trace, result)
                if place not in found or found[place].epochs < last:
                    found[place] = own
    return list(found.values())


def speed(evidence: Evidence) -> Claim:
    """Training times of ProPaLL, PRODEN and VALEN, each by itself."""
    measured, used = [], []
    good, bad = 0, 0
    runs = timings(evidence)
    for data in dict.fromkeys(run.data for run in runs):
        own = {run.title: run for run in runs if run.data == data}
        if own.keys() != {"ProPaLL", "PRODEN", "VALEN"}:
            continue  # the claim is about both
        ours = own["ProPaLL"]
        parts = []
        for run in own.values():
            ratio = run.per_epoch / ours.per_epoch
            if run is not ours:
                good += ratio >= 1 + MARGIN
                bad += ratio < 1 + MARGIN
            times = "" if run is ours else f", {ratio:.2f} times ProPaLL's"
            parts.append(
                f"{run.title} {1000 * run.per_epoch:.1f} ms an epoch{times} ({run.seconds:.1f} s for "
                f"{run.epochs} epochs with compilation)"
            )
            used.append(run.result)
        measured.append(f"{DATASETS[data].title} on {ours.result.hardware}: {'; '.join(parts)}.")
    return Claim(
        "speed",
        "ProPaLL trains faster than PRODEN and VALEN for the same number of epochs.",
        _overall(good, bad),
        f"an epoch takes the other method over {100 * MARGIN:.0f} % longer in {good} of {good + bad} "
        "comparisons; all methods run on this library's engine, each by itself"
        if good + bad
        else "no data set has timed runs of all three; `propall reproduce uniform --protocol timed` makes "
        "them",
        f"Holds where an epoch of each other method takes over {100 * MARGIN:.0f} % longer on every data set "
        "that has all three; does not hold where none does. Mean over the second half of a run's epochs, so "
        "that compiling does not count.",
        measured,
        used,
    )


def late_classes(recalls: Mapping[int, Sequence[float]]) -> int | None:
    """Classes not begun when half of them are learnt; None where half of them never are.

    A class is learnt from a sensitivity of `LEARNT` on, and not begun up to `NOT_BEGUN`.
    """
    for epoch in sorted(recalls):
        shares = recalls[epoch]
        if sum(share >= LEARNT for share in shares) * 2 >= len(shares):
            return sum(share <= NOT_BEGUN for share in shares)
    return None


def consecutive_classes(evidence: Evidence) -> Claim:
    """How many classes are not begun when half of them are learnt: ProPaLL against PRODEN, run by run."""
    measured, used = [], []
    ours_all, theirs_all = [], []
    for table in ("uniform", "instance", "candidates10", "candidates5", "complementary"):
        for protocol in evidence.uncut_protocols(table):
            ours_here, theirs_here = [], []
            for own in evidence.columns(table, protocol).values():
                if {OURS, "proden"} - own.keys():
                    continue
                by_unit = [
                    {
                        (result.spec.seed, result.spec.split.fold): (late_classes(result.recalls), result)
                        for result in own[row].results
                        if result.recalls
                    }
                    for row in (OURS, "proden")
                ]
                for unit in by_unit[0].keys() & by_unit[1].keys():
                    (mine, ran), (other, also) = by_unit[0][unit], by_unit[1][unit]
                    if mine is not None and other is not None:
                        ours_here.append(mine)
                        theirs_here.append(other)
                        used += [ran, also]
            if ours_here:
                measured.append(
                    f"{table}, {_label(table, protocol)}, {len(ours_here)} pairs of runs: when half are "
                    f"learnt, {statistics.fmean(ours_here):.2f} classes are not begun with ProPaLL and "
                    f"{statistics.fmean(theirs_here):.2f} with PRODEN."
                )
            if TABLES[table].is_judged(protocol):
                ours_all += ours_here
                theirs_all += theirs_here
    if not ours_all:
        verdict, why = Verdict.UNKNOWN, "no pair of runs with sensitivity by class"
    else:
        more = sum(a > b for a, b in zip(ours_all, theirs_all, strict=True))
        fewer = sum(a < b for a, b in zip(ours_all, theirs_all, strict=True))
        p, mean = sign_p(more, fewer), statistics.fmean(ours_all)
        why = (
            f"when half of the classes are learnt, on average {mean:.2f} are not begun with ProPaLL and "
            f"{statistics.fmean(theirs_all):.2f} with PRODEN; more with ProPaLL in {more} of {len(ours_all)} "
            f"pairs of runs, fewer in {fewer} (sign test p = {p:.2g})"
        )
        verdict = Verdict.FAILS
        if p < ALPHA and more > fewer:
            verdict = Verdict.HOLDS if mean >= 1 else Verdict.PART
    return Claim(
        "consecutive learning of classes",
        "ProPaLL learns class after class, PRODEN all classes at once.",
        verdict,
        why,
        f"A class is learnt from a sensitivity of {LEARNT} on and not begun up to {NOT_BEGUN}. Holds where, "
        "when half are learnt, one class or more is not begun with ProPaLL on average, and more than with "
        "PRODEN in significantly many pairs of runs (sign test); in part where only the second. Measured "
        "after whole epochs, so what happens within the first one is not seen.",
        measured,
        used,
    )


#: What each of the paper's diagrams ranks, and the lines it calls no worse than ProPaLL.
DIAGRAMS: dict[str, tuple[tuple[str, ...], str, tuple[str, ...] | None]] = {
    "uniform and instance-dependent candidates": (
        ("uniform", "instance"),
        "ProPaLL is significantly better than all methods but VALEN and PRODEN.",
        ("VALEN", "PRODEN"),
    ),
    "real-world candidates": (
        ("real",),
        "No method is significantly better than ProPaLL.",
        None,
    ),
    "one complementary label": (
        ("complementary",),
        "ProPaLL is significantly better than all methods but PRODEN.",
        ("PRODEN",),
    ),
}


def ranked(
    name: str, evidence: Evidence, *, blocks: Blocks = "data sets"
) -> tuple[Ranking, list[CellResult]] | None:
    """The ranking of one of `DIAGRAMS` at each table's first protocol; None where too little ran.

    Blocks in which every line of the paper is finished. Further lines of ours beside a published one are left
    out: they would count a method twice.
    """
    scores: dict[str, dict[str, list[float]]] = {}
    used: list[CellResult] = []
    for table in DIAGRAMS[name][0]:
        rows = first_rows(table)
        for entry in evidence.entries(table):
            if entry.cell.row in rows and entry.runs == entry.expected > 0:
                block = f"{table}/{entry.cell.data}"
                scores.setdefault(_plain(entry.title), {})[block] = list(entry.values.values())
                used.append(entry)
    titles = {_plain(TABLES[t].row(row).title) for t in DIAGRAMS[name][0] for row in first_rows(t)}
    ranking = _ranking(scores, blocks) if scores.keys() == titles else None
    return None if ranking is None else (ranking, used)


def _plain(title: str) -> str:
    """A method's name without the setting behind a comma."""
    return title.partition(",")[0]


def ranked_as_published(name: str) -> Ranking:
    """The same ranking from the paper's own numbers, one block per data set."""
    scores: dict[str, dict[str, list[float]]] = {}
    for table in DIAGRAMS[name][0]:
        for of, found in published_accuracies().items():
            if of.table == table:
                title = next(row.title for row in TABLES[table].rows if row.published == of.row)
                scores.setdefault(_plain(title), {})[f"{of.table}/{of.data}"] = [found.mean]
    ranking = _ranking(scores, "data sets")
    assert ranking is not None
    return ranking


def _ranking(scores: dict[str, dict[str, list[float]]], blocks: Blocks) -> Ranking | None:
    """A ranking over the blocks that all methods have; None where they are too few."""
    common = set.intersection(*(set(own) for own in scores.values())) if scores else set()
    if len(scores) < 3 or len(common) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RepeatedBlocksWarning)  # said where the result is shown
        return ranking_of_runs(scores, blocks=blocks, alpha=ALPHA)


def worse_than_ours(ranking: Ranking) -> list[str]:
    """The methods that ProPaLL is significantly better than; none where the omnibus test does not reject."""
    if ranking.friedman.f_p >= ALPHA:
        return []
    ours = ranking.ranks["ProPaLL"]
    return [name for name, rank in ranking.ranks.items() if rank - ours >= ranking.critical_difference]


def critical_differences(evidence: Evidence) -> list[Claim]:
    """One claim per diagram, one block per data set."""
    claims = []
    for name, (tables, statement, level) in DIAGRAMS.items():
        rule = (
            "Average ranks over data sets, Iman-Davenport's test, then Nemenyi's at the level 0.05; one "
            "block per data set. Holds where every method that the claim names is significantly worse."
            if level is not None
            else "Average ranks over data sets, Iman-Davenport's test, then Nemenyi's at the level 0.05. "
            "Holds where no method's average rank is significantly better than ProPaLL's; undecided where "
            "some are better and none could be significantly: rank 1 is no critical difference away."
        )
        found = ranked(name, evidence)
        if found is None:
            why = f"fewer than two data sets have all methods of {' and '.join(tables)}"
            claims.append(Claim(f"critical differences, {name}", statement, Verdict.UNKNOWN, why, rule))
            continue
        claims.append(_ranked_claim(name, statement, level, rule, *found))
    return claims


def _ranked_claim(
    name: str,
    statement: str,
    level: tuple[str, ...] | None,
    rule: str,
    ranking: Ranking,
    used: Sequence[CellResult],
) -> Claim:
    ranks, ours = ranking.ranks, ranking.ranks["ProPaLL"]
    worse = worse_than_ours(ranking)
    rejects = ranking.friedman.f_p < ALPHA
    better = [other for other in ranks if rejects and ours - ranks[other] >= ranking.critical_difference]
    listed = ", ".join(worse) or "none"
    why = (
        f"over {ranking.blocks} data sets ProPaLL has average rank {ours:.2f}; significantly worse than it: "
        f"{listed}; significantly better: {', '.join(better) or 'none'}"
    )
    if ranking.critical_difference > len(ranks) - 1:
        verdict, why = Verdict.OPEN, f"{ranking.blocks} data sets are too few for any significant difference"
    elif level is None and min(ranks.values()) < ours < 1 + ranking.critical_difference:
        verdict = Verdict.OPEN
        why = (
            f"over {ranking.blocks} data sets ProPaLL has average rank {ours:.2f}; a rank would have to be "
            f"better by {ranking.critical_difference:.2f} to be significantly so"
        )
    elif level is None:
        verdict = Verdict.FAILS if better else Verdict.HOLDS
    else:
        claimed = set(ranks) - {"ProPaLL", *level}
        verdict = Verdict.HOLDS if claimed <= set(worse) else Verdict.PART if worse else Verdict.FAILS
    missing = left_out(name, used)
    dropped = f" Left out, because not every method is finished: {', '.join(missing)}." if missing else ""
    published_ranking = ranked_as_published(name)
    measured = [
        f"Average ranks: {', '.join(f'{other} {rank:.2f}' for other, rank in ranks.items())}; critical "
        f"difference {ranking.critical_difference:.2f}; Iman-Davenport p = {ranking.friedman.f_p:.2g}."
        f"{dropped}",
        f"The paper's own numbers under the same test ({published_ranking.blocks} data sets): significantly "
        f"worse than ProPaLL {', '.join(worse_than_ours(published_ranking)) or 'none'}.",
    ]
    return Claim(f"critical differences, {name}", statement, verdict, why, rule, measured, _results(used))


def left_out(name: str, used: Sequence[CellResult]) -> list[str]:
    """The blocks of a diagram that lack a method."""
    missing = []
    for table in DIAGRAMS[name][0]:
        for data in TABLES[table].data:
            have = {entry.cell.row for entry in used if (entry.cell.table, entry.cell.data) == (table, data)}
            if have != first_rows(table):
                missing.append(f"{table}/{data}")
    return missing


@dataclass(frozen=True)
class Cost:
    """Time of the measured runs on one kind of hardware, beside an estimate for public code.

    Attributes:
        hardware: where.
        runs: number of runs that train a network on vectors; what the estimate is about.
        seconds: their time here, with all testing; where processes share a GPU, that of each of them.
        elapsed: the time in which any of them ran: less than `seconds` where processes shared a GPU.
        public_seconds: the same number of steps at the rate of PRODEN's public code.
        all_runs: number of all runs, of images with channels and of methods without a network too.
        all_seconds: their time.
        finished: the same for the runs behind published cells that are measured in full; None where there are
            none, and in itself.
        cells: number of those cells.
    """

    hardware: str
    runs: int
    seconds: float
    elapsed: float
    public_seconds: float
    all_runs: int
    all_seconds: float
    finished: "Cost | None" = None
    cells: int = 0

    @property
    def ratio(self) -> float:
        """How many times longer the public code would take, by the runs' own times."""
        return self.public_seconds / self.seconds if self.seconds else math.nan

    @property
    def elapsed_ratio(self) -> float:
        """The same by the time in which any of them ran."""
        return self.public_seconds / self.elapsed if self.elapsed else math.nan


def costs(evidence: Evidence) -> list[Cost]:
    """Times of all runs of the paper's tables but smoke runs and timings, by hardware, the longest first."""
    by_hardware: dict[str, list[RunResult]] = {}
    for result in _of_tables(evidence):
        by_hardware.setdefault(result.hardware, []).append(result)
    finished = _finished_cells(evidence)
    found = []
    for hardware, results in by_hardware.items():
        here = {result.spec.key: result for result in results}
        cells = [keys for keys in finished.values() if keys & here.keys()]
        behind = [here[key] for key in here.keys() & set[str]().union(*cells)]
        own = _cost(hardware, results)
        found.append(replace(own, finished=_cost(hardware, behind) if behind else None, cells=len(cells)))
    return sorted(found, key=lambda cost: -cost.all_seconds)


def _cost(hardware: str, results: Sequence[RunResult]) -> Cost:
    trained = [result for result in results if _is_like_public(result.spec)]
    return Cost(
        hardware,
        len(trained),
        sum(result.seconds for result in trained),
        elapsed(trained),
        sum(steps(result.spec) for result in trained) / PUBLIC_STEPS * PUBLIC_SECONDS,
        len(results),
        sum(result.seconds for result in results),
    )


def _finished_cells(evidence: Evidence) -> dict[frozenset[str], set[str]]:
    """The runs of every different published cell that is measured in full, by its first protocol's keys.

    Runs of a table's other judged protocols count too where they are complete.
    """
    found: dict[frozenset[str], set[str]] = {}
    for table in TABLES:
        first = {}
        for entry in _beside_published(evidence, table):
            if entry.runs == entry.expected:
                first[entry.cell] = frozenset(entry.keys)
                found.setdefault(first[entry.cell], set()).update(entry.keys)
        for protocol in evidence.judged_protocols(table):
            for entry in evidence.entries(table, protocol):
                if entry.cell in first and entry.runs == entry.expected:
                    found[first[entry.cell]].update(entry.keys)
    return found


def _beside_published(evidence: Evidence, table: str) -> list[CellResult]:
    """The entries at a table's first protocol that stand beside a number of the paper, one for each."""
    rows = first_rows(table)
    return [
        entry for entry in evidence.entries(table) if entry.cell.row in rows and entry.published is not None
    ]


def elapsed(results: Sequence[RunResult]) -> float:
    """Seconds in which any of some runs on one sort of hardware ran.

    Times of the day are kept in whole seconds, so short runs may add up to more; never more than all of them.
    """
    return min(sum(exclusive_seconds(results)), sum(result.seconds for result in results))


def _of_tables(evidence: Evidence) -> list[RunResult]:
    keys = {
        key
        for table in TABLES
        for protocol in evidence.serious_protocols(table)
        for entry in evidence.entries(table, protocol)
        for key in entry.keys
    }
    return [result for key, result in evidence.results.items() if key in keys]


def _is_like_public(spec: Spec) -> bool:
    return spec.trains_a_net and len(DATASETS[spec.data].shape) == 1


def steps(spec: Spec) -> float:
    """Number of gradient steps of a run."""
    rows: float = DATASETS[spec.data].n
    split = spec.split
    classes = len(split.classes) if split.classes is not None else DATASETS[spec.data].n_classes
    if split.per_class is not None:
        rows = min(rows, split.per_class * classes)
    elif split.classes is not None:
        rows *= classes / DATASETS[spec.data].n_classes
    if split.fold is not None:
        rows *= (split.folds - 1) / split.folds
    return rows / spec.recipe.batch_size * spec.passes


class Coverage(NamedTuple):
    """How much of the paper's tables a store holds.

    Attributes:
        measured: different published cells with all runs of their table's first protocol.
        begun: different published cells with some runs, under any serious protocol.
        absent: different published cells whose data has no download and of which nothing was measured.
        total: all different published cells.
    """

    measured: int
    begun: int
    absent: int
    total: int


def coverage(evidence: Evidence) -> Coverage:
    """Count the published cells; what two tables print twice counts once."""
    states: dict[frozenset[str], set[str]] = {}
    for table in TABLES:
        keys = {}
        for entry in _beside_published(evidence, table):
            keys[entry.cell] = frozenset(entry.keys)
            own = states.setdefault(keys[entry.cell], set())
            own |= {"absent"} if entry.missing else set()
        for protocol in evidence.serious_protocols(table):
            for entry in evidence.entries(table, protocol):
                if entry.runs and entry.cell in keys:
                    states[keys[entry.cell]].add("begun")
    return Coverage(
        len(_finished_cells(evidence)),
        sum("begun" in own for own in states.values()),
        sum(own == {"absent"} for own in states.values()),
        len(states),
    )
