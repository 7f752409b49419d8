"""The fused losses against the plain formulas in float64, and under PyTorch's transforms.

On the CPU the operators run their closed forms; the tests marked `gpu` run the kernels. Without a GPU,
`TRITON_INTERPRET=1 pytest tests/kernels -k interpreter` runs the kernels in Triton's interpreter.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor

from propall import kernels
from propall.kernels import fused_cc, fused_propall
from propall.kernels.operators import candidate_loss, candidate_loss_with_gradient
from propall.methods.cc import cc_loss
from propall.methods.propall import propall_loss
from tests.golden.comparison import COPIES, DEEP_32, as_array, read_file

LOSSES = {"propall": (fused_propall, propall_loss), "cc": (fused_cc, cc_loss)}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
#: Classes: one, two, odd, a power of two and its neighbors; rows in one tile and in several.
SMALL = (1, 2, 3, 10, 64, 100)
LARGE = (1000, 1024, 4097, 10_000)

#: Between two kernels of the same formula.
ROUNDING = {"rtol": 1e-5, "atol": 1e-7}

on_every_device = pytest.mark.parametrize("device", DEVICES)
for_every_loss = pytest.mark.parametrize("loss", LOSSES)


def fused(loss: str, logits: Tensor, candidates: Tensor, **options: Any) -> Tensor:
    return LOSSES[loss][0](logits, candidates, **options)


def plain(loss: str, logits: Tensor, candidates: Tensor) -> Tensor:
    return LOSSES[loss][1](logits, candidates)


def make_candidates(n: int, k: int, share: float, device: str) -> Tensor:
    candidates = torch.rand(n, k, device=device) < share
    return candidates.scatter(1, torch.randint(k, (n, 1), device=device), True)


def compare(
    loss: str,
    logits: Tensor,
    candidates: Tensor,
    weight: Tensor | None = None,
    gradient_tolerance: float = 3e-6,
) -> None:
    """Compare losses and gradients of the mean (or weighted sum) with float64, relative to the factors."""
    factor = torch.full((len(logits),), 1 / len(logits), device=logits.device) if weight is None else weight
    ours, exact = logits.detach().clone().requires_grad_(), logits.detach().double().requires_grad_()
    values, expected = fused(loss, ours, candidates), plain(loss, exact, candidates)
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), expected, rtol=5e-6, atol=1e-7)
    (values.mean() if weight is None else (values * factor).sum()).backward()
    (expected * factor.double()).sum().backward()
    assert ours.grad is not None
    assert exact.grad is not None
    assert ours.grad.dtype == logits.dtype
    scale = factor.double().abs().unsqueeze(-1) + 1e-300
    torch.testing.assert_close(
        ours.grad.double() / scale, exact.grad / scale, rtol=0, atol=gradient_tolerance
    )


# Values


@on_every_device
@for_every_loss
@pytest.mark.parametrize("k", SMALL)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0], ids=["single", "some", "full"])
def test_agrees_with_the_plain_formula(loss: str, k: int, share: float, device: str) -> None:
    compare(loss, torch.randn(37, k, device=device) * 3, make_candidates(37, k, share, device))


@on_every_device
@for_every_loss
@pytest.mark.parametrize("k", LARGE)
def test_agrees_for_many_classes(loss: str, k: int, device: str) -> None:
    compare(loss, torch.randn(5, k, device=device) * 3, make_candidates(5, k, 0.1, device))


@pytest.mark.gpu
@for_every_loss
def test_agrees_for_a_hundred_thousand_classes_in_no_further_memory(loss: str) -> None:
    n, k = 64, 100_000
    logits = torch.randn(n, k, device="cuda", requires_grad=True)
    candidates = make_candidates(n, k, 0.01, "cuda")
    compare(loss, logits, candidates)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    (gradient,) = torch.autograd.grad(fused(loss, logits, candidates).mean(), logits)
    grown = torch.cuda.max_memory_allocated() - before
    assert grown <= gradient.nbytes + (1 << 20)


@on_every_device
@for_every_loss
@pytest.mark.parametrize("k", [3, 100, 2500])
@pytest.mark.parametrize("center", [-1e4, -200.0, -95.0, -70.0, -49.0, -46.0, -30.0, -15.0, 70.0, 1e4])
def test_rows_far_from_zero(loss: str, k: int, center: float, device: str) -> None:
    """Candidates alone, and whole rows, around the places where an exponential leaves float32."""
    candidates = make_candidates(9, k, 0.4, device)
    noise = torch.randn(9, k, device=device)
    compare(loss, noise + center, candidates)
    compare(loss, torch.where(candidates, noise + center, noise), candidates)
    compare(loss, torch.where(candidates, noise, noise + center), candidates)


@on_every_device
@for_every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_extreme_logits_stay_finite(loss: str, dtype: torch.dtype, device: str) -> None:
    logits = (torch.rand(64, 30, device=device) - 0.5).sign() * 1e4
    logits = logits.to(dtype).requires_grad_()
    candidates = make_candidates(64, 30, 0.3, device)
    values = fused(loss, logits, candidates)
    (gradient,) = torch.autograd.grad(values.mean(), logits)
    assert values.isfinite().all()
    assert gradient.isfinite().all()


@on_every_device
@for_every_loss
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("k", [10, 1000, 5001])
def test_half_precision_is_rounded_once(loss: str, dtype: torch.dtype, k: int, device: str) -> None:
    logits = (torch.randn(6, k, device=device) * 3).to(dtype)
    compare(loss, logits, make_candidates(6, k, 0.2, device), gradient_tolerance=torch.finfo(dtype).eps)


@on_every_device
@for_every_loss
@pytest.mark.parametrize("k", [10, 1000, 2500])
@pytest.mark.parametrize("inside", [True, False])
def test_what_is_not_a_number_shows_and_stays_in_its_row(
    loss: str, k: int, inside: bool, device: str
) -> None:
    candidates = make_candidates(5, k, 0.3, device)
    candidates[:, 7], candidates[:, 8] = True, False
    logits = torch.randn(5, k, device=device)
    broken = logits.clone()
    broken[3, 7 if inside else 8] = torch.nan
    values, gradients = [], []
    for x in (logits, broken):
        x.requires_grad_()
        values.append(fused(loss, x, candidates))
        gradients.append(torch.autograd.grad(values[-1].mean(), x)[0])
    assert values[1][3].isnan()
    assert gradients[1][3].isnan().any()
    others = [0, 1, 2, 4]
    torch.testing.assert_close(values[1][others], values[0][others])
    torch.testing.assert_close(gradients[1][others], gradients[0][others])


@on_every_device
@for_every_loss
def test_tiny_values_keep_their_digits(loss: str, device: str) -> None:
    """A loss of 1e-8 has as many digits as one of 1: nothing is computed as 1 - (1 - x)."""
    k = 40
    candidates = make_candidates(8, k, 0.2, device)
    logits = torch.where(candidates, 22.0, -22.0) + torch.rand(8, k, device=device)
    values, exact = (f(loss, x, candidates) for f, x in ((fused, logits), (plain, logits.double())))
    assert exact.max() < 1e-6
    torch.testing.assert_close(values.double(), exact, rtol=5e-6, atol=0)


@on_every_device
@pytest.mark.parametrize("loss", LOSSES)
def test_golden_cases(loss: str, device: str) -> None:
    for name, case in read_file(COPIES / "deep" / f"{loss}.json"):
        table = DEEP_32.for_case(name)
        inputs = case["inputs"]
        logits = torch.tensor(inputs["logits"], dtype=torch.float32, device=device, requires_grad=True)
        candidates = torch.tensor(inputs["candidate_mask"], device=device).bool()
        value = fused(loss, logits, candidates).mean()
        (gradient,) = torch.autograd.grad(value, logits)
        for field, ours, tolerance in (
            ("loss", value, table.loss),
            ("grad_logits", gradient, table.gradient),
        ):
            torch.testing.assert_close(
                ours.detach().cpu().double(),
                torch.from_numpy(as_array(case[field])),
                rtol=tolerance.rtol,
                atol=tolerance.atol,
                msg=lambda text, at=f"{name} {field}": f"{at}: {text}",
            )


# Shapes and layouts


@on_every_device
@for_every_loss
def test_layout_does_not_matter(loss: str, device: str) -> None:
    logits, candidates = torch.randn(12, 21, device=device), make_candidates(12, 21, 0.3, device)
    usual = fused(loss, logits, candidates)
    for view in (
        lambda x: x.t().contiguous().t(),
        lambda x: torch.stack([x, x], -1)[..., 0],
        lambda x: torch.cat([x[:1], x])[1:],
        lambda x: torch.cat([x[:, :1], x], -1)[:, 1:],
    ):
        seen = view(logits).requires_grad_()
        values = fused(loss, seen, view(candidates))
        torch.testing.assert_close(values, usual, rtol=1e-6, atol=0)
        (gradient,) = torch.autograd.grad(values.mean(), seen)
        again = logits.clone().requires_grad_()
        (expected,) = torch.autograd.grad(fused(loss, again, candidates).mean(), again)
        torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-8)


@on_every_device
@for_every_loss
@pytest.mark.parametrize("batch", [(), (0,), (4,), (2, 3)])
def test_any_leading_axes(loss: str, batch: tuple[int, ...], device: str) -> None:
    logits = torch.randn(*batch, 7, device=device, requires_grad=True)
    candidates = torch.zeros(*batch, 7, dtype=torch.bool, device=device)
    candidates[..., 2:4] = True
    values = fused(loss, logits, candidates)
    assert values.shape == batch
    values.sum().backward()
    assert logits.grad is not None
    assert logits.grad.shape == logits.shape


# The gradient: written ahead for a mean, computed again for anything else


@on_every_device
@for_every_loss
@pytest.mark.parametrize("k", [10, 100, 3000])
@pytest.mark.parametrize("few_programs", [False, True])
def test_gradient_for_other_factors_than_the_mean(
    loss: str, k: int, few_programs: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if few_programs and device == "cuda":
        from propall.kernels import triton_code

        monkeypatch.setattr(triton_code, "ENOUGH_PROGRAMS", 1)  # each repairs many rows, one after the other
    logits, candidates = torch.randn(150, k, device=device), make_candidates(150, k, 0.2, device)
    compare(loss, logits, candidates, weight=torch.ones(150, device=device))
    mixed = torch.rand(150, device=device) * 1e3
    mixed[::3] = 1 / 150  # some rows got what their gradient was written for, some did not
    mixed[1::3] = 0
    compare(loss, logits, candidates, weight=mixed)


@on_every_device
@for_every_loss
def test_second_backward_pass_leaves_the_first_gradient_alone(loss: str, device: str) -> None:
    logits = torch.randn(9, 12, device=device, requires_grad=True)
    candidates = make_candidates(9, 12, 0.3, device)
    value = fused(loss, logits, candidates).mean()
    first, copy = (torch.autograd.grad(value, logits, retain_graph=True)[0] for _ in range(2))
    (scaled,) = torch.autograd.grad(4 * value, logits, retain_graph=True)
    torch.testing.assert_close(first, copy, **ROUNDING)
    torch.testing.assert_close(scaled, 4 * first, **ROUNDING)
    (once_more,) = torch.autograd.grad(value, logits)
    torch.testing.assert_close(once_more, first, **ROUNDING)


@pytest.mark.gpu
@for_every_loss
def test_gradient_computed_ahead_is_corrected(loss: str) -> None:
    """Most rows get the factor it was written for: the same as computed in the backward pass."""
    logits, candidates = torch.randn(70, 12, device="cuda"), make_candidates(70, 12, 0.3, "cuda")
    mean = torch.full((70,), 1 / 70, device="cuda")
    factor = torch.cat([torch.rand(10, device="cuda"), mean[10:]])
    seen, copy = (logits.clone().requires_grad_() for _ in range(2))
    losses = candidate_loss_with_gradient(seen, candidates, loss, mean=False)
    expected = candidate_loss(copy, candidates, loss)
    torch.testing.assert_close(losses, expected, **ROUNDING)
    for weight in (factor, mean):
        torch.testing.assert_close(
            torch.autograd.grad((losses * weight).sum(), seen, retain_graph=True),
            torch.autograd.grad((expected * weight).sum(), copy, retain_graph=True),
            **ROUNDING,
        )


@on_every_device
@for_every_loss
@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_reduction_to_the_mean(loss: str, factor: float, device: str) -> None:
    logits, candidates = torch.randn(70, 12, device=device), make_candidates(70, 12, 0.3, device)
    results = []
    for reduction in ("mean", "none"):
        seen = logits.clone().requires_grad_()
        value = fused(loss, seen, candidates, reduction=reduction)
        value = value.mean() * factor
        first, second = (torch.autograd.grad(value, seen, retain_graph=True)[0] for _ in range(2))
        torch.testing.assert_close(first, second, **ROUNDING)
        results.append((value, first))
    torch.testing.assert_close(results[0], results[1], **ROUNDING)


@pytest.mark.gpu
@for_every_loss
def test_mean_of_many_rows(loss: str) -> None:
    """More programs than one block of threads adds up, and not a multiple of a group."""
    logits, candidates = torch.randn(40_001, 600, device="cuda"), make_candidates(40_001, 600, 0.1, "cuda")
    results = []
    for reduction in ("mean", "none"):
        seen = logits.clone().requires_grad_()
        value = fused(loss, seen, candidates, reduction=reduction).mean()
        results.append((value, torch.autograd.grad(value, seen)[0]))
    torch.testing.assert_close(results[0], results[1], **ROUNDING)


@on_every_device
@for_every_loss
def test_differentiating_twice_is_refused(loss: str, device: str) -> None:
    logits = torch.randn(3, 5, device=device, requires_grad=True)
    candidates = make_candidates(3, 5, 0.3, device)
    value = fused(loss, logits, candidates).sum()
    (gradient,) = torch.autograd.grad(value, logits, create_graph=True)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        gradient.sum().backward()


@for_every_loss
def test_double_precision_passes_gradcheck(loss: str) -> None:
    candidates = make_candidates(4, 6, 0.4, "cpu")
    logits = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: fused(loss, x, candidates), logits)


# What PyTorch does to an operator


@on_every_device
@for_every_loss
def test_opcheck(loss: str, device: str) -> None:
    candidates = make_candidates(5, 8, 0.4, device)
    logits = torch.randn(5, 8, device=device, requires_grad=True)
    torch.library.opcheck(torch.ops.propall.candidate_loss.default, (logits, candidates, loss))
    incoming = torch.rand(5, device=device)
    torch.library.opcheck(
        torch.ops.propall.candidate_gradient.default, (logits.detach(), candidates, loss, incoming)
    )


def mean_of(loss: str) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda logits, candidates: fused(loss, logits, candidates).mean()


@on_every_device
@for_every_loss
def test_stacked_runs(loss: str, device: str) -> None:
    """`vmap` and `torch.func.grad` in either order give what one run after the other gives."""
    logits = torch.randn(4, 6, 11, device=device)
    candidates = make_candidates(24, 11, 0.3, device).reshape(4, 6, 11)
    alone = []
    for run in range(4):
        seen = logits[run].clone().requires_grad_()
        value = mean_of(loss)(seen, candidates[run])
        alone.append((value.detach(), torch.autograd.grad(value, seen)[0]))
    values, gradients = (torch.stack(part) for part in zip(*alone, strict=True))

    def total(logits: Tensor) -> Tensor:
        return torch.vmap(mean_of(loss))(logits, candidates).sum()

    torch.testing.assert_close(torch.vmap(mean_of(loss))(logits, candidates), values)
    torch.testing.assert_close(torch.func.grad(total)(logits), gradients)
    torch.testing.assert_close(torch.vmap(torch.func.grad(mean_of(loss)))(logits, candidates), gradients)
    seen = logits.clone().requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(total(seen), seen)[0], gradients)
    # One candidate matrix for all runs, and the runs on the last axis.
    torch.testing.assert_close(
        torch.vmap(mean_of(loss), (2, None))(logits.movedim(0, 2), candidates[0]),
        torch.stack([mean_of(loss)(x, candidates[0]) for x in logits]),
    )


@pytest.mark.compiled
@on_every_device
@for_every_loss
def test_compiled_in_one_graph(loss: str, device: str) -> None:
    backend = "inductor" if device == "cuda" else "aot_eager"
    logits, candidates = torch.randn(4, 6, 11, device=device), make_candidates(6, 11, 0.3, device)
    scale = torch.rand(11, device=device)

    def step(logits: Tensor) -> Tensor:
        return fused(loss, logits * scale, candidates).mean()

    def stacked_gradient(logits: Tensor) -> Tensor:
        return torch.func.grad(lambda x: torch.vmap(step)(x).sum())(logits)

    seen, copy = (logits[0].clone().requires_grad_() for _ in range(2))
    value = torch.compile(step, fullgraph=True, backend=backend)(seen)
    torch.testing.assert_close(value, step(copy))
    torch.testing.assert_close(torch.autograd.grad(value, seen), torch.autograd.grad(step(copy), copy))
    compiled = torch.compile(stacked_gradient, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(logits), stacked_gradient(logits))


@pytest.mark.gpu
@for_every_loss
@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_captured_in_a_cuda_graph(loss: str, factor: float) -> None:
    logits = torch.randn(100, 1000, device="cuda", requires_grad=True)
    candidates = make_candidates(100, 1000, 0.1, "cuda")

    def step() -> tuple[Tensor, Tensor]:
        value = fused(loss, logits, candidates).mean() * factor
        return value.detach(), torch.autograd.grad(value, logits)[0]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        logits.copy_(torch.randn(100, 1000, device="cuda"))
    graph.replay()
    torch.testing.assert_close(captured, step(), rtol=0, atol=0)


@on_every_device
@for_every_loss
def test_under_autocast(loss: str, device: str) -> None:
    candidates = make_candidates(6, 16, 0.3, device)
    layer = torch.nn.Linear(4, 16, device=device)
    x = torch.randn(6, 4, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = layer(x)
        value = fused(loss, logits, candidates).mean()
    assert logits.dtype == torch.bfloat16
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), plain(loss, logits.double(), candidates).mean())
    value.backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32


@on_every_device
def test_gradient_is_computed_ahead_only_where_it_will_be_used(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = []

    def watched(*arguments: Any) -> Any:
        ahead.append(arguments)
        return candidate_loss_with_gradient(*arguments)

    monkeypatch.setattr(kernels, "candidate_loss_with_gradient", watched)
    logits, candidates = torch.randn(3, 4, device=device), make_candidates(3, 4, 0.3, device)
    fused_cc(logits, candidates)
    with torch.no_grad():
        fused_cc(logits.clone().requires_grad_(), candidates)
    torch.func.grad(lambda x: fused_cc(x, candidates).sum())(logits)
    assert not ahead
    fused_cc(logits.clone().requires_grad_(), candidates)
    assert len(ahead) == kernels.available(logits)


def test_availability() -> None:
    assert not kernels.available(torch.zeros(2, 3))
    assert not kernels.available(torch.zeros(2, 3, dtype=torch.float64))


@pytest.mark.gpu
def test_availability_on_a_gpu() -> None:
    has_triton = find_spec("triton") is not None
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert kernels.available(torch.zeros(2, 3, dtype=dtype, device="cuda")) is has_triton
    assert not kernels.available(torch.zeros(2, 3, dtype=torch.float64, device="cuda"))


@pytest.mark.gpu
@for_every_loss
def test_double_precision_on_a_gpu_takes_the_plain_way(loss: str) -> None:
    logits, candidates = (
        torch.randn(5, 7, device="cuda", dtype=torch.float64),
        make_candidates(5, 7, 0.3, "cuda"),
    )
    torch.testing.assert_close(
        fused(loss, logits, candidates),
        plain(loss, logits, candidates),
        rtol=1e-10,
        atol=1e-12,
    )


@pytest.mark.usefixtures("interpreter")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, about infinities that are meant
@for_every_loss
@pytest.mark.parametrize("single", [True, False], ids=["one_tile", "tiles"])
def test_interpreter(loss: str, single: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels themselves, element by element on the CPU: tiny tiles, all paths."""
    from propall.kernels import operators, triton_code

    tiling = triton_code.Tiling(v=2, lanes=2, stripes=4 if single else 1, rows=2, warps=4, single=single)
    monkeypatch.setattr(triton_code, "tiling", lambda k, itemsize: tiling)
    monkeypatch.setattr(triton_code, "ENOUGH_PROGRAMS", 1)
    for module in (kernels, operators):
        monkeypatch.setattr(module, "available", lambda logits: True)
    candidates = make_candidates(5, 10, 0.4, "cpu")
    for center in (0.0, -70.0):
        compare(loss, torch.randn(5, 10) + center, candidates)
        logits = torch.where(candidates, center, 0.0) + torch.randn(5, 10)
        compare(loss, logits, candidates, weight=torch.tensor([0.2, 0.2, 0.2, 3.0, 0.2]))
        for scale, many_parts in ((1.0, 1 << 14), (3.0, 1)):
            monkeypatch.setattr(triton_code, "MANY_PARTS", many_parts)
            monkeypatch.setattr(triton_code, "GROUP", 2)
            ours, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
            mean = scale * fused(loss, ours, candidates, reduction="mean")
            expected = scale * plain(loss, exact, candidates).mean()
            torch.testing.assert_close(mean.double(), expected, rtol=5e-6, atol=1e-7)
            (gradient,) = torch.autograd.grad(mean, ours)
            (expected_gradient,) = torch.autograd.grad(expected, exact)
            torch.testing.assert_close(gradient.double(), expected_gradient, rtol=0, atol=3e-6)


@pytest.mark.parametrize(("loss", "fused"), [(propall_loss, fused_propall), (cc_loss, fused_cc)])
def test_the_losses_use_a_kernel_where_it_pays(loss, fused, monkeypatch):
    logits = torch.randn(6, 5, dtype=torch.float32, requires_grad=True)
    mask = torch.rand(6, 5) < 0.5
    mask[:, 0] = True
    plain = loss(logits, mask)
    calls = []
    monkeypatch.setattr(kernels, "is_faster", lambda logits: calls.append(logits.shape) or True)
    by_kernel = loss(logits, mask)
    assert calls == [(6, 5)]
    torch.testing.assert_close(by_kernel, plain)
    assert torch.equal(by_kernel, fused(logits, mask))
    torch.testing.assert_close(
        torch.autograd.grad(by_kernel.sum(), logits), torch.autograd.grad(plain.sum(), logits)
    )


@pytest.mark.gpu
def test_a_kernel_pays_for_many_classes_and_numbers():
    for shape, expected in (((1 << 16, 64), True), ((1 << 20, 10), False), ((256, 1000), False)):
        assert kernels.is_faster(torch.empty(shape, device="cuda")) is expected
    assert not kernels.is_faster(torch.empty(1 << 16, 64, dtype=torch.float64, device="cuda"))
    assert not kernels.is_faster(torch.empty(1 << 16, 64))
