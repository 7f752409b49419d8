"""The description of one run. Every cell of a paper table is a list of specs.

A `Spec` is frozen, has one JSON form, and hashes to the key that its result is stored under.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from propall.data import CORRUPTIONS
from propall.data.corruption import Corruption, Exactly
from propall.data.dataset import Problem, Source
from propall.methods import METHODS
from propall.training.contract import Algorithm, Objective
from propall.training.named_views import find_views
from propall.training.recipe import Recipe

#: Recipe of the teacher for instance-dependent candidate sets; it is trained on clean labels.
TEACHER = Recipe(epochs=400, batch_size=256, learning_rate=0.01, weight_decay=1e-4)

#: Protocol whose runs are trained one at a time, so that each has its own training time.
TIMED = "timed"

#: Pixel mean and standard deviation for the values of `Spec.scaling` that replace a data set's own.
_PIXEL_SCALINGS = {"unit": (0.0, 1.0), "half": (0.5, 0.5)}


@dataclass(frozen=True)
class Teacher:
    """The network that draws instance-dependent candidate sets, if it differs from that of the run.

    Attributes:
        net: name of the network.
        recipe: how it is trained on the clean labels.
        scoring: "eval" scores the training rows in evaluation mode. "public" is what published code does: in
            training mode, with the batch statistics of 2000 rows, on pixels from 0 to 255.
        dropout: probability in training mode, for `wrn28_10`; published annotators have 0.3, so that with
            scoring "public" a part of each set is chance.
    """

    net: str
    recipe: Recipe
    scoring: Literal["eval", "public"] = "eval"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout: got {self.dropout!r}; expected a probability below 1.")
        if self.dropout and self.net != "wrn28_10":
            raise ValueError(f"dropout: got {self.dropout!r} for {self.net}; only wrn28_10 has dropout.")

    def to_dict(self) -> dict[str, Any]:
        """Return the teacher as plain JSON values."""
        values = {"net": self.net, "recipe": self.recipe.to_dict(), "scoring": self.scoring}
        # Older specs keep their keys.
        return values | ({"dropout": self.dropout} if self.dropout else {})


def change_teacher(teacher: Recipe | Teacher, **fields: Any) -> Recipe | Teacher:
    """Return a teacher with other fields of its recipe."""
    if isinstance(teacher, Recipe):
        return dataclasses.replace(teacher, **fields)
    return dataclasses.replace(teacher, recipe=dataclasses.replace(teacher.recipe, **fields))


@dataclass(frozen=True)
class Split:
    """Which rows are used for training and testing."""

    fold: int | None = None  # test fold; None uses the official test set
    folds: int = 5
    classes: tuple[int, ...] | None = None  # classes to keep, relabeled from 0; None keeps all
    per_class: int | None = None  # training rows per class, from the start of the data set

    def source(self, source: Source) -> Source:
        """Return the rows and classes of a data set that are used at all."""
        if self.classes is not None:
            source = source.keep_classes(self.classes)
        return source if self.per_class is None else source.first_per_class(self.per_class)

    def problem(
        self, source: Source, corruption: Corruption | None, seed: int, scores: Any = None
    ) -> Problem:
        """Return training and test rows; candidate sets are drawn if a corruption is given."""
        if self.fold is None:
            return source.problem(corruption, seed, scores=scores)
        return source.fold(self.fold, self.folds, corruption=corruption, seed=seed, scores=scores)


@dataclass(frozen=True)
class Spec:
    """Everything the result of a run depends on."""

    data: str  # name of the data set
    method: Objective | Algorithm  # with its hyper-parameters
    net: str = "linear"  # ignored by methods without one
    recipe: Recipe = field(default_factory=Recipe)
    corruption: Corruption | None = None  # how candidate sets are drawn; None for those the data has
    split: Split = field(default_factory=Split)
    # Pixels as the data set says ("own"; features are standardized), in [0, 1] ("unit") or [-1, 1] ("half").
    scaling: Literal["own", "unit", "half"] = "own"
    # For an instance-dependent corruption; a recipe trains the network of the run.
    teacher: Recipe | Teacher | None = None
    protocol: str = "own"  # results of different protocols are never mixed
    seed: int = 0  # of candidate sets, initialization, batch order and noise

    @property
    def title(self) -> str:
        """Title of the method, or of the named views that it is trained with."""
        views, method = self.recipe.views, self.method.title
        named = find_views(views)
        if views is None or named is None or not isinstance(self.method, Objective):
            return method
        is_own = self.method.name == named.base and views.base_weight == named.views.base_weight
        return named.title if is_own else f"{method}, {named.title} views"

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as plain JSON values."""
        return {field.name: _to_plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def to_json(self) -> str:
        """Return one line of JSON; equal specs give equal text."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` returned."""
        fields = {field.name: values[field.name] for field in dataclasses.fields(cls)}
        split, corruption, teacher = fields["split"], fields["corruption"], fields["teacher"]
        classes = split["classes"]
        fields |= {
            "method": _from_registry(METHODS, fields["method"]),
            "recipe": Recipe.from_dict(fields["recipe"]),
            "corruption": None if corruption is None else _from_registry(CORRUPTIONS, corruption),
            "split": Split(**split | {"classes": None if classes is None else tuple(classes)}),
            "teacher": None if teacher is None else _read_teacher(teacher),
        }
        return cls(**fields)

    def source(self, source: Source) -> Source:
        """Return the part of a data set that is used, with its pixels normalized."""
        part = self.split.source(source)
        if self.scaling == "own":
            return part
        if part.scaling is None:
            problem = f"which is for images; {self.data} has features. Use 'own'."
            raise ValueError(f"scaling: got {self.scaling!r}, {problem}")
        mean, std = _PIXEL_SCALINGS[self.scaling]
        return part.scaled(dataclasses.replace(part.scaling, mean=(mean,), std=(std,)))

    @property
    def key(self) -> str:
        """Hash of the JSON form: the name of this run in a store."""
        return hashlib.blake2b(self.to_json().encode(), digest_size=12).hexdigest()

    @property
    def trains_network(self) -> bool:
        """Whether the method uses the network and the recipe."""
        return self.method.trains_network

    @property
    def total_epochs(self) -> int:
        """Number of training epochs, including a warm-up; 0 for methods without a network."""
        return self.method.passes(self.recipe)

    @property
    def is_timed(self) -> bool:
        """Whether the run is trained alone because its time is measured."""
        return self.protocol.partition("-")[0] == TIMED

    @property
    def is_clean(self) -> bool:
        """Whether the candidate sets are the true labels."""
        return isinstance(self.corruption, Exactly) and self.corruption.n == 1


def _to_plain(value: Any) -> Any:
    """Return a field of a spec as plain JSON values; methods and corruptions with their names."""
    if isinstance(value, Objective | Algorithm):
        return {"name": value.name, **value.hyperparameters()}
    if isinstance(value, Corruption):
        return {"name": value.name, **dataclasses.asdict(value)}  # type: ignore[call-overload]
    if isinstance(value, Recipe | Teacher):
        return value.to_dict()
    return dataclasses.asdict(value) if isinstance(value, Split) else value


def _read_teacher(values: Mapping[str, Any]) -> Recipe | Teacher:
    if "recipe" not in values:
        return Recipe.from_dict(values)
    recipe = Recipe.from_dict(values["recipe"])
    return Teacher(values["net"], recipe, values["scoring"], values.get("dropout", 0.0))


def _from_registry(registry: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    return registry[values["name"]](**{name: value for name, value in values.items() if name != "name"})
