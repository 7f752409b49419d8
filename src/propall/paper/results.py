"""The result of one run: its measurements and their provenance."""

from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired, Self, TypedDict

import torch

from propall import __version__
from propall.paper.specs import Spec
from propall.schema import Between, check_fields, check_json

#: Fields that hold one value per epoch.
BY_EPOCH = ("curve", "confusions", "recalls", "times")

Fraction = Annotated[float, Between(0, 1)]


class _ResultValues(TypedDict):
    """What a file must hold of a result; the other fields have defaults."""

    spec: dict[str, Any]
    accuracy: Fraction
    last10: Fraction
    covered: Fraction
    transductive: Fraction
    candidates: Annotated[float, Between(0, 1e9)]
    seconds: Annotated[float, Between(0, 1e12)]
    curve: NotRequired[dict[str, float]]
    confusions: NotRequired[dict[str, list[list[int]]]]
    recalls: NotRequired[dict[str, list[float]]]
    times: NotRequired[dict[str, float]]
    stack: NotRequired[Annotated[int, Between(1, 1e9)]]


@dataclass(frozen=True)
class RunResult:
    """The result of one run."""

    spec: Spec
    accuracy: float  # test accuracy after the last epoch
    last10: float  # mean over the last ten epochs; `accuracy` for methods without epochs
    covered: float  # fraction of training rows whose prediction is one of their candidates
    transductive: float  # fraction of training rows whose highest-scoring candidate is the true label
    candidates: float  # mean number per row
    seconds: float  # an equal share of the total for runs that were trained together
    # By epoch, for the epochs that were measured; confusions and recalls if requested.
    curve: dict[int, float] = field(default_factory=dict)  # test accuracy
    confusions: dict[int, list[list[int]]] = field(default_factory=dict)  # [true class][predicted class]
    recalls: dict[int, list[float]] = field(default_factory=dict)  # of each class
    times: dict[int, float] = field(default_factory=dict)
    stack: int = 1  # number of runs that were trained together, this one included
    version: str = __version__
    commit: str = ""  # source commit of propall, if known
    torch: str = torch.__version__
    hardware: str = ""
    when: str = ""  # date and time (UTC)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON values, with the key of its spec."""
        return vars(self) | {"spec": self.spec.to_dict(), "key": self.spec.key}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Rebuild a result from `to_dict`, also after a round trip through JSON."""
        values = {name: value for name, value in values.items() if name != "key"}
        check_json(values, _ResultValues, "result")
        check_fields(
            {name: v for name, v in values.items() if name not in ("spec", *BY_EPOCH)}, cls, "result"
        )
        values["spec"] = Spec.from_dict(values["spec"])
        for name in BY_EPOCH:
            values[name] = {int(epoch): value for epoch, value in values.get(name, {}).items()}
        return cls(**values)
