"""The Dirichlet distributions of VALEN: parameters, divergence, and differentiable samples."""

from math import log, pi

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from propall import counter_rng, kernels
from propall.numerics import full_precision, restricted_softmax

#: Added to every parameter of the distribution that is sampled.
SAMPLE_FLOOR = 0.01
#: Range of the parameters in the divergence.
PARAMETER_RANGE = (0.01, 30.0)
#: Proposals per Gamma draw. Each is rejected with probability below 0.05, all of them with 2e-8.
PROPOSALS = 6
#: Random numbers drawn at once.
DRAWS_AT_ONCE = 1 << 23
#: Lower bound of a sampled share: an underflow to 0 would remove the label permanently.
LEAST_SHARE = 1e-30


def dirichlet_parameters(
    encoded: Float[Tensor, "*b k"], support: Bool[Tensor, "*b k"], floor: float | Tensor = SAMPLE_FLOOR
) -> Float[Tensor, "*b k"]:
    r"""Parameters of the distribution that label distributions are sampled from.

    .. math:: \pi_j = [j \in T] \frac{p_j}{\sum_{i \in T} p_i} + 0.01

    with p = softmax(a). The gradient treats the divisor as a constant.

    Args:
        encoded: outputs a of the encoder.
        support: True on T, the labels with a positive weight.
        floor: added to every class.

    References:
        [xu2021instance].
    """
    encoded = full_precision(encoded)
    value = restricted_softmax(encoded, support).detach()
    # exp(log p - log p) is 1 with the gradient of log p: that of the quotient, without a division.
    log_p = encoded.log_softmax(-1)
    return value * (log_p - log_p.detach()).exp() + floor


def dirichlet_divergence(encoded: Float[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Kullback-Leibler divergence of the encoder's Dirichlet distribution from the uniform one.

    .. math:: \mathrm{KL} = \ln\Gamma(\alpha_0) - \sum_j \ln\Gamma(\alpha_j) - \ln\Gamma(k)
        + \sum_j (\alpha_j - 1) (\psi(\alpha_j) - \psi(\alpha_0))

    with alpha = exp(a / 4), clamped to [0.01, 30], and alpha_0 its sum. The gradient outside the range is 0.

    Args:
        encoded: outputs a of the encoder.

    References:
        [xu2021instance].
    """
    encoded = full_precision(encoded)
    # Clamped before the exponential: a large a would give inf, and the gradient inf * 0.
    least, most = (4 * log(limit) for limit in PARAMETER_RANGE)
    alpha = (encoded.clamp(least, most) / 4).exp()
    total, k = alpha.sum(-1), torch.full((), float(alpha.shape[-1]), dtype=alpha.dtype, device=alpha.device)
    normalizer = total.lgamma() - alpha.lgamma().sum(-1) - k.lgamma()
    return normalizer + ((alpha - 1) * (alpha.digamma() - total.unsqueeze(-1).digamma())).sum(-1)


# One operator: a compiler would take half a minute for its integer arithmetic, and torch's function for the
# derivative supports neither vmap nor tracing.
@torch.library.custom_op(
    "propall::log_gamma_draw", mutates_args=(), schema="(Tensor shape, Tensor seed) -> (Tensor, Tensor)"
)
def log_gamma_draw(
    shape: Float[Tensor, "..."], seed: Int[Tensor, "..."]
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    """Logarithms of draws from Gamma distributions, and their derivatives in the shape parameters.

    A draw of shape a is a draw of shape a + 1 times a uniform draw to the power 1/a. The former uses the
    rejection method of Marsaglia and Tsang (2000) with a fixed number of proposals; if all are rejected, it
    is the center a + 2/3. The derivative keeps a draw at its quantile. Logarithms, because with a = 0.01
    four draws in ten underflow in float32.

    Args:
        shape: parameters a, positive.
        seed: integers below 2^62 that determine the draws.
    """
    if kernels.available(shape):
        from propall.kernels.gamma import gamma_draw

        above_one, power = gamma_draw(shape, seed, PROPOSALS)
    else:
        at_once = max(1, DRAWS_AT_ONCE // (3 * PROPOSALS))
        parts = zip(shape.flatten().split(at_once), seed.flatten().split(at_once), strict=True)
        drawn = zip(*(_gamma_draw(a, s) for a, s in parts), strict=True)
        above_one, power = (torch.cat(part).view(shape.shape) for part in drawn)
    # Public only as the backward pass of a sampler with torch's own generator.
    implicit = torch._standard_gamma_grad(shape + 1, above_one)  # noqa: SLF001
    return above_one.log() + power, implicit / above_one - power / shape


def _gamma_draw(
    a: Float[Tensor, "n"], seed: Int[Tensor, "n"]
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """Draws of shape a + 1, and the logarithms of uniform draws divided by a; `kernels.gamma` in torch."""
    proposals = torch.arange(PROPOSALS, device=seed.device)
    purposes = torch.arange(3, device=seed.device)[:, None]
    uniform = counter_rng.uniform(seed[:, None, None], purposes, proposals, dtype=a.dtype)
    radius, angle, accept = uniform.unbind(1)
    d = (a + 2 / 3)[:, None]
    normal = (-2 * radius.log()).sqrt() * (2 * pi * angle).cos()
    v = (1 + normal / (9 * d).sqrt()) ** 3
    bound = normal.square() / 2 + d * (1 - v + v.clamp(min=torch.finfo(v.dtype).tiny).log())
    accepted = (v > 0) & (accept.log() < bound)
    first = v.gather(1, accepted.int().argmax(1, keepdim=True)).where(accepted.any(1, keepdim=True), 1.0)
    return (d * first)[:, 0], counter_rng.uniform(seed, 3, PROPOSALS, dtype=a.dtype).log() / a


@log_gamma_draw.register_fake
def _(shape: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
    value = shape.new_empty(shape.shape)
    return value, torch.empty_like(value)


@log_gamma_draw.register_vmap
def _(
    info: object, in_dims: tuple[int | None, ...], shape: Tensor, seed: Tensor
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    # Draws are elementwise, so the draws of a stack are those of a larger tensor.
    pairs = zip((shape, seed), in_dims, strict=True)
    parts = torch.broadcast_tensors(*(part if dim is None else part.movedim(dim, 0) for part, dim in pairs))
    return log_gamma_draw(*parts), (0, 0)


def dirichlet_sample(
    parameters: Float[Tensor, "*b k"], uniform: Float[Tensor, "*b k"]
) -> Float[Tensor, "*b k"]:
    """One sample per row, differentiable in the parameters and never 0: normalized Gamma draws.

    Args:
        parameters: of the Dirichlet distributions, positive.
        uniform: draws on the open interval (0, 1) that determine the sample.
    """
    bits = (uniform * 2**23).long()
    fixed = parameters.detach()
    value, derivative = log_gamma_draw(fixed, bits | (bits.roll(1, -1) << 23))
    sample: Tensor = (value + derivative * (parameters - fixed)).softmax(-1)
    return sample.clamp(min=LEAST_SHARE)
