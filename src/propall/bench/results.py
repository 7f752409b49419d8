"""Benchmark results: measurements with their spread, each compared with a baseline, and the machine."""

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
    """Repeated measurements of one quantity.

    Attributes:
        median: median; what ratios are computed from.
        low: lower quartile.
        high: upper quartile.
        minimum: smallest value.
        maximum: largest value.
        repeats: number of measurements.
    """

    median: float
    low: float
    high: float
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
    """One measured quantity and its baseline.

    Attributes:
        case: the problem, such as "65536 x 1000 float32"; measurements of one case belong together.
        subject: what was measured.
        value: the measurements.
        unit: unit of the value: "ms", "s" or "MB".
        baseline: subject of the measurement of the same case that this one is compared with; empty for none.
        ratio: this median divided by the baseline's; below 1 is faster, or smaller.
        extra: further numbers, by name.
    """

    case: str
    subject: str
    value: Spread
    unit: str
    baseline: str = ""
    ratio: float | None = None
    extra: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """A target and the measured value.

    Attributes:
        claim: what is measured, in words.
        value: the measured value.
        minimum: smallest value that passes, or None.
        maximum: largest value that passes, or None.
    """

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
    """The result of a benchmark.

    Attributes:
        name: name of the benchmark.
        title: what was measured, in words.
        unit: unit of measurements that do not say otherwise.
        machine: hardware, versions, load, date.
        measurements: the measurements.
        targets: targets and measured values.
        notes: how it was measured, one sentence each.
    """

    name: str
    title: str
    unit: str
    machine: dict[str, Any]
    measurements: list[Measurement] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

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
    packages = ("torch", "numpy", "scikit-learn")
    machine: dict[str, Any] = {
        "hardware": hardware(device),
        "cpu": f"{_processor()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "load": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown",
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "propall": __version__,
        "commit": commit() or "unknown",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if device.type == "cuda":
        machine["cuda"] = torch.version.cuda or "unknown"
    return machine


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
