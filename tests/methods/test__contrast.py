"""The contrastive loss, the projection head, and the network that follows by a moving average."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from propall.methods._contrast import MomentumNetwork, MomentumOf, ProjectedOf, contrastive_losses
from propall.nets import MLP, FastConvNet


def units(n: int, d: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(n, d, generator=g, dtype=torch.float64), dim=-1)


def test_the_contrastive_loss_by_hand() -> None:
    f, tau = units(4, 3), 0.2
    weights = torch.rand(4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    others = ~torch.eye(4, dtype=torch.bool)
    losses = contrastive_losses(f, f, weights * others, others, tau)
    for i in range(4):
        rest = [j for j in range(4) if j != i]
        total = math.log(sum(math.exp(float(f[i] @ f[j]) / tau) for j in rest))
        expected = -sum(float(weights[i, j]) * (float(f[i] @ f[j]) / tau - total) for j in rest)
        assert losses[i].item() == pytest.approx(expected)


def test_a_projection_gives_logits_and_unit_vectors_of_each_view() -> None:
    torch.manual_seed(0)
    net = ProjectedOf(MLP, 7, views=2)((5,), 3)
    x = torch.randn(8, 5)
    outputs = net.train()(x)
    assert outputs.shape == (4, 2 * (3 + 7))
    torch.testing.assert_close(outputs[:, :3], net.classifier(x[:4]))
    torch.testing.assert_close(outputs[:, 10:13], net.classifier(x[4:]))
    torch.testing.assert_close(outputs[:, 13:].norm(dim=-1), torch.ones(4))
    assert torch.equal(net.eval()(x), net.classifier(x))


class Normalized(nn.Module):
    """A network with batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6))
        self.head = nn.Linear(6, 3)


def test_separate_passes_normalize_each_view_by_itself() -> None:
    net = Normalized()
    x = torch.randn(8, 5) + torch.tensor([0.0] * 4 + [5.0] * 4)[:, None]
    joint = ProjectedOf(net, 2, passes="joint")((5,), 3).train()
    separate = ProjectedOf(net, 2, passes="separate")((5,), 3).train()
    separate.load_state_dict(joint.state_dict())
    first_alone = separate.both_heads(x[:4])
    torch.testing.assert_close(separate(x)[:, :5], first_alone)
    assert not torch.allclose(joint(x)[:, :5], first_alone)


def test_a_network_without_a_head_is_refused() -> None:
    with pytest.raises(ValueError, match=r"net: Sequential lacks features\(x\) or a linear layer"):
        ProjectedOf(nn.Sequential(nn.Linear(4, 3)))((4,), 3)


def test_keys_come_from_a_moving_average_that_moves_before_it_is_used() -> None:
    torch.manual_seed(0)
    net = MomentumOf(MLP, 4, momentum=0.9)((5,), 3).train()
    x = torch.randn(6, 5)
    before = {name: tensor.clone() for name, tensor in net.key.named_buffers()}
    assert not list(net.key.parameters())
    with torch.no_grad():
        for parameter in net.query.parameters():
            parameter.add_(1.0)
    outputs = net(x)
    for name, parameter in net.query.named_parameters():
        expected = 0.9 * before[name] + 0.1 * parameter.detach()
        torch.testing.assert_close(net.key.get_buffer(name), expected)
    torch.testing.assert_close(outputs[:, :7], net.query.both_heads(x[:3]))
    torch.testing.assert_close(outputs[:, 7:], net.key.both_heads(x[3:])[:, 3:])
    parameters = list(net.query.parameters())
    gradients = torch.autograd.grad(outputs[:, 7:].sum(), parameters, allow_unused=True)
    assert not any(gradient is not None and gradient.any() for gradient in gradients)


def test_weights_set_from_the_data_reach_the_key() -> None:
    net = MomentumOf(FastConvNet)((3, 32, 32), 4)
    assert isinstance(net, MomentumNetwork)
    net.initialize_from(torch.randn(20, 3, 32, 32))
    whitening = net.query.classifier.whitening.weight  # type: ignore[union-attr]
    assert torch.equal(net.key.get_buffer("classifier.whitening.weight"), whitening)  # type: ignore[arg-type]


def test_a_trained_module_is_not_initialized_again() -> None:
    module = FastConvNet((3, 32, 32), 4)
    before = module.whitening.weight.clone()
    net = ProjectedOf(module)((3, 32, 32), 4)
    net.initialize_from(torch.randn(20, 3, 32, 32))
    assert torch.equal(net.classifier.whitening.weight, before)  # type: ignore[union-attr, arg-type]
