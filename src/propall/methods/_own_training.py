"""Methods that train networks in their own way, and such a method in a training setup."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from propall.training.contract import Algorithm, Classifier, Monitor, Objective, Run, TrainingSetup
from propall.training.recipe import Recipe


class OwnTraining(Algorithm):
    """A method that needs a network and a recipe; `with_training` returns the algorithm that fits it."""

    trains_network = True

    def fit(self, runs: Sequence[Run], *, monitor: Monitor | None = None) -> list[Classifier]:
        """Raise ValueError: training needs a setup."""
        raise ValueError(
            f"net: missing; {self.title} trains a network and needs net and recipe. "
            f"Use {type(self).__name__}().with_training(TrainingSetup(net, recipe))."
        )


Own = TypeVar("Own", bound=OwnTraining)


@dataclass(frozen=True)
class MethodInSetup(Algorithm, Generic[Own]):
    """Base of the algorithms that `OwnTraining.with_training` returns."""

    method: Own
    setup: TrainingSetup

    trains_network = True

    def with_training(self, setup: TrainingSetup) -> Algorithm:
        """The same method in another setup."""
        return self.method.with_training(setup)

    def hyperparameters(self) -> dict[str, Any]:
        """Hyper-parameters of the method."""
        return self.method.hyperparameters()

    def passes(self, recipe: Recipe) -> int:
        """Epochs of the method."""
        return self.method.passes(recipe)

    def scoring_objective(self) -> Objective:
        """The objective that decodes the outputs."""
        return self.method.scoring_objective()
