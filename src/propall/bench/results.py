"""Benchmark results: measurements with their spread, each compared with a baseline, and the machine."""

import json
import os
import platform
import re
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

#: Field -> its key in JSON files, where they differ.
FILE_KEYS = {
    "measurements": "lines",
    "subject": "what",
    "baseline": "beside",
    "extra": "more",
    "minimum": "least",
    "maximum": "most",
}


@dataclass(frozen=True)
class Spread:
    """Repeated measurements of one quantity; ratios are computed from the median."""

    median: float
    low: float  # lower quartile
    high: float  # upper quartile
    minimum: float
    maximum: float
    repeats: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self:
        """Summarize some measurements."""
        low, _, high = quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [samples[0]] * 3
        return cls(median(samples), low, high, min(samples), max(samples), len(samples))


@dataclass(frozen=True)
class Measurement:
    """One measured quantity and its baseline."""

    case: str  # the problem, such as "65536 x 1000 float32"; measurements of one case belong together
    subject: str
    value: Spread
    unit: str  # "ms", "s" or "MB"
    baseline: str = ""  # subject of the measurement of the same case to compare with; empty for none
    ratio: float | None = None  # to the median of the baseline; below 1 is faster, or smaller
    extra: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """A claim, the measured value, and the range in which it passes."""

    claim: str
    value: float
    minimum: float | None = None
    maximum: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the value is in the range."""
        above = self.minimum is None or self.value >= self.minimum
        return above and (self.maximum is None or self.value <= self.maximum)

    @property
    def verdict(self) -> str:
        """`pass` or `fail`."""
        return "pass" if self.passed else "fail"

    @property
    def range(self) -> str:
        """The range, in words."""
        if self.minimum is None:
            return f"at most {self.maximum:g}"
        if self.maximum is None:
            return f"at least {self.minimum:g}"
        return f"{self.minimum:g} to {self.maximum:g}"


@dataclass
class BenchmarkResult:
    """The result of a benchmark."""

    name: str
    title: str
    unit: str  # of measurements that do not say otherwise
    machine: dict[str, Any]
    measurements: list[Measurement] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # how it was measured, one sentence each

    def add(
        self,
        case: str,
        subject: str,
        samples: Sequence[float],
        *,
        baseline: str = "",
        unit: str | None = None,
        **extra: float,
    ) -> Measurement:
        """Add a measurement; its baseline must have been added before."""
        value = Spread.of(samples)
        ratio = value.median / self.find(case, baseline).value.median if baseline else None
        measurement = Measurement(case, subject, value, unit or self.unit, baseline, ratio, extra)
        self.measurements.append(measurement)
        return measurement

    def add_target(self, claim: str, value: float | None, **limits: float) -> None:
        """Add a target with a `minimum`, a `maximum`, or both."""
        assert value is not None  # a ratio without a baseline
        self.targets.append(Target(claim, value, **limits))

    def find(self, case: str, subject: str) -> Measurement:
        """Return the measurement of a subject in a case."""
        return next(m for m in self.measurements if (m.case, m.subject) == (case, subject))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, under the keys of `FILE_KEYS`."""

        def with_file_keys(fields: list[tuple[str, Any]]) -> dict[str, Any]:
            return {FILE_KEYS.get(name, name): value for name, value in fields}

        content = asdict(self, dict_factory=with_file_keys)
        for entry, target in zip(content["targets"], self.targets, strict=True):
            entry["met"] = target.passed
        return content


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Hardware, versions, load and date of a benchmark."""
    machine: dict[str, Any] = {
        "hardware": hardware(device),
        "cpu": f"{_processor()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "load": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown",
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy", "scikit-learn")},
        "propall": __version__,
        "commit": commit() or "unknown",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if device.type == "cuda":
        machine["cuda"] = torch.version.cuda or "unknown"
    return machine


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*:\s*(.*)", info.read_text(), re.MULTILINE) if info.exists() else []
    return (names[0].strip() if names else platform.processor()) or platform.machine()


def targets_table(folder: Path) -> str:
    """Return a Markdown table of the targets and measured values in the JSON files of a folder."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise ValueError(f"folder: {folder} has no JSON files; expected those of `propall bench --json`.")
    rows = ["| | target | measured | |", "| --- | --- | --: | --- |"]
    for path in paths:
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        rows.append(f"| **{result['title']}** ({result['machine']['hardware']}) | | | |")
        for entry in result["targets"]:
            target = Target(*(entry[key] for key in ("claim", "value", "least", "most")))
            rows.append(f"| {target.claim} | {target.range} | {target.value:.3g} | {target.verdict} |")
    return "\n".join(rows)
