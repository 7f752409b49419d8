"""The vocabulary shared by methods, the training loop and the interfaces built on them."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from propall.data.dataset import PartialDataset
from propall.registry import check_choices
from propall.training.checkpoint import Checkpoint
from propall.training.recipe import Recipe

#: Builds a network from the shape of one instance and the number of classes.
NetFactory = Callable[[tuple[int, ...], int], nn.Module]

# Arguments and results of an objective, for a batch of b rows and k classes.
Logits: TypeAlias = Float[Tensor, "b k"]
Candidates: TypeAlias = Bool[Tensor, "b k"]
RowLosses: TypeAlias = Float[Tensor, "b"]
BatchLoss: TypeAlias = Float[Tensor, ""]


class State(NamedTuple):
    """What an objective remembers; dicts of tensors, passed in and handed back, never written to.

    Attributes:
        rows: memory with one row per training instance; `loss` and `update` see only the batch's rows.
        shared: memory of the whole run, such as class priors.
        trained: tensors that the optimiser trains together with the network.
    """

    rows: dict[str, Tensor] = {}  # noqa: RUF012
    shared: dict[str, Tensor] = {}  # noqa: RUF012
    trained: dict[str, Tensor] = {}  # noqa: RUF012

    def with_rows(self, **rows: Tensor) -> "State":
        """The same state with some of its row memory replaced."""
        return self._replace(rows={**self.rows, **rows})

    def with_shared(self, **shared: Tensor) -> "State":
        """The same state with some of its shared memory replaced."""
        return self._replace(shared={**self.shared, **shared})


class Step(NamedTuple):
    """When a step happens and what it may use; tensors, so that a captured graph sees them change.

    Attributes:
        progress: share of all training steps already taken, 0-d, from 0 to just below 1.
        epoch: number of completed epochs, 0-d.
        uniform: (b, k) draws on the open interval (0, 1) if the objective `needs_noise`.
        weight: (b,) instance weights, or None where all are equal.
        teacher: (b, k) logits of an averaged network, if the recipe's views take their targets from one.
    """

    progress: Tensor
    epoch: Tensor
    uniform: Tensor | None = None
    weight: Tensor | None = None
    teacher: Tensor | None = None


def weighted_mean(losses: Float[Tensor, "*r b"], weight: Float[Tensor, "*r b"] | None) -> Float[Tensor, "*r"]:
    """Mean over the batch, or sum(w l) / sum(w); 0 where all weights are."""
    return losses.mean(-1) if weight is None else (losses * weight).sum(-1) / total_weight(weight)


def total_weight(weight: Float[Tensor, "*r b"]) -> Float[Tensor, "*r"]:
    """What to divide by for a weighted mean over the batch: the sum, or 1 where all weights are 0."""
    total = weight.sum(-1)
    return total.where(total > 0, 1)


def check_weight(weight: Float[Tensor, "..."]) -> None:
    """Refuse weights below 0."""
    if (weight < 0).any():
        raise ValueError(f"weight: {weight.min().item()} is among them; expected 0 or more.")


@dataclass(frozen=True)
class TrainingSetup:
    """How a method is trained, as opposed to its hyper-parameters.

    Attributes:
        net: builds the network, or a module whose weights every run starts from.
        recipe: epochs, batches, optimizer.
        checkpoint: where to save progress; None: nowhere.
        fast: None: capture the step on a CUDA device and compile it where that pays; True: always do both;
            False: do neither.
        stack: maximum number of runs trained at once; None: as many as fit in memory.
    """

    net: NetFactory | nn.Module
    recipe: Recipe
    checkpoint: Checkpoint | Path | None = None
    fast: bool | None = None
    stack: int | None = None


class Method(ABC):
    """A method for learning from candidate sets: an `Objective` or an `Algorithm`.

    Subclasses are frozen dataclasses whose fields are their hyper-parameters.

    Attributes:
        name: lower-case name in the registry.
        title: name as printed.
        reference: citation key.
        memory: what is stored per instance, in words, for the table of methods.
        cost: cost of one step, in words, for the table of methods.
        kind: family of the method.
        trains_network: whether the method uses the network and the recipe of a `TrainingSetup`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reference: ClassVar[str]
    memory: ClassVar[str] = "none"
    cost: ClassVar[str] = ""
    kind: ClassVar[str]
    trains_network: ClassVar[bool]

    def __post_init__(self) -> None:
        check_choices(self)

    def hyperparameters(self) -> dict[str, Any]:
        """Hyper-parameters by name, as plain values; `type(self)(**hyperparameters)` is an equal method."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    def passes(self, recipe: Recipe) -> int:
        """Number of epochs that training with this recipe takes; 0 for methods without a network."""
        return recipe.epochs if self.trains_network else 0

    def shortened(self) -> Self:
        """A copy that adds as few epochs to the recipe's as possible, for a quick trial."""
        return self

    @abstractmethod
    def with_training(self, setup: TrainingSetup) -> "Algorithm":
        """The algorithm that fits this method in the given setup."""


class Objective(Method):
    """A loss on the logits of a batch, with or without memory. Subclasses are frozen, final dataclasses.

    The engine stacks, compiles and captures an objective, so `loss` and `update` are pure (no input is
    written to, no tensor kept on `self`), have static shapes (`where` and `masked_fill`, no `if` on a
    tensor), draw nothing themselves (`step.uniform`) and take time from `step`. Fields that are numbers may
    arrive as 0-d tensors: that is how runs of one stack differ in a hyper-parameter.
    """

    cost: ClassVar[str] = "1 forward + 1 backward"
    kind: ClassVar[str] = "partial labels"
    trains_network: ClassVar[bool] = True
    #: Whether `step.uniform` is filled.
    needs_noise: ClassVar[bool] = False
    #: Whether `update` receives logits recomputed after the optimizer's step.
    fresh_logits: ClassVar[bool] = False

    def with_training(self, setup: TrainingSetup) -> "Algorithm":
        """A `Trainer` of this objective."""
        from propall.training.trainer import Trainer  # imports this module

        return Trainer(self, setup.net, setup.recipe, setup.checkpoint, setup.fast, setup.stack)

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """The state before the first step. Runs once, eagerly; refuses data the formula cannot take.

        Args:
            candidates: the whole training set's candidate matrix.
            weight: instance weights, where given; only objectives with class priors need them.
        """
        return State()

    @abstractmethod
    def loss(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, ""]:
        """The batch's loss, 0-d, differentiable in the logits and in `state.trained`."""

    def update(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> State:
        """The state after the step, from detached logits of this step (see `fresh_logits`)."""
        return state

    def scores(self, logits: Float[Tensor, "b k"], state: State) -> Float[Tensor, "b k"]:
        """What prediction ranks classes by; the logits, unless the method decodes them (CPE)."""
        return logits


class RowwiseObjective(Objective):
    """An objective that is a (weighted) mean of one loss per instance; nearly all are."""

    @abstractmethod
    def losses(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, "b"]:
        """One loss per instance."""

    def loss(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, ""]:
        """Mean over the batch of `losses`, weighted where the step brings weights."""
        return weighted_mean(self.losses(logits, candidates, state, step), step.weight)

    def losses_and_gradients(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> tuple[Float[Tensor, "b"], Float[Tensor, "b k"]]:
        """`losses`, and the gradient of each in its logits: by autograd, unless a subclass writes it out."""
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            losses = self.losses(leaf, candidates, state, step)
        (gradients,) = torch.autograd.grad(losses, leaf, torch.ones_like(losses))
        return losses.detach(), gradients


class StatelessObjective(RowwiseObjective):
    """A rowwise objective that is one pure function of logits, candidates and hyper-parameters.

    Attributes:
        formula: the function as a `staticmethod`; it takes the fields as keyword arguments.
    """

    formula: ClassVar[Callable[..., RowLosses]]

    def losses(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> RowLosses:
        """Evaluate the formula."""
        return self.formula(logits, candidates, **self.hyperparameters())


@dataclass(frozen=True)
class Run:
    """One training run of a stack: its data, its seed, and where it differs from its neighbours.

    Attributes:
        train: what to learn from; the run happens on the device these tensors are on.
        seed: the only source of randomness.
        weight: (n,) instance weights, or None.
        keys: (n,) whole numbers that name the instances in the random streams; their index by default.
        objective: this run's own, in place of the trainer's.
        learning_rate: this run's own, in place of the recipe's.
        weight_decay: this run's own, in place of the recipe's.
    """

    train: PartialDataset
    seed: int
    weight: Tensor | None = None
    keys: Tensor | None = None
    objective: Objective | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None


class Classifier(ABC):
    """What a fitted run leaves behind. Subclasses are dataclasses whose fields are tensors or plain JSON."""

    #: The name a saved model is recognised by; lower case, unique.
    name: ClassVar[str]

    @abstractmethod
    def scores(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Scores of every class, higher is likelier; the prediction is the argmax, lowest index on ties."""

    def probabilities(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """The scores as a distribution: their softmax, unless the method has one of its own."""
        return self.scores(x).softmax(-1)

    def predict(self, x: Float[Tensor, "n ..."]) -> Int[Tensor, "n"]:
        """The likeliest class of each row."""
        return self.scores(x).argmax(-1)


class Monitor:
    """Looks on while an algorithm trains: progress bars, learning curves. This one does nothing."""

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Training of these runs (their positions in `fit`'s list) starts, or resumes after `done` epochs."""

    def epoch(
        self,
        epoch: int,
        runs: Sequence[int],
        losses: Float[Tensor, "r"],
        scores: Callable[[Tensor], Float[Tensor, "r n k"]],
    ) -> None:
        """An epoch (counted from 1) ended; `scores(x)` gives these runs' scores in evaluation mode."""

    def state(self) -> dict[str, Tensor]:
        """What has to be remembered when training is interrupted here."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from a remembered `state`."""


class Algorithm(Method):
    """A method with its own training loop."""

    kind: ClassVar[str] = "classical"
    trains_network: ClassVar[bool] = False

    def with_training(self, setup: TrainingSetup) -> "Algorithm":
        """The algorithm itself: without a network, it has no use for the setup."""
        return self

    @abstractmethod
    def fit(self, runs: Sequence[Run], *, monitor: Monitor | None = None) -> list[Classifier]:
        """One classifier per run, drawing from `run.seed` only; without epochs `monitor` is not called."""
