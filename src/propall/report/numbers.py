"""Formatting of numbers, axis ticks, means and standard deviations."""

import math
from collections.abc import Sequence

import numpy as np

#: Runtime type checkers reject an `int` where only `float` is annotated.
Number = int | float


def format_number(value: Number, decimals: int = 2, *, signed: bool = False) -> str:
    """Format with fixed decimals and a true minus sign; never "-0.00"."""
    text = f"{value:+.{decimals}f}" if signed else f"{value:.{decimals}f}"
    if float(text) == 0:
        text = f"{0:.{decimals}f}"
    return text.replace("-", "−")


def format_mean(mean: Number, std: Number | None = None, decimals: int = 2) -> str:
    """Format as `97.89 (0.08)`, or the mean alone."""
    return format_number(mean, decimals) + (f" ({format_number(std, decimals)})" if std is not None else "")


def format_percent(value: Number, decimals: int = 2) -> str:
    """Format a percentage, with a no-break space before the sign."""
    return f"{format_number(value, decimals)}\N{NO-BREAK SPACE}%"


def choose_ticks(low: Number, high: Number, at_most: int = 5, *, whole: bool = False) -> list[float]:
    """Return a few round numbers within [low, high], in steps of 1, 2 or 5 times a power of ten.

    With `whole`, no step is below 1 (for epochs and counts).
    """
    if not high > low:
        return [float(low)]
    raw = (high - low) / at_most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s for m in (1, 2, 5, 10) if (s := m * power) >= raw * (1 - 1e-9))
    step = max(step, 1.0) if whole else step
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def format_tick(value: Number) -> str:
    """Format without trailing zeros."""
    return f"{value:g}".replace("-", "−")


def mean_and_std(values: Sequence[Number]) -> tuple[float, float | None]:
    """Return mean and sample standard deviation (ddof=1); the latter is None for a single value."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return float(np.mean(values)), std
