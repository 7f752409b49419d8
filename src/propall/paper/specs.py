"""One run, completely described: frozen, hashable, a line of JSON."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from propall.data import CORRUPTIONS
from propall.data.corruption import Corruption, Exactly
from propall.data.dataset import Problem, Source
from propall.methods import METHODS
from propall.training.contract import Algorithm, Objective
from propall.training.recipe import Recipe

#: How the teacher of instance-dependent candidate sets is trained: on clean labels, as the students are.
TEACHER = Recipe(epochs=400, batch_size=256, learning_rate=0.01, weight_decay=1e-4)

#: The protocol whose runs are trained one by one, so that the time of each is its own.
TIMED = "timed"

#: Mean and deviation of pixels other than a data set's own, by the name a spec calls them.
SCALINGS = {"unit": (0.0, 1.0), "half": (0.5, 0.5)}


@dataclass(frozen=True)
class Split:
    """Which rows train and which test.

    Attributes:
        fold: the fold that tests, or None for the data set's official test part.
        folds: number of folds.
        classes: labels to keep, relabelled from 0; None for all.
        per_class: training rows of each class, the first ones; None for all.
    """

    fold: int | None = None
    folds: int = 5
    classes: tuple[int, ...] | None = None
    per_class: int | None = None

    def source(self, source: Source) -> Source:
        """The part of a data set that takes part at all."""
        if self.classes is not None:
            source = source.keep_classes(self.classes)
        return source if self.per_class is None else source.first_per_class(self.per_class)

    def problem(
        self, source: Source, corruption: Corruption | None, seed: int, scores: Any = None
    ) -> Problem:
        """Training and test rows, candidate sets drawn where a corruption is named."""
        if self.fold is None:
            return source.problem(corruption, seed, scores=scores)
        return source.fold(self.fold, self.folds, corruption=corruption, seed=seed, scores=scores)


@dataclass(frozen=True)
class Spec:
    """Everything a run's result depends on.

    Attributes:
        data: name of the data set.
        method: what learns, with its hyper-parameters.
        net: name of the network; ignored by methods without one.
        recipe: epochs, batches, optimiser.
        corruption: the law candidate sets are drawn from; None for a data set's own.
        split: training and test rows.
        scaling: what pixels become: "own" for the data set's own constants (features are standardised on the
            training rows), "unit" for values from 0 to 1, "half" for values from -1 to 1.
        teacher: how the teacher of an instance-dependent corruption is trained.
        protocol: the name this setting is reported under; results of one are never shown as another.
        seed: of candidate sets, initialisation, order and noise.
    """

    data: str
    method: Objective | Algorithm
    net: str = "linear"
    recipe: Recipe = field(default_factory=Recipe)
    corruption: Corruption | None = None
    split: Split = field(default_factory=Split)
    scaling: Literal["own", "unit", "half"] = "own"
    teacher: Recipe | None = None
    protocol: str = "own"
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The spec as plain JSON values."""
        return {
            "data": self.data,
            "method": {"name": self.method.name, **self.method.hyperparameters()},
            "net": self.net,
            "recipe": dataclasses.asdict(self.recipe),
            "corruption": None
            if self.corruption is None
            else {"name": self.corruption.name, **dataclasses.asdict(self.corruption)},  # type: ignore[call-overload]
            "split": dataclasses.asdict(self.split),
            "scaling": self.scaling,
            "teacher": None if self.teacher is None else dataclasses.asdict(self.teacher),
            "protocol": self.protocol,
            "seed": self.seed,
        }

    def to_json(self) -> str:
        """One line of JSON, the same for equal specs."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` returned."""
        method = dict(values["method"])
        corruption = values["corruption"]
        if corruption is not None:
            corruption = dict(corruption)
            corruption = CORRUPTIONS[corruption.pop("name")](**corruption)
        split = dict(values["split"])
        split["classes"] = None if split["classes"] is None else tuple(split["classes"])
        return cls(
            data=values["data"],
            method=METHODS[method.pop("name")](**method),
            net=values["net"],
            recipe=Recipe(**values["recipe"]),
            corruption=corruption,
            split=Split(**split),
            scaling=values["scaling"],
            teacher=None if values["teacher"] is None else Recipe(**values["teacher"]),
            protocol=values["protocol"],
            seed=values["seed"],
        )

    def source(self, source: Source) -> Source:
        """The part of a data set that takes part, its pixels scaled as asked."""
        part = self.split.source(source)
        if self.scaling == "own":
            return part
        if part.scaling is None:
            raise ValueError(
                f"scaling: {self.scaling!r} is for pixels; {self.data} has features, give 'own'."
            )
        mean, std = SCALINGS[self.scaling]
        return part.scaled(dataclasses.replace(part.scaling, mean=(mean,), std=(std,)))

    @property
    def key(self) -> str:
        """A short name for this very run."""
        return hashlib.blake2b(self.to_json().encode(), digest_size=12).hexdigest()

    @property
    def trains_a_net(self) -> bool:
        """Whether the method uses the network and the recipe."""
        return self.method.trains_network

    @property
    def passes(self) -> int:
        """Number of training epochs, including a warm-up; 0 for methods without a network."""
        return self.method.passes(self.recipe)

    @property
    def is_timed(self) -> bool:
        """Whether the run is trained by itself, for the sake of its time."""
        return self.protocol.partition("-")[0] == TIMED

    @property
    def is_clean(self) -> bool:
        """Whether training sees the true labels."""
        return isinstance(self.corruption, Exactly) and self.corruption.n == 1
