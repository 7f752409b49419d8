"""Both implementations of a step agree with torch.optim."""

import pytest
import torch

from propall.training import optim
from propall.training.recipe import Recipe

SHAPES = {"weight": (4, 3), "bias": (4,), "factor": ()}
KINDS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


@pytest.mark.parametrize("optimizer", KINDS)
@pytest.mark.parametrize("rates", [(0.1, 0.1), (0.1, 0.03), (0.2,)])
@pytest.mark.parametrize("decays", [None, (0.01, 0.01), (0.01, 0.5)])
def test_every_run_agrees_with_torch(optimizer, rates, decays):
    """Equal rates take the fused kernels, different ones the stacked formula."""
    runs, options = len(rates), {"momentum": 0.9} if optimizer == "sgd" else {}
    g = torch.Generator().manual_seed(0)
    stacked = {k: torch.randn(runs, *shape, generator=g, dtype=torch.float64) for k, shape in SHAPES.items()}
    reference = [{k: v[r].clone().requires_grad_() for k, v in stacked.items()} for r in range(runs)]
    optimizers = [
        KINDS[optimizer](run.values(), lr=rate, weight_decay=0.0 if decays is None else decays[r], **options)
        for r, (run, rate) in enumerate(zip(reference, rates, strict=True))
    ]
    recipe = Recipe(optimizer=optimizer)
    moments = optim.start(recipe, stacked)
    for step in range(5):
        gradients = {k: torch.randn(v.shape, generator=g, dtype=v.dtype) for k, v in stacked.items()}
        # The gradient of a weight may be transposed in memory.
        gradients["weight"] = torch.randn(runs, 3, 4, generator=g, dtype=torch.float64).mT
        for r, run in enumerate(reference):
            for name, parameter in run.items():
                parameter.grad = gradients[name][r].clone()
            optimizers[r].step()
        optim.advance(
            recipe,
            stacked,
            gradients,
            moments,
            rate=torch.tensor(rates, dtype=torch.float64),
            weight_decay=None if decays is None else torch.tensor(decays[:runs], dtype=torch.float64),
            steps=torch.tensor(step),
        )
    for r, run in enumerate(reference):
        for name, parameter in run.items():
            torch.testing.assert_close(stacked[name][r], parameter.detach(), rtol=1e-12, atol=1e-14)


def test_one_run_with_or_without_its_axis():
    recipe = Recipe(optimizer="adam")
    options = {"rate": torch.tensor([0.1]), "weight_decay": torch.tensor([0.01]), "steps": torch.tensor(0)}
    stacked = {k: torch.ones(1, *shape) for k, shape in SHAPES.items()}
    alone = {k: torch.ones(shape) for k, shape in SHAPES.items()}
    for tensors in (stacked, alone):
        gradients = {k: torch.full_like(v, 0.5) for k, v in tensors.items()}
        optim.advance(recipe, tensors, gradients, optim.start(recipe, tensors), **options)
    for name, tensor in alone.items():
        assert torch.equal(stacked[name][0], tensor)
        assert (tensor < 1).all()


def test_without_parameters_nothing_happens():
    recipe = Recipe()
    optim.advance(
        recipe, {}, {}, optim.start(recipe, {}), rate=torch.ones(1), weight_decay=None, steps=torch.tensor(0)
    )
