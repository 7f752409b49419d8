"""What a benchmark found: times with their spread, each beside what it is compared with, and where it was."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Self

import torch

from propall import __version__
from propall.provenance import commit, hardware


@dataclass(frozen=True)
class Spread:
    """Repeated measurements of one thing.

    Attributes:
        median: the middle one; what ratios are made of.
        low: the lower quartile.
        high: the upper quartile.
        least: the smallest.
        most: the largest.
        repeats: how many there are.
    """

    median: float
    low: float
    high: float
    least: float
    most: float
    repeats: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self:
        """The spread of some measurements."""
        low, _, high = quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [samples[0]] * 3
        return cls(median(samples), low, high, min(samples), max(samples), len(samples))


@dataclass(frozen=True)
class Line:
    """One thing measured, beside what it is compared with.

    Attributes:
        case: the problem, such as "65536 x 1000 float32"; lines of one case belong together.
        what: who did the work.
        value: the measurements.
        unit: of the value: "ms", "s" or "MB".
        beside: `what` of the line of the same case that this one is compared with; empty for none.
        ratio: this median over that one; below 1 is quicker, or smaller.
        more: further numbers, by name.
    """

    case: str
    what: str
    value: Spread
    unit: str
    beside: str = ""
    ratio: float | None = None
    more: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """Something that was aimed at.

    Attributes:
        claim: what, in words.
        value: what came out.
        least: the smallest value that meets it, or None.
        most: the largest value that meets it, or None.
    """

    claim: str
    value: float
    least: float | None = None
    most: float | None = None

    @property
    def met(self) -> bool:
        """Whether the value is in the range."""
        above = self.least is None or self.value >= self.least
        return above and (self.most is None or self.value <= self.most)

    @property
    def wanted(self) -> str:
        """The range, in words."""
        if self.least is None:
            return f"at most {self.most:g}"
        return f"at least {self.least:g}" if self.most is None else f"{self.least:g} to {self.most:g}"


@dataclass
class Sheet:
    """The result of a benchmark.

    Attributes:
        name: of the benchmark.
        title: what was measured, in words.
        unit: of the values, where a line does not say otherwise.
        machine: hardware, versions, load, date.
        lines: the measurements.
        targets: what was aimed at, and what came out.
        notes: how it was measured, sentence by sentence.
    """

    name: str
    title: str
    unit: str
    machine: dict[str, Any]
    lines: list[Line] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(
        self,
        case: str,
        what: str,
        samples: Sequence[float],
        *,
        beside: str = "",
        unit: str | None = None,
        **more: float,
    ) -> Line:
        """Add a measurement; the line it is compared with has to be there already."""
        value = Spread.of(samples)
        ratio = value.median / self.line(case, beside).value.median if beside else None
        line = Line(case, what, value, unit or self.unit, beside, ratio, more)
        self.lines.append(line)
        return line

    def line(self, case: str, what: str) -> Line:
        """The line of a case with this name."""
        return next(line for line in self.lines if (line.case, line.what) == (case, what))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        targets = [{**asdict(target), "met": target.met} for target in self.targets]
        return {**asdict(self), "targets": targets}


def machine(device: torch.device, **more: Any) -> dict[str, Any]:
    """Where and with what a benchmark runs."""
    packages = ("torch", "numpy", "scikit-learn")
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    found: dict[str, Any] = {
        "hardware": hardware(device),
        "cpu": f"{_processor()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "load": load,
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "propall": __version__,
        "commit": commit() or "unknown",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if device.type == "cuda":
        found["cuda"] = torch.version.cuda or "unknown"
    return found | more


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
