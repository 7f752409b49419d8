"""Networks before and after training: seeded initialization, and the classifier a run returns."""

import contextlib
import copy
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from propall import counter_rng
from propall.training.contract import Classifier, NetFactory, Objective, Run, State


@runtime_checkable
class InitializedFromData(Protocol):
    """A network that sets some of its weights from the training data."""

    def initialize_from(self, x: Tensor) -> None:
        """Set the weights that depend on the training inputs."""


@runtime_checkable
class NetAround(Protocol):
    """A factory of networks around a given one."""

    @property
    def inner(self) -> NetFactory | nn.Module:
        """The given network."""


#: Maximum number of rows scored at once.
SCORING_CHUNK = 4096

_generator_lock = threading.RLock()


@contextlib.contextmanager
def seeded_generator(seed: int) -> Iterator[None]:
    """Seed torch's default CPU generator inside the block and restore its state afterwards.

    Initializers in a network's constructor draw from the generator of the process, so the blocks of several
    threads run one after the other.
    """
    with _generator_lock, torch.random.fork_rng(devices=[]):
        # `torch.manual_seed` would also seed, and wait for, every CUDA device.
        torch.default_generator.manual_seed(seed)
        yield


def build(net: NetFactory | nn.Module, run: Run) -> nn.Module:
    """The network a run starts from: a copy of the module, or a new network drawn from the run's seed."""
    x = run.train.x
    if isinstance(net, nn.Module):
        return copy.deepcopy(net).to(x.device, x.dtype)
    with seeded_generator(counter_rng.seed_for(run.seed, "initialisation")):
        built = net(run.train.in_shape, run.train.n_classes).to(x.device, x.dtype)
    if isinstance(built, InitializedFromData):
        built.initialize_from(x)
    return built


def starting_weights(net: NetFactory | nn.Module) -> list[Tensor]:
    """Weights of a module that runs start from; none for a factory, whose networks follow from the seeds."""
    around: object = net
    if isinstance(around, NetAround):
        return starting_weights(around.inner)
    return list(net.state_dict().values()) if isinstance(net, nn.Module) else []


@dataclass
class NetClassifier(Classifier):
    """A trained network in evaluation mode, with the final state of its objective.

    Attributes:
        net: the network.
        objective: decodes the network's outputs into scores.
        state: the objective's state after the last step; `rows` follow the order of the training set.
    """

    name: ClassVar[str] = "net"
    net: nn.Module
    objective: Objective
    state: State = field(default_factory=State)

    @torch.no_grad()
    def logits(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Outputs of the network, computed in chunks on its device."""
        self.net.eval()
        reference = next(self.net.parameters())
        return torch.cat([self.net(chunk.to(reference)) for chunk in x.split(SCORING_CHUNK)])

    def scores(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Outputs as decoded by the objective."""
        return self.objective.scores(self.logits(x), self.state)
