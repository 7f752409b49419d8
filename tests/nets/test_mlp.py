import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap

from propall.nets.mlp import MLP, MLP5, MLP500, VALENMLP4, Linear
from propall.nets.network import AlignedBatchNorm, AlignedLinear


def assert_uniform(weight, bound):
    """Check that values fill (-bound, bound) with variance bound^2 / 3."""
    assert weight.abs().max() <= bound
    assert weight.abs().max() > 0.98 * bound
    assert weight.var().item() == pytest.approx(bound**2 / 3, rel=0.1)


def test_mlp5_layers_and_initialization():
    torch.manual_seed(0)
    net = MLP5((1, 28, 28), 10)
    linears = [m for m in net.modules() if isinstance(m, torch.nn.Linear)]
    assert [m.out_features for m in linears] == [300, 301, 302, 303, 10]
    for layer in linears:
        assert_uniform(layer.weight, (6 / (layer.in_features + layer.out_features)) ** 0.5)
    assert all(m.bias is None for m in linears[:-1])
    assert (linears[-1].bias == 0).all()
    norms = [m for m in net.modules() if isinstance(m, torch.nn.BatchNorm1d)]
    assert [(m.num_features, m.momentum, m.eps) for m in norms] == [
        (w, 0.1, 1e-5) for w in (300, 301, 302, 303)
    ]
    assert all((m.weight == 1).all() and (m.bias == 0).all() for m in norms)


def test_mlp5_norms_between_linear_and_relu():
    torch.manual_seed(0)
    net = MLP5((20,), 3)
    assert [type(layer).__name__ for layer in net.hidden] == ["AlignedLinear", "AlignedBatchNorm", "ReLU"] * 4
    x = torch.randn(64, 20)
    normed = (net.embedding(x) - net.embedding(x).mean(0)) / (
        net.embedding(x).var(0, correction=0) + 1e-5
    ).sqrt()
    torch.testing.assert_close(net.features(x), normed.relu(), rtol=1e-4, atol=1e-5)


def test_linear_and_mlp500_initialization():
    torch.manual_seed(0)
    linear, mlp500 = Linear((108,), 16), MLP500((784,), 10)
    assert_uniform(linear.head.weight, (6 / (108 + 16)) ** 0.5)
    assert (linear.head.bias != 0).any()
    assert linear.head.bias.abs().max() <= 108**-0.5
    assert_uniform(mlp500.hidden[0].weight, 784**-0.5)
    assert_uniform(mlp500.hidden[0].bias, 784**-0.5)
    assert_uniform(mlp500.head.weight, 500**-0.5)


def test_valen_head_reads_the_third_layer_before_its_relu():
    torch.manual_seed(0)
    net = VALENMLP4((12,), 3)
    x = torch.randn(5, 12)
    first, _, second, _, third = net.hidden
    before = third(second(first(x).relu()).relu())
    assert (before < 0).any()
    torch.testing.assert_close(net(x), net.head(before))
    torch.testing.assert_close(net.embedding(x), before.relu())


def test_images_are_flattened():
    torch.manual_seed(0)
    net, x = MLP((2, 3, 4), 5, widths=(7, 6)), torch.randn(3, 2, 3, 4)
    assert torch.equal(net(x), net(x.flatten(1)))
    assert [m.out_features for m in net.modules() if isinstance(m, torch.nn.Linear)] == [7, 6, 5]


@pytest.mark.parametrize("widths", [(), (5, 0)])
def test_no_hidden_layer_is_refused(widths):
    with pytest.raises(ValueError, match=r"widths: got .*; expected one positive number per hidden layer"):
        MLP((3,), 2, widths=widths)


def test_unknown_initialization_is_refused():
    with pytest.raises(ValueError, match="init: got 'he'"):
        MLP((3,), 2, init="he")


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # raised inside torch's compiler
def test_stacked_training_step_compiles_in_one_graph():
    torch.manual_seed(0)
    copies = [MLP5((6,), 3).train() for _ in range(3)]
    params, buffers = stack_module_state(copies)
    params = {key: value.detach() for key, value in params.items()}
    x = torch.randn(3, 8, 6)

    def gradients(params, buffers, x):
        def loss(params, buffers, x):
            return functional_call(copies[0], (params, buffers), (x,)).square().mean()

        return vmap(grad(loss))(params, buffers, x)

    eager_buffers = {key: value.clone() for key, value in buffers.items()}
    compiled_buffers = {key: value.clone() for key, value in buffers.items()}
    expected = gradients(params, eager_buffers, x)
    got = torch.compile(gradients, fullgraph=True)(params, compiled_buffers, x)
    for key in expected:
        torch.testing.assert_close(got[key], expected[key], rtol=1e-4, atol=1e-6)
    for key in eager_buffers:
        torch.testing.assert_close(compiled_buffers[key], eager_buffers[key])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(5, 3), (301, 302), (8, 16), (7, 8)])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_transposed_form_is_the_same_linear_layer(
    sizes: tuple[int, int], dtype: torch.dtype, bias: bool, device: str
) -> None:
    layer = AlignedLinear(*sizes, bias=bias).to(device, dtype)
    x = torch.randn(6, sizes[0], dtype=dtype, device=device, requires_grad=True)
    outputs, expected = layer.transposed_forward(x), torch.nn.functional.linear(x, layer.weight, layer.bias)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(layer(x), expected)
    for a, b in zip(
        torch.autograd.grad(outputs.square().sum(), [x, *layer.parameters()]),
        torch.autograd.grad(expected.square().sum(), [x, *layer.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_transposed_outputs_are_contiguous_along_the_batch() -> None:
    assert AlignedLinear(301, 7).transposed_forward(torch.randn(6, 301)).stride() == (1, 6)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_transposed_form_is_the_same_batch_norm(device: str) -> None:
    ours, reference = (kind(7).to(device, torch.float64) for kind in (AlignedBatchNorm, torch.nn.BatchNorm1d))
    reference.load_state_dict(ours.state_dict())
    x = 3 * torch.randn(20, 7, dtype=torch.float64, device=device) + 5
    x.requires_grad_()
    for _ in range(3):
        outputs, expected = ours.transposed_forward(x), reference(x)
        torch.testing.assert_close(outputs, expected)
        gradients = torch.randn_like(outputs)
        for a, b in zip(
            torch.autograd.grad(outputs, [x, *ours.parameters()], gradients),
            torch.autograd.grad(expected, [x, *reference.parameters()], gradients),
            strict=True,
        ):
            torch.testing.assert_close(a, b)
        for name, buffer in reference.named_buffers():
            torch.testing.assert_close(ours.state_dict()[name], buffer)
    ours.eval()
    reference.eval()
    torch.testing.assert_close(ours.transposed_forward(x), reference(x))
    half = x.detach().to(torch.bfloat16)
    assert ours.float().train().transposed_forward(half).dtype == torch.bfloat16


def test_batch_norm_after_the_activation() -> None:
    net = MLP((4,), 3, widths=(5, 6), batch_norm="after")
    assert [type(layer).__name__ for layer in net.hidden] == ["AlignedLinear", "ReLU", "AlignedBatchNorm"] * 2
    assert net.dense_layers() is None
    with pytest.raises(ValueError, match="batch_norm: got 'before'"):
        MLP((4,), 3, batch_norm="before")
