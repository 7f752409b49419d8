"""Properties of every registered network."""

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

from propall.nets import NETS
from propall.nets.network import ImageNetwork

# Input shapes small enough for a test at which every layer still sees more than one value.
SHAPES = {
    "linear": (6,),
    "mlp": (6,),
    "mlp5": (6,),
    "mlp500": (6,),
    "valen_mlp4": (6,),
    "resnet32": (3, 8, 8),
    "resnet18": (3, 16, 16),
    "wrn28_10": (3, 8, 8),
    "fast_convnet": (3, 20, 20),
    "densenet_bc100": (3, 8, 8),
    "densenet161": (3, 32, 32),
    "small_cnn": (2, 5, 7),
}
QUICK = [name for name in NETS if name not in ("densenet161", "wrn28_10")]
IMAGE = [name for name, net in NETS.items() if issubclass(net, ImageNetwork)]


def build(name, seed=0, n_classes=4):
    torch.manual_seed(seed)
    return NETS[name](SHAPES[name], n_classes)


def inputs(name, n=8, seed=5):
    return torch.randn(n, *SHAPES[name], generator=torch.Generator().manual_seed(seed))


def test_every_network_is_tested():
    assert set(SHAPES) == set(NETS)


@pytest.mark.parametrize(
    ("name", "in_shape", "expected"),
    [
        ("linear", (784,), 784 * 10 + 10),
        ("mlp", (784,), 784 * 256 + 256 + 256 * 10 + 10),
        (
            "mlp5",
            (784,),
            784 * 300 + 300 * 301 + 301 * 302 + 302 * 303 + 2 * (300 + 301 + 302 + 303) + 303 * 10 + 10,
        ),
        ("mlp500", (1, 28, 28), 397_510),
        ("valen_mlp4", (1, 28, 28), 3 * (784 * 784 + 784) + 784 * 10 + 10),
        # 464_154 with plain shortcuts; two projections add 16*32 + 32*64 weights and 2*(32 + 64) for norms.
        ("resnet32", (3, 32, 32), 464_154 + 512 + 2048 + 192),
        ("resnet18", (3, 32, 32), 11_173_962),
        ("wrn28_10", (3, 32, 32), 36_479_194),
        ("densenet_bc100", (3, 32, 32), 769_162),
        # The published 28_681_000 for 1000 classes, minus the difference of a head for ten.
        ("densenet161", (3, 32, 32), 28_681_000 - 990 * (2208 + 1)),
    ],
)
def test_parameter_counts(name, in_shape, expected):
    with torch.device("meta"):
        net = NETS[name](in_shape, 10)
    assert sum(p.numel() for p in net.parameters()) == expected


@pytest.mark.parametrize("name", NETS)
def test_scores_are_the_head_of_the_features(name):
    net, x = build(name).eval(), inputs(name, n=2)
    with torch.no_grad():
        z = net.features(x)
        assert z.shape == (2, net.head.in_features)
        assert net.embedding(x).shape[0] == 2
        logits = net(x)
        assert logits.shape == (2, 4)
        assert torch.equal(logits, net.head(z))
        assert torch.equal(logits, net(x))
        # Evaluation mode: a row does not depend on the others.
        torch.testing.assert_close(net(x[:1]), logits[:1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", QUICK)
def test_weights_come_from_the_global_generator(name):
    first, again, other = build(name, 1), build(name, 1), build(name, 2)
    for key, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[key])
    assert not torch.equal(first.head.weight, other.head.weight)


@pytest.mark.parametrize("name", QUICK)
def test_stacked_copies_train_as_single_ones(name):
    copies = [build(name, seed).double().train() for seed in range(3)]
    params, buffers = stack_module_state(copies)
    x = torch.stack([inputs(name, seed=s) for s in range(3)]).double()

    def loss(params, buffers, x):
        return functional_call(copies[0], (params, buffers), (x,)).square().mean()

    buffers = {key: value.clone() for key, value in buffers.items()}
    grads = vmap(torch.func.grad(loss))(params, buffers, x)

    for run, net in enumerate(build(name, seed).double().train() for seed in range(3)):
        net(x[run]).square().mean().backward()
        trained = {key: p for key, p in net.named_parameters() if p.requires_grad}
        for key, parameter in trained.items():
            torch.testing.assert_close(grads[key][run], parameter.grad, rtol=1e-7, atol=1e-9)
        for key, buffer in net.named_buffers():
            torch.testing.assert_close(buffers[key][run], buffer)
            if key.endswith("num_batches_tracked"):
                assert buffer == 1


@pytest.mark.parametrize("name", [name for name in IMAGE if name in QUICK])
def test_channels_last_changes_nothing(name):
    net, x = build(name).double().train(), inputs(name).double()
    expected = net(x)
    channels_last = build(name).double().train().to(memory_format=torch.channels_last)
    torch.testing.assert_close(channels_last(x.to(memory_format=torch.channels_last)), expected)


@pytest.mark.parametrize("name", IMAGE)
def test_image_networks_refuse_vectors(name):
    with pytest.raises(ValueError, match=f"in_shape: \\(12,\\) is not an image; {name} expects"):
        NETS[name]((12,), 3)


def test_image_networks_refuse_vectors_at_run_time_too():
    with pytest.raises(ValueError, match=r"x: shape \(8, 70\) is not a batch of images; small_cnn"):
        build("small_cnn")(inputs("small_cnn").flatten(1))


@pytest.mark.parametrize(("name", "pixels"), [("densenet_bc100", 4), ("densenet161", 29)])
def test_smallest_images(name, pixels):
    with torch.device("meta"):
        net = NETS[name]((1, pixels, pixels), 3)
        assert net.feature_maps(torch.zeros(2, 1, pixels, pixels)).shape[-2:] == (1, 1)
        with pytest.raises(ValueError, match=f"{name} needs at least {pixels} x {pixels} pixels"):
            NETS[name]((1, pixels, pixels - 1), 3)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("resnet32", "fan_out"),
        ("densenet_bc100", "fan_out"),
        ("densenet161", "fan_in"),
        ("small_cnn", "fan_out"),
    ],
)
def test_convolutions_are_drawn_with_hes_variance(name, mode):
    torch.manual_seed(0)
    for conv in (m for m in NETS[name]((3, 32, 32), 10).modules() if isinstance(m, torch.nn.Conv2d)):
        assert conv.bias is None
        size = conv.kernel_size[0] ** 2 * (conv.out_channels if mode == "fan_out" else conv.in_channels)
        # Four standard errors of a sample variance.
        assert conv.weight.var().item() == pytest.approx(2 / size, rel=4 * (2 / conv.weight.numel()) ** 0.5)
