"""Methods that learn from two views of every row with a network or a memory of their own."""

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from propall import counter_rng
from propall.methods._dirichlet import dirichlet_sample
from propall.methods._own_training import MethodInSetup, OwnTraining
from propall.training.contract import (
    Algorithm,
    Classifier,
    Monitor,
    NetFactory,
    Objective,
    Run,
    State,
    Step,
    TrainingSetup,
)
from propall.training.networks import NetClassifier
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer
from propall.training.views import BALANCE_FIELDS, Views, add_balance

#: Prefix of the names in a state that belong to a base objective.
BASE = "base_"


class MultiViewMethod(OwnTraining):
    """A method trained by the `Trainer` on a weak and a strong view of every row.

    The augmentations are those of the recipe's views; without views in the recipe, and for tables, both views
    are the row itself. A subclass says which network is built around that of the setup, and which objective
    is trained on its outputs.
    """

    kind = "partial labels"
    uses_views = True

    def with_training(self, setup: TrainingSetup) -> Algorithm:
        """The method in this setup."""
        return _MultiViewTraining(self, setup)

    @abstractmethod
    def objective(self, recipe: Recipe) -> Objective:
        """The objective on the outputs of `training_net`; it takes `n_views(recipe)` views."""

    @abstractmethod
    def training_net(self, net: NetFactory | nn.Module) -> NetFactory:
        """The network that is trained, around that of the setup."""

    @abstractmethod
    def fitted(self, trained: NetClassifier) -> NetClassifier:
        """The classifier that a trained network becomes."""


@dataclass(frozen=True)
class _MultiViewTraining(MethodInSetup[MultiViewMethod]):
    """A `MultiViewMethod` in a training setup."""

    name, title, reference = "multi_view_training", "training on two views", ""

    def fitted_net(self, net: NetFactory | nn.Module) -> NetFactory | nn.Module:
        """The network that a fitted classifier holds."""
        return self.method.fitted_net(net)

    def fit(self, runs: Sequence[Run], *, monitor: Monitor | None = None) -> list[Classifier]:
        """Train all runs, those of equal shape together."""
        method, setup = self.method, self.setup
        recipe = with_two_views(setup.recipe)
        trainer = Trainer(
            method.objective(recipe),
            method.training_net(setup.net),
            recipe,
            setup.checkpoint,
            setup.fast,
            setup.stack,
        )
        trained = trainer.fit([replace(run, objective=None) for run in runs], monitor=monitor)
        fitted: list[Classifier] = []
        for classifier in trained:
            assert isinstance(classifier, NetClassifier)
            fitted.append(method.fitted(classifier))
        return fitted


def with_two_views(recipe: Recipe) -> Recipe:
    """The recipe with its augmentations of a weak and a strong view, its balance, and no other settings."""
    if recipe.views is None:
        return recipe
    names = ("weak", "strong", *BALANCE_FIELDS)
    return replace(recipe, views=Views(**{name: getattr(recipe.views, name) for name in names}))


def n_views(recipe: Recipe) -> int:
    """Views of a row in a batch of this recipe: two, or the row itself."""
    return 1 if recipe.views is None else 2


class Balance(NamedTuple):
    """The balance term of a recipe's views; none without views."""

    views: Views | None = None

    @classmethod
    def of(cls, recipe: Recipe) -> "Balance":
        """That of a recipe."""
        return cls(recipe.views)

    def add_to(self, loss: Float[Tensor, ""], weak: Float[Tensor, "b k"], step: Step) -> Float[Tensor, ""]:
        """A loss with the term on the logits of the weak view."""
        if self.views is None:
            return loss
        return add_balance(loss, self.views, weak, step.progress, step.weight)


NO_BALANCE = Balance()


def two_views(x: Float[Tensor, "v ..."], views: int) -> Float[Tensor, "w ..."]:
    """Both views of a batch; if there is only one, twice the same."""
    return torch.cat([x, x]) if views == 1 else x


# --- mixing -------------------------------------------------------------------------------------------------


class Mixing(NamedTuple):
    """How a batch is mixed with a permutation of itself: share of the row and its partner."""

    share: Float[Tensor, ""]
    partner: Int[Tensor, "m"]

    def __call__(self, rows: Float[Tensor, "m ..."]) -> Float[Tensor, "m ..."]:
        """The mixture of every row and its partner."""
        return self.share * rows + (1 - self.share) * rows[self.partner]


def draw_mixing(uniform: Float[Tensor, "b k"], concentration: float | Tensor, *, copies: int = 1) -> Mixing:
    r"""Draw a share from Beta(a, a) and a permutation of `copies` times the batch.

    Args:
        uniform: the noise of the step.
        concentration: a.
        copies: number of views that are permuted together.
    """
    # New draws from the bits of the given ones, so that a base objective may use those as its own noise.
    bits = (uniform[:, :2] * 2**23).long()
    slots = torch.arange(copies + 2, device=uniform.device)
    draws = counter_rng.uniform((bits[:, :1] << 23) | bits[:, 1:], slots, dtype=uniform.dtype)
    partner = draws[:, :copies].mT.flatten().argsort(stable=True)
    parameters = torch.ones_like(draws[0, copies:]) * concentration
    return Mixing(dirichlet_sample(parameters, draws[0, copies:])[0], partner)


# --- another objective as base loss -------------------------------------------------------------------------


def base_objective(name: str | None) -> Objective | None:
    """A registered objective by name, to replace the base loss of a method; None gives None."""
    if name is None:
        return None
    from propall.methods import METHODS  # imports this module

    objective = METHODS[name]()
    if not isinstance(objective, Objective):
        raise ValueError(
            f"base: {name!r} has a training procedure of its own; expected a loss such as 'propall' or 'cc'."
        )
    if objective.fresh_logits:
        raise ValueError(
            f"base: {name!r} recomputes outputs after every step, which is not supported here. Use another "
            "loss, such as 'propall', 'cc' or 'proden'."
        )
    return objective


def joined_state(state: State, part: State, prefix: str = BASE) -> State:
    """A state that also holds another objective's, under names with a prefix."""
    pairs = zip(state, part, strict=True)
    return State(*({**own, **{prefix + name: t for name, t in other.items()}} for own, other in pairs))


def state_of(state: State, prefix: str = BASE) -> State:
    """The part of a `joined_state` with this prefix, under its own names."""
    return State(
        *({n.removeprefix(prefix): t for n, t in part.items() if n.startswith(prefix)} for part in state)
    )


# --- networks -----------------------------------------------------------------------------------------------


def copy_of(net: NetFactory | nn.Module, in_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """A new network from a factory, or a copy of a module."""
    return copy.deepcopy(net) if isinstance(net, nn.Module) else net(in_shape, n_classes)
