import pytest
import torch

from propall.nets.fast_convnet import FastConvNet, identity_convolution


def test_whitened_patches_are_uncorrelated():
    net = FastConvNet((3, 20, 20), 5, widths=(8, 8, 8))
    x = torch.randn(200, 3, 20, 20).cumsum(-1)
    net.initialize_from(x)
    outputs = net.whitening(x)[:, :12].transpose(0, 1).flatten(1)
    covariance = outputs @ outputs.mT / outputs.shape[1]
    torch.testing.assert_close(covariance, torch.eye(12), atol=0.05, rtol=0)
    torch.testing.assert_close(net.whitening.weight[:12], -net.whitening.weight[12:])


def test_fixed_parts_need_no_gradient():
    net = FastConvNet((1, 28, 28), 10)
    fixed = {name for name, parameter in net.named_parameters() if not parameter.requires_grad}
    assert "whitening.weight" in fixed
    assert {name for name in fixed if "norms" in name} == {
        f"groups.{g}.norms.{i}.weight" for g in range(3) for i in range(3)
    }
    assert net(torch.randn(2, 1, 28, 28)).shape == (2, 10)


def test_convolutions_start_as_the_identity():
    conv, x = identity_convolution(3, 5), torch.randn(2, 3, 6, 6)
    torch.testing.assert_close(conv(x)[:, :3], x)


def test_size_on_cifar():
    net = FastConvNet((3, 32, 32), 10)
    assert 9.5e6 < sum(p.numel() for p in net.parameters()) < 10.5e6


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore")
def test_gradients_of_the_pooled_features_survive_the_compiler():
    """A compiled step does not round what it recomputes, so maxima must be found by position."""
    net = FastConvNet((3, 17, 17), 4, widths=(4, 4, 4))
    maps = torch.randn(8, 4, 3, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def features(x):
        return net.pool(torch.nn.functional.gelu(2 * x.bfloat16())).float().square().sum()

    (expected,) = torch.autograd.grad(features(maps), maps)
    (gradient,) = torch.autograd.grad(torch.compile(features, fullgraph=True)(maps), maps)
    torch.testing.assert_close(gradient, expected, rtol=0.02, atol=1e-3)
