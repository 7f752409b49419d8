"""The result of one run: its measurements and their provenance."""

from dataclasses import dataclass, field
from typing import Any, Self

import torch

from propall import __version__
from propall.paper.specs import Spec

#: Fields that hold one value per epoch.
BY_EPOCH = ("curve", "confusions", "recalls", "times")


@dataclass(frozen=True)
class RunResult:
    """The result of one run.

    Attributes:
        spec: the run.
        accuracy: test accuracy after the last epoch.
        last10: mean test accuracy over the last ten epochs; equal to `accuracy` for methods without epochs.
        covered: fraction of training rows whose prediction is one of their candidates.
        transductive: fraction of training rows whose highest-scoring candidate is the true label.
        candidates: mean number of candidates per row.
        seconds: run time; an equal share of the total for runs that were trained together.
        curve: test accuracy by epoch, for the epochs that were measured.
        confusions: counts of (true class, predicted class) by epoch, if requested.
        recalls: recall of each class by epoch, if requested.
        times: training seconds up to each epoch, without evaluation; only for runs trained alone.
        stack: number of runs that were trained together, this one included.
        version, commit, torch, hardware, when: provenance; commit of the source if known, time in UTC.
    """

    spec: Spec
    accuracy: float
    last10: float
    covered: float
    transductive: float
    candidates: float
    seconds: float
    curve: dict[int, float] = field(default_factory=dict)
    confusions: dict[int, list[list[int]]] = field(default_factory=dict)
    recalls: dict[int, list[float]] = field(default_factory=dict)
    times: dict[int, float] = field(default_factory=dict)
    stack: int = 1
    version: str = __version__
    commit: str = ""
    torch: str = torch.__version__
    hardware: str = ""
    when: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON values, with the key of its spec."""
        return vars(self) | {"spec": self.spec.to_dict(), "key": self.spec.key}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Rebuild a result from `to_dict`, also after a round trip through JSON."""
        values = {name: value for name, value in values.items() if name != "key"}
        values["spec"] = Spec.from_dict(values["spec"])
        for name in BY_EPOCH:
            values[name] = {int(epoch): value for epoch, value in values.get(name, {}).items()}
        return cls(**values)
