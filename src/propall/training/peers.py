"""Label weights that the members of an ensemble give each other."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from propall.data.dataset import PartialDataset
from propall.numerics import balance_classes, restricted_softmax, uniform_weights

if TYPE_CHECKING:
    from propall.training.contract import Run
    from propall.training.stack import Stack

#: Name of the row memory that holds label weights; see `methods._label_weights`.
WEIGHTS = "weights"


@dataclass(frozen=True, eq=False)
class Peers:
    """The rows that the members of one ensemble draw theirs from, and when they start to teach each other.

    After every epoch from `start` on, the label weights of a member become the mean posterior of the other
    members on the candidates, each in evaluation mode and including those that do not train on the row.

    Attributes:
        train: all rows of the ensemble.
        start: share of the epochs after which the exchange starts.
        balanced: whether the classes keep the shares that they have if every candidate of a row counts
            equally. Without this, labels that accompany many others take over: each member learns from the
            others to prefer them.
    """

    train: PartialDataset
    start: float = 0.05
    balanced: bool = False


def exchange(stack: "Stack", epoch: int) -> None:
    """Replace the label weights of runs with peers, after `epoch` epochs."""
    for peers in distinct_peers(stack.runs):
        if epoch < peers.start * stack.recipe.epochs:
            continue
        positions = [i for i, run in enumerate(stack.runs) if run.peers is peers]
        runs = slice(positions[0], positions[-1] + 1)
        if len(positions) < 2:
            continue
        candidates = peers.train.candidates.expand(len(positions), -1, -1)
        posterior = restricted_softmax(stack.logits(peers.train.x, runs), candidates)
        others = (posterior.sum(0) - posterior) / (len(positions) - 1)
        if peers.balanced:
            others = balance_classes(others, uniform_weights(peers.train.candidates).mean(0))
        for weights, other, run in zip(_weights(stack, positions), others, stack.runs[runs], strict=True):
            weights.copy_(other if run.rows is None else other[run.rows])


def distinct_peers(runs: "Iterable[Run]") -> list[Peers]:
    """The ensembles among the runs whose members teach each other."""
    return list({id(run.peers): run.peers for run in runs if run.peers is not None}.values())


def _weights(stack: "Stack", positions: list[int]) -> list[Tensor]:
    """Label weights of some runs, as views of the stack's state."""
    found = []
    for section, state in zip(stack.sections, stack.states, strict=True):
        inside = [i - section.runs.start for i in positions if section.runs.start <= i < section.runs.stop]
        if inside and (WEIGHTS not in state.rows or not torch.is_floating_point(state.rows[WEIGHTS])):
            raise ValueError(
                f"targets: {section.objective.title} has no label weights, so its members cannot teach each "
                "other; expected a method such as proden for targets='peer'. Use targets='own'."
            )
        found += [state.rows[WEIGHTS][i] for i in inside]
    return found
