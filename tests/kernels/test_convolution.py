"""Convolutions with few channels against PyTorch's in float64, and under PyTorch's transforms.

On the CPU the operators call PyTorch's convolution; the tests marked `gpu` run the kernels. Without a GPU,
`TRITON_INTERPRET=1 pytest tests/kernels -k interpreter` runs them in Triton's interpreter.
"""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from propall.data.dataset import PartialDataset
from propall.kernels import convolution
from propall.kernels.convolution import FORWARD, INPUT, WEIGHT, convolution_3x3
from propall.methods.cc import CC
from propall.nets import network
from propall.nets.network import SmallConvolution
from propall.nets.network import convolution as layer
from propall.nets.resnet import ResNet32
from propall.training.contract import Run
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer

on_every_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
#: Images, channels in and out, height, width: powers of two, odd, narrow, a single pixel.
SHAPES = [(2, 16, 16, 8, 8), (3, 16, 16, 5, 7), (1, 16, 16, 1, 1), (5, 16, 16, 1, 3), (1, 16, 16, 9, 1)]
CHANNELS = [(2, 32, 32, 4, 3), (1, 64, 64, 3, 2), (1, 16, 32, 3, 5), (1, 32, 16, 4, 4)]
LARGE = [(256, 16, 16, 32, 32), (256, 32, 32, 16, 16), (256, 64, 64, 8, 8), (37, 16, 16, 29, 31)]


def make(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> tuple[Tensor, Tensor, Tensor]:
    """Images, weights and what comes back for the result."""
    n, c_in, c_out, h, w = shape
    x = torch.randn(n, c_in, h, w, device=device).to(dtype, memory_format=torch.channels_last)
    incoming = torch.randn(n, c_out, h, w, device=device).to(dtype, memory_format=torch.channels_last)
    return x, (torch.randn(c_out, c_in, 3, 3, device=device) / (3 * c_in**0.5)).to(dtype), incoming


def passes(function: Any, x: Tensor, weight: Tensor, incoming: Tensor) -> tuple[Tensor, ...]:
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    y = function(x, weight)
    return y.detach(), *torch.autograd.grad(y, (x, weight), incoming)


def ours(x: Tensor, weight: Tensor) -> Tensor:
    return convolution_3x3(x, weight, x.dtype)


def exact(x: Tensor, weight: Tensor) -> Tensor:
    return conv2d(x, weight, padding=1)


def compare(x: Tensor, weight: Tensor, incoming: Tensor) -> None:
    """All three passes; an error is measured against what rounding the largest result costs."""
    expected = passes(exact, x.double(), weight.double(), incoming.double())
    for actual, reference in zip(passes(ours, x, weight, incoming), expected, strict=True):
        assert actual.dtype == x.dtype
        # Half the last place of a half-precision result, and the rounding of sums in float32.
        half = torch.finfo(x.dtype).eps / 2 if x.dtype != torch.float32 else 0.0
        scale = float(reference.abs().max())
        torch.testing.assert_close(actual.double(), reference, rtol=1.01 * half, atol=2e-5 * scale)


def use_kernels(monkeypatch: pytest.MonkeyPatch, *channels: tuple[int, int]) -> None:
    monkeypatch.setattr(convolution, "FASTER", dict.fromkeys(channels, (FORWARD, INPUT, WEIGHT)))


# Values


@on_every_device
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [*SHAPES, *CHANNELS], ids=str)
def test_agrees_with_a_convolution_in_float64(
    shape: tuple[int, ...], dtype: torch.dtype, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernels(monkeypatch, (shape[1], shape[2]))
    x, weight, incoming = make(shape, dtype, device)
    if device == "cpu":
        x, weight, incoming = x.float(), weight.float(), incoming.float()
    compare(x, weight, incoming)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_agrees_for_whole_batches(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernels(monkeypatch, (shape[1], shape[2]))
    compare(*make(shape, torch.bfloat16, "cuda"))


@pytest.mark.gpu
def test_the_gradient_in_the_weights_has_the_same_bits_every_time() -> None:
    x, _, incoming = make((256, 16, 16, 32, 32), torch.bfloat16, "cuda")
    gradients = [torch.ops.propall.convolution_weight_gradient(x, incoming) for _ in range(5)]
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)


@on_every_device
def test_any_order_in_memory_and_no_images(device: str) -> None:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x, weight, incoming = make((3, 16, 16, 6, 5), dtype, device)
    expected = passes(ours, x, weight, incoming)
    assert expected[0].is_contiguous(memory_format=torch.channels_last)
    others = (x.contiguous(), weight.to(memory_format=torch.channels_last), incoming.contiguous())
    for actual, reference in zip(passes(ours, *others), expected, strict=True):
        torch.testing.assert_close(actual, reference)
    y, of_x, of_weight = passes(ours, x[:0], weight, incoming[:0])
    assert y.shape == of_x.shape == (0, 16, 6, 5)
    assert not of_weight.any()


def test_derivatives_of_second_order() -> None:
    """Which operator is whose derivative, in float64."""
    x, weight, _ = make((2, 16, 16, 2, 2), torch.float64)
    scale = torch.rand(16, dtype=torch.float64, requires_grad=True)

    def sums(x: Tensor, scale: Tensor) -> Tensor:
        return ours(x, weight * scale[:, None, None, None]).square().sum((0, 2, 3))

    assert torch.autograd.gradcheck(sums, (x.requires_grad_(), scale))
    assert torch.autograd.gradgradcheck(sums, (x, scale))


# What PyTorch does to an operator


@on_every_device
@pytest.mark.parametrize("shape", [(2, 16, 16, 4, 5), (1, 16, 16, 1, 1), (1, 16, 32, 3, 3)], ids=str)
def test_opcheck(shape: tuple[int, ...], device: str) -> None:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x, weight, incoming = (t.requires_grad_() for t in make(shape, dtype, device))
    torch.library.opcheck(torch.ops.propall.convolution.default, (x, weight))
    torch.library.opcheck(torch.ops.propall.convolution_input_gradient.default, (incoming, weight))
    torch.library.opcheck(torch.ops.propall.convolution_weight_gradient.default, (x, incoming))


@on_every_device
def test_torch_func_gives_the_same(device: str) -> None:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x, weight, incoming = make((2, 16, 16, 4, 5), dtype, device)

    def total(x: Tensor, weight: Tensor) -> Tensor:
        return (ours(x, weight) * incoming).sum()

    _, *expected = passes(ours, x, weight, incoming)
    torch.testing.assert_close(torch.func.grad(total, (0, 1))(x, weight), tuple(expected))


@on_every_device
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)], ids=str)
def test_vmap_is_one_after_the_other(axes: tuple[int | None, int | None], device: str) -> None:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x, weight, incoming = make((2, 16, 16, 4, 5), dtype, device)
    xs = torch.stack([x, 2 * x, -x]) if axes[0] == 0 else x
    weights = torch.stack([weight, weight.flip(2), 3 * weight]) if axes[1] == 0 else weight

    def total(x: Tensor, weight: Tensor) -> Tensor:
        return (ours(x, weight) * incoming).sum()

    stacked = torch.vmap(torch.func.grad(total, (0, 1)), axes)(xs, weights)
    for i in range(3):
        inputs = xs[i] if axes[0] == 0 else x, weights[i] if axes[1] == 0 else weight
        _, *expected = passes(ours, *inputs, incoming)
        torch.testing.assert_close(tuple(part[i] for part in stacked), tuple(expected))


@pytest.mark.compiled
@on_every_device
@pytest.mark.parametrize("functional", [False, True], ids=["autograd", "torch.func"])
def test_compiles_in_one_graph(functional: bool, device: str) -> None:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x, weight, incoming = make((2, 16, 16, 4, 5), dtype, device)

    def total(x: Tensor, weight: Tensor) -> Tensor:
        return (ours(ours(x * 2, weight).relu(), weight).float() * incoming).sum()

    def gradients(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        if functional:
            return torch.func.grad(total, (0, 1))(x, weight)
        x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
        value = compiled(x, weight)
        return torch.autograd.grad(value, (x, weight))

    backend = "inductor" if device == "cuda" else "aot_eager"
    compiled = torch.compile(total, fullgraph=True, dynamic=False, backend=backend)
    whole = gradients
    if functional:
        whole = torch.compile(gradients, fullgraph=True, dynamic=False, backend=backend)
    expected = torch.func.grad(total, (0, 1))(x, weight)
    tolerance = {"rtol": 2e-2, "atol": 2e-1} if device == "cuda" else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(whole(x, weight), expected, **tolerance)


@pytest.mark.gpu
def test_replays_from_a_graph() -> None:
    x, weight, incoming = make((8, 16, 16, 12, 12), torch.bfloat16, "cuda")
    passes(ours, x, weight, incoming)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = passes(ours, x, weight, incoming)
    for tensor in (x, weight, incoming):
        tensor.copy_(torch.randn_like(tensor))
    graph.replay()
    torch.testing.assert_close(captured, passes(ours, x, weight, incoming), rtol=0, atol=0)


# The layer


@pytest.mark.parametrize(
    ("size", "stride", "small"), [(3, 1, True), (3, 2, False), (1, 1, False), (5, 1, False)]
)
def test_layers_of_the_right_shape_are_small_convolutions(size: int, stride: int, small: bool) -> None:
    conv = layer(16, 16, size, stride=stride)
    assert isinstance(conv, SmallConvolution) is small
    assert list(conv.state_dict()) == ["weight"]


def test_the_cpu_convolves_as_ever() -> None:
    conv, x = layer(16, 16, 3), torch.randn(2, 16, 5, 5)
    for half in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            assert torch.equal(conv(x), conv2d(x, conv.weight, padding=1))
    assert torch.equal(conv.bfloat16()(x.bfloat16()), conv2d(x.bfloat16(), conv.weight, padding=1))


def test_what_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "HAS_TRITON", True)

    def on_gpu(*shape: int) -> Any:
        class OnGpu(torch.Tensor):
            is_cuda = True

        return torch.empty(shape).as_subclass(OnGpu)

    x, weight = on_gpu(2, 16, 4, 4), on_gpu(16, 16, 3, 3)
    assert convolution.is_faster(x, weight, torch.bfloat16)
    assert not convolution.is_faster(x, weight, torch.float32)
    assert not convolution.is_faster(x, on_gpu(48, 16, 3, 3), torch.bfloat16)
    assert not convolution.is_faster(on_gpu(16, 4, 4), weight, torch.bfloat16)
    assert not convolution.is_faster(torch.empty(2, 16, 4, 4), weight, torch.bfloat16)


@pytest.mark.parametrize("fast", [False, pytest.param(True, marks=pytest.mark.compiled)])
@pytest.mark.parametrize("count", [1, 2], ids=["one run", "two runs"])
def test_training_goes_through_the_operators(count: int, fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain and compiled, alone and stacked: the same runs as with PyTorch's convolution."""

    def net(in_shape: tuple[int, ...], classes: int) -> nn.Module:
        maps = [layer(in_shape[0], 16, 3), nn.BatchNorm2d(16), nn.ReLU(), layer(16, 16, 3)]
        return nn.Sequential(*maps, nn.Flatten(), nn.Linear(16 * 5 * 4, classes))

    candidates = torch.rand(12, 3) < 0.4
    candidates[:, 0] = True
    train = PartialDataset(torch.randn(12, 2, 5, 4, dtype=torch.float64), candidates)
    runs = [Run(train, seed) for seed in range(count)]
    recipe = Recipe(epochs=2, batch_size=6, learning_rate=0.1)
    expected = Trainer(CC(), net, recipe, fast=False).fit(runs)
    calls: list[str] = []
    monkeypatch.setattr(convolution, "runs_kernel", lambda x, channels, which: bool(calls.append(which)))
    monkeypatch.setattr(network, "is_faster", lambda *_: True)
    monkeypatch.setattr(SmallConvolution, "_gpu_dtype", lambda self, x: x.dtype)
    trained = Trainer(CC(), net, recipe, fast=fast).fit(runs)
    assert set(calls) == {FORWARD, INPUT, WEIGHT}
    for a, b in zip(trained, expected, strict=True):
        torch.testing.assert_close(dict(a.net.state_dict()), dict(b.net.state_dict()), rtol=1e-8, atol=1e-10)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_decides_on_the_type(dtype: torch.dtype) -> None:
    conv = layer(16, 16, 3).cuda()
    x = torch.randn(4, 16, 9, 9, device="cuda")
    reference = conv2d(x, conv.weight, padding=1)
    with torch.autocast("cuda", dtype):
        y = conv(x)
    assert y.dtype == dtype
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y.float(), reference, rtol=0, atol=0.06)
    y.float().square().sum().backward()
    assert conv.weight.grad is not None
    assert conv.weight.grad.dtype == torch.float32
    with pytest.raises(RuntimeError):
        conv(x.to(dtype))


@pytest.mark.gpu
def test_resnet_learns_the_same_with_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against float32, the kernels' gradients are no farther off than cuDNN's in half precision."""
    net = ResNet32((3, 32, 32), 10).cuda()
    x = torch.randn(64, 3, 32, 32, device="cuda").contiguous(memory_format=torch.channels_last)

    def gradients(half: bool) -> list[Tensor]:
        copied = copy.deepcopy(net)
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            loss = copied(x).float().logsumexp(-1).mean()
        loss.backward()
        return [loss.detach(), *(p.grad for p in copied.parameters() if p.grad is not None)]

    launched = []
    runs_kernel = convolution.runs_kernel
    monkeypatch.setattr(
        convolution, "runs_kernel", lambda *which: launched.append(runs_kernel(*which)) or launched[-1]
    )
    exact = gradients(False)
    assert not launched
    with_kernels = gradients(True)
    # Three passes of ten layers with 16 channels, and of nine each with 32 and 64.
    assert sum(launched) == 3 * 28
    monkeypatch.setattr(network, "is_faster", lambda *_: False)
    without = gradients(True)
    assert len(launched) == 3 * 28

    def distance(gradients: list[Tensor]) -> float:
        squares = [(a - b).square().sum() / b.square().sum() for a, b in zip(gradients, exact, strict=True)]
        return float(torch.stack(squares).mean().sqrt())

    assert distance(with_kernels) < 1.5 * distance(without)


# The kernels without a GPU


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("wide", [True, False], ids=["three_taps", "one_tap"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [*SHAPES, *CHANNELS], ids=str)
def test_interpreter(
    shape: tuple[int, ...], dtype: torch.dtype, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels themselves on the CPU: several tiles, strips of unequal length, all borders.

    Not in bfloat16, whose bits the interpreter multiplies as if they were integers.
    """
    from propall.kernels import convolution_code as code

    launch = code.WeightGradientLaunch(block=16, warps=4, stages=1, wide=wide, programs=3)
    monkeypatch.setattr(code, "WEIGHT_LAUNCHES", dict.fromkeys((16, 32, 64), launch))
    monkeypatch.setattr(code, "CONVOLUTION_LAUNCHES", dict.fromkeys((16, 32, 64), (16, 4)))
    monkeypatch.setattr(code, "DEPTH", 2)
    monkeypatch.setattr(code, "COLUMNS", 1024)
    monkeypatch.setattr(convolution, "runs_kernel", lambda x, channels, which: True)
    compare(*make(shape, dtype))
