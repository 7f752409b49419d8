"""Numerically stable functions shared by several methods."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LOG_2 = 0.6931471805599453


def is_traced() -> bool:
    """Whether a compiler or a `torch.func` transform is running, so tensors have no values to inspect."""
    # torch has no public name for the second.
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()  # noqa: SLF001


def check_finite_rows(x: Float[Tensor, "n ..."], name: str = "x") -> None:
    """Raise ValueError if rows contain NaN or infinity."""
    if not x.sum().isfinite() and not (finite := x.flatten(1).isfinite().all(1)).all():
        raise ValueError(
            f"{name}: {int((~finite).sum())} rows contain NaN or infinity (first: "
            f"{int((~finite).nonzero()[0])}). Impute or drop them."
        )


def full_precision(logits: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Cast half precision to float32: losses are always computed in 32 bits or more."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def uniform_weights(
    candidates: Bool[Tensor, "*b k"], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "*b k"]:
    """Weight 1/|S| on every candidate, 0 elsewhere."""
    return candidates.to(dtype) / candidates.sum(-1, keepdim=True, dtype=dtype)


def restrict_weights(
    weights: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]
) -> Float[Tensor, "*b k"]:
    """Label weights on the candidates, with sum 1; uniform where they have no mass there."""
    inside = weights * candidates
    mass = inside.sum(-1, keepdim=True)
    known = mass > torch.finfo(mass.dtype).tiny
    return torch.where(known, inside / mass.where(known, 1.0), uniform_weights(candidates, inside.dtype))


def restricted_softmax(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]
) -> Float[Tensor, "*b k"]:
    """Softmax over the candidates only, exactly 0 elsewhere.

    Notes:
        Public code divides the softmax over all classes by its sum over S, which is 0/0 as soon as all
        candidates are about 103 logits (float32) below another class. Masking first has no such limit.

    Examples:
        >>> restricted_softmax(torch.tensor([[1.0, 1.0, 200.0]]), torch.tensor([[True, True, False]]))
        tensor([[0.5000, 0.5000, 0.0000]])
    """
    return full_precision(logits).masked_fill(~candidates, -torch.inf).softmax(-1)


#: Smallest share of a class in `balance_classes`: keeps the factors of classes without rows finite.
SMALLEST_SHARE = 1e-6
#: Iterations of `balance_classes`.
BALANCING_STEPS = 20


def balance_classes(
    posterior: Float[Tensor, "*b n k"], shares: Float[Tensor, "k"], steps: int = BALANCING_STEPS
) -> Float[Tensor, "*b n k"]:
    r"""Multiply the columns of a posterior by factors, so that the classes have given shares of the rows.

    .. math:: q_{ij} \propto p_{ij} \, b_j \quad\text{with}\quad \frac1n \sum_i q_{ij} = s_j

    by iterative proportional fitting. Zeros stay zeros, so shares that the zeros rule out are approached as
    far as possible.

    Args:
        posterior: p; every row sums to 1.
        shares: s; they sum to 1.
        steps: number of iterations.
    """
    logs = full_precision(posterior).log()
    factors = torch.zeros_like(logs[..., :1, :])
    goal = shares.to(logs).clamp_min(SMALLEST_SHARE).log()
    for _ in range(steps):
        current = (logs + factors).softmax(-1).mean(-2, keepdim=True)
        factors = factors + goal - current.clamp_min(SMALLEST_SHARE).log()
    return (logs + factors).softmax(-1)


def below_maximum(logits: Float[Tensor, "*b k"]) -> tuple[Float[Tensor, "*b k"], Float[Tensor, "*b"]]:
    """Subtract each row's maximum; also return it, detached, and 0 where it is infinite.

    In float32, a logsumexp of 1e4 has only three decimals, and so have differences of it and the softmax that
    is its gradient. Relative to the maximum, all digits are kept.
    """
    top = logits.detach().amax(-1, keepdim=True)
    top = top.masked_fill(top.isinf(), 0)
    return logits - top, top.squeeze(-1)


def negative_log_mass(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Negative log of the softmax probability of the candidate set, to full relative accuracy.

    .. math:: -\log \sum_{j \in S} p_j = \operatorname{softplus}\bigl(
        \operatorname{LSE}_{j \notin S} r_j - \operatorname{LSE}_{j \in S} r_j\bigr)

    0 where the set contains every class.

    Examples:
        >>> negative_log_mass(torch.zeros(1, 4), torch.tensor([[True, True, False, False]]))
        tensor([0.6931])
    """
    logits = full_precision(logits)
    full = candidates.all(-1, keepdim=True)
    inside, low = below_maximum(logits.masked_fill(~candidates, -torch.inf))
    # A full set excludes nothing; any finite input keeps the gradient of the unused branch finite.
    outside, high = below_maximum(logits.masked_fill(candidates & ~full, -torch.inf))
    gap = (high - low) + (outside.logsumexp(-1) - inside.logsumexp(-1))
    return torch.where(full.squeeze(-1), 0.0, torch.nn.functional.softplus(gap, threshold=40))


def probabilities_and_complements(
    logits: Float[Tensor, "*b k"],
) -> tuple[Float[Tensor, "*b k"], Float[Tensor, "*b k"]]:
    """Softmax p and 1 - p without cancellation: for the largest p, 1 - p is the sum of the others."""
    p = full_precision(logits).softmax(-1)
    top = torch.arange(p.shape[-1], device=p.device) == p.argmax(-1, keepdim=True)
    rest = p.masked_fill(top, 0.0).sum(-1, keepdim=True)
    return p, torch.where(top, rest, 1 - p)


def accurate_expm1(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """exp(x) - 1 without cancellation, also in code that is compiled for a CPU.

    The compiler of PyTorch 2.13 evaluates `expm1` on a CPU as exp(x) - 1, which is 0 for small x. There, the
    quotient (u - 1) / log u with u = exp(x) is multiplied by x: its errors cancel.
    """
    if x.device.type != "cpu" or not is_traced():
        return torch.expm1(x)
    fixed, u = x.detach(), x.exp()
    near, low = u.detach() == 1, u.detach() == 0
    usual = u.detach().masked_fill(near | low, 2.0)
    value = torch.where(near, fixed, torch.where(low, -1.0, (usual - 1) / usual.log() * fixed))
    value = torch.where(torch.isinf(u.detach()), u.detach(), value)
    return value + (u - u.detach()).nan_to_num(0.0)  # 0, with the gradient of exp


def log1mexp(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    r"""log(1 - exp(-x)) for x > 0, accurate at both ends, with a finite gradient.

    References:
        [maechler2012log1mexp]: `expm1` below log 2, `log1p` above.

    Examples:
        >>> log1mexp(torch.tensor([1e-30, 1.0, 50.0]))
        tensor([-6.9078e+01, -4.5868e-01, -1.9287e-22])
    """
    if not x.requires_grad and not is_traced():  # one branch is accurate, but its gradient overflows
        return torch.log1p(torch.expm1(x).reciprocal_()).neg_()
    near = x < LOG_2
    # A branch gets 1.0 where it is not taken: its gradient could be infinite there, and 0 * inf is NaN.
    small, large = x.where(near, 1.0), x.where(~near, 1.0)
    return torch.where(near, torch.log(-accurate_expm1(-small)), torch.log1p(-torch.exp(-large)))
