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
from propall.training.peers import Peers
from propall.training.recipe import Recipe

#: Builds a network from the shape of one instance and the number of classes.
NetFactory = Callable[[tuple[int, ...], int], nn.Module]
#: Scores a batch of instances with every run.
RunScores = Callable[[Tensor], Float[Tensor, "r n k"]]

# Arguments and results of an objective, for a batch of b rows and k classes.
Logits: TypeAlias = Float[Tensor, "b k"]
Candidates: TypeAlias = Bool[Tensor, "b k"]
RowLosses: TypeAlias = Float[Tensor, "b"]
BatchLoss: TypeAlias = Float[Tensor, ""]


class State(NamedTuple):
    """The memory of an objective: dicts of tensors, passed in and returned, never modified in place.

    Attributes:
        rows: one row per training instance; `loss` and `update` see only the rows of the batch.
        shared: values of the whole run, such as class priors.
        trained: tensors that the optimizer trains together with the network.

    Examples:
        >>> state = State(rows={"weights": torch.ones(2, 3)})
        >>> state.with_shared(prior=torch.ones(3)).shared["prior"].tolist()
        [1.0, 1.0, 1.0]
    """

    rows: dict[str, Tensor] = {}  # noqa: RUF012
    shared: dict[str, Tensor] = {}  # noqa: RUF012
    trained: dict[str, Tensor] = {}  # noqa: RUF012

    def with_rows(self, **rows: Tensor) -> "State":
        """A copy with some entries of `rows` replaced."""
        return self._replace(rows={**self.rows, **rows})

    def with_shared(self, **shared: Tensor) -> "State":
        """A copy with some entries of `shared` replaced."""
        return self._replace(shared={**self.shared, **shared})


class Step(NamedTuple):
    """Time, noise and weights of one training step; tensors, so that they can change in a captured graph.

    Attributes:
        progress: fraction of all training steps already taken, 0-d, in [0, 1).
        epoch: number of completed epochs, 0-d.
        uniform: (b, k) draws on the open interval (0, 1) if the objective `needs_noise`.
        weight: (b,) instance weights; None: all equal.
        teacher: (b, k) logits of an averaged network or of the other runs, if the recipe's views take their
            targets from there.
        mixing: (b,) weights of the rows in mixup, if the recipe's views use it.
        outputs: (n, m) outputs of the network for all training rows, not augmented, in evaluation mode, at
            the end of an epoch if the objective `needs_outputs`.

    Examples:
        >>> from propall.methods.cc import CC
        >>> step = Step(torch.tensor(0.5), torch.tensor(10), weight=torch.tensor([1.0, 0.0]))
        >>> logits, candidates = torch.zeros(2, 4), torch.tensor([[True, True, False, False]] * 2)
        >>> CC().loss(logits, candidates, State(), step)  # the second row does not count
        tensor(0.6931)
    """

    progress: Tensor
    epoch: Tensor
    uniform: Tensor | None = None
    weight: Tensor | None = None
    teacher: Tensor | None = None
    mixing: Tensor | None = None
    outputs: Tensor | None = None


def weighted_mean(losses: Float[Tensor, "*r b"], weight: Float[Tensor, "*r b"] | None) -> Float[Tensor, "*r"]:
    """Mean over the batch, or sum(w l) / sum(w); 0 if all weights are 0."""
    return losses.mean(-1) if weight is None else (losses * weight).sum(-1) / total_weight(weight)


def total_weight(weight: Float[Tensor, "*r b"]) -> Float[Tensor, "*r"]:
    """Divisor of a weighted mean over the batch: the sum of the weights, or 1 if all are 0."""
    total = weight.sum(-1)
    return total.where(total > 0, 1)


def check_weight(weight: Float[Tensor, "..."]) -> None:
    """Raise ValueError for negative weights."""
    if (weight < 0).any():
        raise ValueError(f"weight: contains {weight.min().item()}; expected 0 or more.")


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

    Examples:
        >>> from propall.methods.proden import PRODEN
        >>> from propall.nets import Linear
        >>> candidates = torch.tensor([[True, False], [True, True], [True, True], [False, True]])
        >>> data = PartialDataset(torch.tensor([[0.0], [1.0], [2.0], [3.0]]), candidates)
        >>> setup = TrainingSetup(Linear, Recipe(epochs=50, learning_rate=0.5))
        >>> classifier, *_ = PRODEN().with_training(setup).fit([Run(data, seed=0)])
        >>> classifier.predict(torch.tensor([[-1.0], [4.0]])).tolist()
        [0, 1]
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
        assumes: what must hold of the candidate sets and the data, in words, for the method's page.
        use_when: when to choose the method, in one or two sentences, for its page.
        trains_network: whether the method uses the network and the recipe of a `TrainingSetup`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reference: ClassVar[str]
    memory: ClassVar[str] = "none"
    cost: ClassVar[str] = ""
    kind: ClassVar[str]
    assumes: ClassVar[str] = ""
    use_when: ClassVar[str] = ""
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

    def fitted_net(self, net: NetFactory | nn.Module) -> NetFactory | nn.Module:
        """The network that a fitted classifier holds, given that of the setup; the same by default."""
        return net

    def scoring_objective(self) -> "Objective":
        """The objective that decodes the outputs of a network fitted by this method."""
        raise TypeError(f"{self.title} trains no network.")


class Objective(Method):
    """A loss on the logits of a batch, with or without memory. Subclasses are final.

    Training stacks, compiles and captures objectives. Therefore `loss` and `update` are pure (they modify no
    input and keep no tensor on `self`), have static shapes (`where` and `masked_fill`, no `if` on a tensor),
    draw no random numbers (`step.uniform` has them) and take the time from `step`. Numeric fields may be 0-d
    tensors: that is how the runs of one stack differ in a hyper-parameter.

    Examples:
        >>> from propall.methods.proden import PRODEN
        >>> candidates = torch.tensor([[True, True, False], [False, True, True]])
        >>> PRODEN().init(candidates).rows["weights"].tolist()
        [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]
    """

    cost: ClassVar[str] = "1 forward + 1 backward"
    kind: ClassVar[str] = "partial labels"
    trains_network: ClassVar[bool] = True
    #: Whether `step.uniform` is filled.
    needs_noise: ClassVar[bool] = False
    #: Whether `update` receives logits recomputed after the optimizer's step.
    fresh_logits: ClassVar[bool] = False
    #: Whether the objective takes the outputs for all views of a row itself; otherwise the engine wraps it.
    handles_views: ClassVar[bool] = False
    #: Whether `end_epoch` receives `step.outputs`.
    needs_outputs: ClassVar[bool] = False

    def with_training(self, setup: TrainingSetup) -> "Algorithm":
        """A `Trainer` of this objective."""
        from propall.training.trainer import Trainer  # imports this module

        return Trainer(self, setup.net, setup.recipe, setup.checkpoint, setup.fast, setup.stack)

    def scoring_objective(self) -> "Objective":
        """The objective itself."""
        return self

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """The state before the first step; raises ValueError for data that the formula does not cover.

        Args:
            candidates: candidate matrix of the whole training set.
            weight: instance weights; only objectives with class priors use them.
        """
        return State()

    @property
    def updates_state(self) -> bool:
        """Whether the objective overrides `update`."""
        return type(self).update is not Objective.update

    @abstractmethod
    def loss(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> BatchLoss:
        """Loss of the batch, 0-d, differentiable in the logits and in `state.trained`."""

    def update(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> State:
        """State after the step, from the detached logits of this step (see `fresh_logits`)."""
        return state

    @property
    def makes_inputs(self) -> bool:
        """Whether the objective overrides `network_inputs`."""
        return type(self).network_inputs is not Objective.network_inputs

    def network_inputs(
        self, x: Float[Tensor, "v ..."], uniform: Float[Tensor, "b k"] | None
    ) -> Float[Tensor, "w ..."]:
        """What the network sees of a batch: its views, unless the objective mixes or repeats them.

        Args:
            x: all views of the batch, one after the other.
            uniform: as `step.uniform`.
        """
        return x

    @property
    def ends_epochs(self) -> bool:
        """Whether the objective overrides `end_epoch`."""
        return type(self).end_epoch is not Objective.end_epoch

    def end_epoch(self, candidates: Bool[Tensor, "n k"], state: State, step: Step) -> State:
        """State after an epoch, from the memory of all rows of one run.

        It is called between epochs, outside the captured step, and may branch on values.

        Args:
            candidates: candidate matrix of the whole training set.
            state: with the rows of the whole training set.
            step: the time at the end of the epoch, and the outputs if the objective `needs_outputs`.
        """
        return state

    def after_cleaning(
        self,
        kept: Bool[Tensor, "n k"],
        weights: Float[Tensor, "n k"],
        predictions: Float[Tensor, "n k"],
        state: State,
    ) -> State:
        """State after candidates were removed between epochs; objectives with label weights follow.

        Args:
            kept: the remaining candidates of the whole training set.
            weights: label weights on them.
            predictions: log-probabilities of all labels at the latest visit of each row.
            state: with the rows of the whole training set.
        """
        return state

    def scores(self, logits: Logits, state: State) -> Float[Tensor, "b k"]:
        """Class scores for prediction: the logits, unless the method decodes them (CPE)."""
        return logits


class RowwiseObjective(Objective):
    """An objective that is the (weighted) mean of one loss per instance, as nearly all are.

    Examples:
        >>> from propall.methods.cc import CC
        >>> step = Step(torch.tensor(0.0), torch.tensor(0))
        >>> CC().losses(torch.zeros(1, 4), torch.tensor([[True, True, False, False]]), State(), step)
        tensor([0.6931])
    """

    @abstractmethod
    def losses(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> RowLosses:
        """One loss per instance."""

    def loss(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> BatchLoss:
        """Mean of `losses` over the batch, weighted if the step has weights."""
        return weighted_mean(self.losses(logits, candidates, state, step), step.weight)

    def losses_and_gradients(
        self, logits: Logits, candidates: Candidates, state: State, step: Step
    ) -> tuple[RowLosses, Float[Tensor, "b k"]]:
        """`losses` and their gradients in the logits, by autograd unless a subclass has a closed form."""
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            losses = self.losses(leaf, candidates, state, step)
        (gradients,) = torch.autograd.grad(losses, leaf, torch.ones_like(losses))
        return losses.detach(), gradients


class StatelessObjective(RowwiseObjective):
    """A rowwise objective that is one pure function of logits, candidates and hyper-parameters.

    Attributes:
        formula: the function as a `staticmethod`; it takes the fields as keyword arguments.

    Examples:
        >>> from propall.methods.cc import CC
        >>> CC.formula(torch.zeros(1, 4), torch.tensor([[True, True, False, False]]))
        tensor([0.6931])
    """

    formula: ClassVar[Callable[..., RowLosses]]

    def losses(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> RowLosses:
        """Evaluate the formula."""
        return self.formula(logits, candidates, **self.hyperparameters())


@dataclass(frozen=True)
class Run:
    """One training run: its data, its seed, and its own settings.

    Attributes:
        train: training data; the run uses the device of these tensors.
        seed: the only source of randomness.
        weight: (n,) instance weights, or None.
        keys: (n,) integers that identify the instances in the random streams; None: their index.
        objective: replaces that of the trainer.
        learning_rate: replaces that of the recipe.
        weight_decay: replaces that of the recipe.
        peers: the ensemble whose members give this run its label weights; they are trained in one stack.
        rows: (n,) positions of the training rows among those of the ensemble; None: all of them, in order.

    Examples:
        >>> import torch
        >>> from propall.data import PartialDataset
        >>> x = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
        >>> candidates = torch.tensor([[True, False], [True, True], [True, True], [False, True]])
        >>> data = PartialDataset(x, candidates)
        >>> from propall.methods.proden import PRODEN
        >>> from propall.nets import Linear
        >>> runs = [Run(data, seed=0), Run(data, seed=1, learning_rate=0.1)]
        >>> setup = TrainingSetup(Linear, Recipe(epochs=50, learning_rate=0.5))
        >>> len(PRODEN().with_training(setup).fit(runs))  # one classifier per run
        2
    """

    train: PartialDataset
    seed: int
    weight: Tensor | None = None
    keys: Tensor | None = None
    objective: Objective | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    peers: Peers | None = None
    rows: Tensor | None = None


class Classifier(ABC):
    """The result of a run. Subclasses are dataclasses whose fields are tensors or plain JSON values.

    Examples:
        >>> import torch
        >>> from propall.data import PartialDataset
        >>> x = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
        >>> candidates = torch.tensor([[True, False], [True, True], [True, True], [False, True]])
        >>> data = PartialDataset(x, candidates)
        >>> from propall.methods.pl_knn import PLKNN
        >>> classifier, *_ = PLKNN(neighbours=2).fit([Run(data, seed=0)])
        >>> classifier.probabilities(torch.tensor([[-1.0]])).round(decimals=2).tolist()
        [[0.66, 0.34]]
    """

    #: Identifies the class in saved models; lower case, unique.
    name: ClassVar[str]

    @abstractmethod
    def scores(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Scores of all classes; the prediction is the highest, on ties the lowest index."""

    def probabilities(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Class probabilities: the softmax of the scores, unless the method defines others."""
        return self.scores(x).softmax(-1)

    def predict(self, x: Float[Tensor, "n ..."]) -> Int[Tensor, "n"]:
        """The most probable class of each row."""
        return self.scores(x).argmax(-1)


class Monitor:
    """Callbacks during training, for progress bars and learning curves; this base class does nothing."""

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Training of the runs at these positions starts, or resumes after `done` epochs."""

    def epoch(self, epoch: int, runs: Sequence[int], losses: Float[Tensor, "r"], scores: RunScores) -> None:
        """An epoch (counted from 1) has ended; `scores(x)` gives the runs' scores in evaluation mode."""

    def proceed(self) -> None:
        """An algorithm without epochs starts its next part; a monitor may raise an error to stop it."""

    def state(self) -> dict[str, Tensor]:
        """Tensors to save in a checkpoint."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from a saved `state`."""


class Algorithm(Method):
    """A method with its own training loop, which draws random numbers from `run.seed` only.

    Examples:
        >>> import torch
        >>> from propall.data import PartialDataset
        >>> x = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
        >>> candidates = torch.tensor([[True, False], [True, True], [True, True], [False, True]])
        >>> data = PartialDataset(x, candidates)
        >>> from propall.methods.pl_knn import PLKNN
        >>> classifier, *_ = PLKNN(neighbours=2).fit([Run(data, seed=0)])
        >>> classifier.predict(torch.tensor([[-1.0], [4.0]])).tolist()
        [0, 1]
    """

    kind: ClassVar[str] = "classical"
    trains_network: ClassVar[bool] = False
    #: Whether it learns from the recipe's views.
    uses_views: ClassVar[bool] = False
    #: Class of the fitted classifiers of methods without a network.
    classifier: ClassVar[type[Classifier]]
    #: Further classes that these may have, such as for many classes.
    other_classifiers: ClassVar[tuple[type[Classifier], ...]] = ()

    def with_training(self, setup: TrainingSetup) -> "Algorithm":
        """The algorithm itself: without a network, it has no use for the setup."""
        return self

    @abstractmethod
    def fit(self, runs: Sequence[Run], *, monitor: Monitor | None = None) -> list[Classifier]:
        """Fit one classifier per run; algorithms that have epochs tell `monitor`, others call `proceed`."""
