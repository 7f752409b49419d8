"""The written-out passes of dense networks equal autograd's."""

from functools import partial

import pytest
import torch
from torch.func import functional_call, vmap

from propall.data.dataset import PartialDataset
from propall.methods.cc import CC
from propall.methods.proden import PRODEN
from propall.methods.propall import ProPaLL
from propall.nets import NETS
from propall.nets.mlp import MLP
from propall.training.contract import Run
from propall.training.dense import Dense
from propall.training.recipe import Recipe
from propall.training.stack import Stack
from propall.training.trainer import Trainer

DENSE = [
    NETS["linear"],
    partial(NETS["mlp"], widths=(7,)),
    partial(NETS["mlp"], widths=(7, 5, 6)),
    NETS["mlp500"],
]
OTHERS = [NETS["mlp5"], partial(NETS["mlp"], widths=(7,), batch_norm=True), NETS["valen_mlp4"]]


def stacked(nets):
    return {
        name: torch.stack([dict(net.named_parameters())[name].detach() for net in nets])
        for name, _ in nets[0].named_parameters()
    }


@pytest.mark.parametrize("shape", [(4,), (1, 2, 2)])
@pytest.mark.parametrize("net", DENSE)
def test_one_network(net, shape):
    module = net(shape, 3).double()
    parameters = dict(module.named_parameters())
    x, incoming = torch.randn(8, *shape).double(), torch.randn(8, 3).double()
    dense = Dense.of(module, parameters)
    assert dense is not None
    logits = module(x)
    torch.testing.assert_close(dense.forward(x), logits)
    expected = torch.autograd.grad(logits, list(parameters.values()), incoming)
    gradients = dense.backward(incoming)
    assert gradients.keys() == parameters.keys()
    for name, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(gradients[name], gradient)


@pytest.mark.parametrize("net", DENSE)
def test_stacked_networks(net):
    modules = [net((4,), 3).double() for _ in range(3)]
    parameters = stacked(modules)
    x, incoming = torch.randn(3, 8, 4).double(), torch.randn(3, 8, 3).double()
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in parameters.items()}
    logits = vmap(lambda p, x: functional_call(modules[0], p, (x,)))(leaves, x)
    dense = Dense.of(modules[0], parameters)
    torch.testing.assert_close(dense.forward(x), logits)
    expected = torch.autograd.grad(logits, list(leaves.values()), incoming)
    for name, gradient in zip(leaves, expected, strict=True):
        torch.testing.assert_close(dense.backward(incoming)[name], gradient)


class Doubled(MLP):
    """Computes something else than its layers suggest."""

    def features(self, x):
        """Twice."""
        return 2 * super().features(x)


@pytest.mark.parametrize("net", [*OTHERS, Doubled])
def test_other_networks_use_autograd(net):
    module = net((4,), 3)
    assert Dense.of(module, dict(module.named_parameters())) is None


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("net", DENSE[:3])
def test_training_is_the_same_with_and_without(net, count, optimizer, monkeypatch):
    g = torch.Generator().manual_seed(0)
    candidates = torch.rand(50, 4, generator=g) < 0.4
    candidates[:, 0] = True
    train = PartialDataset(torch.randn(50, 6, generator=g).double(), candidates)
    objectives = (PRODEN(), ProPaLL(), CC())
    runs = [
        Run(train, seed, objective=objectives[seed], weight=torch.rand(50).double()) for seed in range(count)
    ]
    recipe = Recipe(epochs=3, batch_size=16, optimizer=optimizer, weight_decay=1e-3, learning_rate=0.05)
    assert Stack(runs, CC(), net, recipe).dense is not None
    dense = Trainer(CC(), net, recipe).fit(runs)
    monkeypatch.setattr(Dense, "of", lambda *_: None)
    for a, b in zip(dense, Trainer(CC(), net, recipe).fit(runs), strict=True):
        for name, weights in b.net.state_dict().items():
            torch.testing.assert_close(a.net.state_dict()[name], weights, rtol=1e-9, atol=1e-11)
        for name, rows in b.state.rows.items():
            torch.testing.assert_close(a.state.rows[name], rows, rtol=1e-9, atol=1e-11)


def test_half_precision_uses_autocast():
    train = PartialDataset(torch.randn(20, 6), torch.ones(20, 4, dtype=torch.bool))
    assert Stack([Run(train, 0)], CC(), NETS["linear"], Recipe(precision="bfloat16")).dense is None
