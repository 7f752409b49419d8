"""CroSel (Tian et al.): two networks that select confident labels for each other."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import one_hot

from propall.methods._multiview import (
    NO_BALANCE,
    Balance,
    Mixing,
    MultiViewMethod,
    base_objective,
    draw_mixing,
    joined_state,
    n_views,
    state_of,
    two_views,
)
from propall.numerics import full_precision, negative_log_mass, restricted_softmax
from propall.registry import check_integers
from propall.training.contract import NetFactory, Objective, State, Step, weighted_mean
from propall.training.networks import InitializedFromData, NetClassifier
from propall.training.recipe import Recipe
from propall.training.views import cross_entropy

#: Prefixes of the names in a state that belong to the warm-up's objective, one per network.
NETWORKS = ("first_", "second_")


class Pair(nn.Module):
    """Two networks of one architecture.

    In evaluation mode the output (n, 2 k) holds the logits of both. In training mode x holds the weak views,
    the strong views and twice as many mixtures of b rows; the output (b, 10 k) holds for each network the
    logits of the weak view, then, without gradient, of the strong and the weak view, then of both mixtures.
    Batch norm's running statistics, which the bank and predictions are computed with, are those of the first.
    """

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def initialize_from(self, x: Float[Tensor, "n ..."]) -> None:
        """Set the weights that depend on the training inputs."""
        for net in (self.first, self.second):
            if isinstance(net, InitializedFromData):
                net.initialize_from(x)

    def forward(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "b m"]:
        """See the class."""
        if not self.training:
            return torch.cat([self.first(x), self.second(x)], -1)
        weak, strong, *mixed = x.chunk(4)
        outputs = []
        for net in (self.first, self.second):
            outputs.append(net(weak))
            with torch.no_grad():
                outputs += _without_statistics(net, torch.cat([strong, weak])).chunk(2)
            outputs += _without_statistics(net, torch.cat(mixed)).chunk(2)
        return torch.cat(outputs, -1)


def _without_statistics(net: nn.Module, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
    """Outputs of a pass in training mode that leaves the network's running statistics as they are."""
    copies = {name: buffer.clone() for name, buffer in net.named_buffers()}
    logits: Tensor = functional_call(net, copies, (x,))
    return logits


@dataclass(frozen=True)
class PairOf:
    """Builds a `Pair` of different networks; equal for equal architectures."""

    inner: NetFactory

    def __call__(self, in_shape: tuple[int, ...], n_classes: int) -> Pair:
        """Two networks, drawn one after the other."""
        return Pair(self.inner(in_shape, n_classes), self.inner(in_shape, n_classes))


def select_rows(
    bank: Float[Tensor, "n t k"], candidates: Bool[Tensor, "n k"], threshold: float | Tensor
) -> tuple[Bool[Tensor, "n"], Int[Tensor, "n"]]:
    """Rows whose label a network is sure of, and the label.

    The last predicted label must be a candidate, equal those of the epochs before, and have a mean
    probability above the threshold.

    Args:
        bank: probabilities of the last t epochs, the most recent last.
        candidates: True on S.
        threshold: of the mean over epochs of the highest probability.

    References:
        [tian2024crosel].
    """
    highest, predicted = bank.max(-1)
    labels = predicted[:, -1]
    is_candidate = candidates.gather(1, labels[:, None]).squeeze(1)
    is_stable = (predicted == labels[:, None]).all(-1)
    return is_candidate & is_stable & (highest.mean(-1) > threshold), labels


@dataclass(frozen=True)
class SelectionPhase(Objective):
    """CroSel as an objective on the outputs of `Pair`.

    A row remembers each network's probabilities of the last epochs (`bank`), whether the network has selected
    it and with which label. The share of selected rows, averaged over both networks, is shared.

    Attributes:
        base: objective of the warm-up; None: CC.
        views: views of a row in a batch, 1 or 2.
        warm_up: epochs before the first selection.
        history: number of epochs in the bank.
        threshold: of the mean probability of a selected label.
        consistency: factor of the consistency term.
        mixing: a of the Beta(a, a) distribution of a mixture's share.
        balance: of each network's predictions for the weak view.
    """

    base: Objective | None
    views: int
    warm_up: int = 10
    history: int = 3
    threshold: float = 0.9
    consistency: float = 1.0
    mixing: float = 0.75
    balance: Balance = NO_BALANCE

    name, title, reference = "crosel_phase", "CroSel", "tian2024crosel"
    handles_views = True
    needs_noise = True
    needs_outputs = True

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """An empty bank and no selected rows."""
        (n, k), device = candidates.shape, candidates.device
        rows = {
            "bank": torch.zeros(n, 2, self.history, k, device=device),
            "selected": torch.zeros(n, 2, dtype=torch.bool, device=device),
            "labels": torch.zeros(n, 2, dtype=torch.int64, device=device),
        }
        own = State(rows=rows, shared={"share": torch.zeros((), device=device)})
        if self.base is not None:
            for prefix in NETWORKS:
                own = joined_state(own, self.base.init(candidates, weight), prefix)
        return own

    def _mixing(self, uniform: Float[Tensor, "b k"] | None) -> Mixing:
        """The mixing of a step, in which a row keeps the greater share."""
        assert uniform is not None
        mix = draw_mixing(uniform, self.mixing, copies=2)
        return mix._replace(share=torch.maximum(mix.share, 1 - mix.share))

    def network_inputs(
        self, x: Float[Tensor, "v ..."], uniform: Float[Tensor, "b k"] | None
    ) -> Float[Tensor, "w ..."]:
        """Both views, then both mixed with a permutation of all."""
        views = two_views(x, self.views)
        return torch.cat([views, self._mixing(uniform)(views)])

    def loss(
        self, logits: Float[Tensor, "b m"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, ""]:
        r"""Sum over both networks of the warm-up loss or, after the warm-up, of

        .. math:: \operatorname{mean}_{\text{selected}} \text{CE}(\hat y, r_\text{weak})
            + (1 - \rho)\, \lambda \operatorname{mean} \text{CE}(t_\text{mixed}, r_\text{mixed})

        Rows are selected and labeled by the other network; rho is the share of selected rows. The target of
        a view is the softmax over the candidates for the other view, and is mixed like the inputs.

        References:
            [tian2024crosel].
        """
        mix = self._mixing(step.uniform)
        is_warming = step.epoch < self.warm_up
        weight = torch.ones_like(logits[:, 0]) if step.weight is None else step.weight
        total = torch.zeros_like(logits[0, 0])
        for number, prefix in enumerate(NETWORKS):
            weak, for_weak, for_strong, *mixed = self._outputs(logits, number, candidates.shape[-1])
            other = 1 - number
            is_selected = state.rows["selected"][:, other].to(weight)
            target = one_hot(state.rows["labels"][:, other], candidates.shape[-1]).to(weak)
            selected = weighted_mean(cross_entropy(target, weak), weight * is_selected)
            targets = torch.cat([restricted_softmax(part, candidates) for part in (for_weak, for_strong)])
            mixed_losses = cross_entropy(mix(targets.detach()), torch.cat(mixed))
            consistency = weighted_mean(mixed_losses, weight.repeat(2))
            factor = (1 - state.shared["share"]) * self.consistency
            warming = self._warm_up_loss(weak, candidates, state_of(state, prefix), step)
            loss = torch.where(is_warming, warming, selected + factor * consistency)
            total = total + self.balance.add_to(loss, weak, step)
        return total

    def _warm_up_loss(
        self, weak: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, ""]:
        if self.base is None:
            return weighted_mean(negative_log_mass(weak, candidates), step.weight)
        return self.base.loss(weak, candidates, state, step)

    @property
    def updates_state(self) -> bool:
        """Whether the warm-up's objective has a memory."""
        return self.base is not None and self.base.updates_state

    def update(
        self, logits: Float[Tensor, "b m"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> State:
        """The memory of the warm-up's objective, for each network."""
        if self.base is None:
            return state
        for number, prefix in enumerate(NETWORKS):
            weak, *_ = self._outputs(logits, number, candidates.shape[-1])
            new = self.base.update(weak, candidates, state_of(state, prefix), step)
            state = joined_state(state, new, prefix)
        return state

    def end_epoch(self, candidates: Bool[Tensor, "n k"], state: State, step: Step) -> State:
        """Put the probabilities of all rows into the bank, and select rows from it."""
        assert step.outputs is not None, "the engine provides the outputs"
        probabilities = full_precision(step.outputs).unflatten(-1, (2, -1)).softmax(-1)
        old = state.rows["bank"]
        bank = torch.cat([old[:, :, 1:], probabilities[:, :, None].to(old)], 2)
        selected, labels = zip(
            *(select_rows(bank[:, number], candidates, self.threshold) for number in range(2)), strict=True
        )
        is_selected = torch.stack(selected, 1)
        state = state.with_rows(bank=bank, selected=is_selected, labels=torch.stack(labels, 1))
        share = is_selected.to(bank).mean(-1)
        return state.with_shared(share=weighted_mean(share, step.weight))

    def scores(self, logits: Float[Tensor, "b m"], state: State) -> Float[Tensor, "b k"]:
        """The mean of both networks' scores."""
        halves = logits.chunk(2, -1)
        if self.base is not None:
            parts = zip(halves, NETWORKS, strict=True)
            halves = tuple(self.base.scores(half, state_of(state, prefix)) for half, prefix in parts)
        return (halves[0] + halves[1]) / 2

    @staticmethod
    def _outputs(logits: Tensor, number: int, k: int) -> tuple[Tensor, ...]:
        """The five outputs of one network for the batch."""
        outputs: tuple[Tensor, ...] = full_precision(logits).chunk(2, -1)[number].split(k, -1)
        return outputs


@dataclass(frozen=True)
class CroSel(MultiViewMethod):
    """Cross selection of confident pseudo-labels: an ensemble of two networks.

    After a warm-up, each network is trained on the rows that the other one is sure of, and on the agreement
    of its own predictions for mixed views of all rows. The classifier is the mean of both networks' scores,
    so it is to be compared with other ensembles of two.

    Attributes:
        warm_up: epochs with the base loss, among the recipe's.
        consistency: factor of the consistency term; the authors use up to 4.
        threshold: of the mean probability of a selected label.
        history: number of epochs over which a label must be stable.
        mixing: a of the Beta(a, a) distribution of a mixture's share.
        base: name of the objective of the warm-up; None: CC.

    Notes:
        The authors train WRN-34-10 for 200 epochs. Differences from their code: the two networks are
        different (there, both names refer to one); both see the same batches; the selected rows of a batch,
        instead of a batch of selected rows, enter the first term; the warm-up uses the weak view, and the
        bank the rows without augmentation; no row is left out of the bank when the last batch is incomplete;
        batch norm's running statistics are those of the weak views (there, after the warm-up, also of strong
        views and mixtures: on digits, rows then were no longer selected, though the network was sure of them
        in training mode).
    """

    warm_up: int = 10
    consistency: float = 1.0
    threshold: float = 0.9
    history: int = 3
    mixing: float = 0.75
    base: str | None = None

    name, title, reference = "crosel", "CroSel", "tian2024crosel"
    assumes = "augmented views of a row have its label; confident and stable predictions are correct"
    use_when = "For images, if two networks can be trained: each selects the rows that the other learns from."
    memory = "6k probabilities, 2 labels"
    cost = "2 networks: 10 forward + 6 backward"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, warm_up=0, history=1)

    def objective(self, recipe: Recipe) -> SelectionPhase:
        """The objective on two views."""
        return SelectionPhase(
            base=base_objective(self.base),
            views=n_views(recipe),
            warm_up=self.warm_up,
            history=self.history,
            threshold=self.threshold,
            consistency=self.consistency,
            mixing=self.mixing,
            balance=Balance.of(recipe),
        )

    def training_net(self, net: NetFactory | nn.Module) -> NetFactory:
        """Two networks."""
        if isinstance(net, nn.Module):
            raise ValueError(
                f"net: got a module ({type(net).__name__}); CroSel trains two networks, which must start "
                "differently. Pass the name of a network or a function that builds one."
            )
        return PairOf(net)

    def fitted_net(self, net: NetFactory | nn.Module) -> NetFactory | nn.Module:
        """The two networks."""
        return self.training_net(net)

    def scoring_objective(self) -> Objective:
        """The training objective, which averages both networks' scores."""
        return self.objective(Recipe())

    def fitted(self, trained: NetClassifier) -> NetClassifier:
        """Both networks, with the rows they selected last."""
        return trained
