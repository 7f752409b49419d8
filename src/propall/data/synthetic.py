"""Small data sets that need no files: generated clusters, and the digits of scikit-learn."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from propall import counter_rng
from propall.data.dataset import Loader, Scaling, Source


def _normal(seed: int, purpose: str, n: int, d: int) -> Float[Tensor, "n d"]:
    rows, columns = torch.arange(n)[:, None], torch.arange(d)
    uniform = counter_rng.uniform(counter_rng.seed_for(seed, purpose), rows, columns, dtype=torch.float64)
    normal: Tensor = torch.special.ndtri(uniform)
    return normal


def blobs(n: int = 500, d: int = 4, k: int = 5, *, seed: int = 0, spread: float = 1.0) -> Source:
    """Generate Gaussian clusters, one of equal size per class, with as many test rows as training rows.

    The centers lie on a circle in a random plane, 6 apart from their neighbors, so a linear model separates
    the classes: about 99.7 % of the rows with `spread` 1, about two thirds with 3. Features have a mean
    square of 1.

    Args:
        n: number of training rows.
        d: number of features, at least 2.
        k: number of classes, at least 2.
        seed: seed of the plane and the rows.
        spread: standard deviation of every cluster.
    """
    if d < 2 or k < 2 or n < k:
        raise ValueError(f"n, d, k: got {n}, {d}, {k}; expected d >= 2, k >= 2 and n >= k.")
    plane = torch.linalg.qr(_normal(seed, "blobs/plane", d, 2)).Q
    angle = torch.arange(k, dtype=torch.float64) * (2 * math.pi / k)
    radius = 3 / math.sin(math.pi / k)
    centers = radius * torch.stack([angle.cos(), angle.sin()], dim=1) @ plane.T
    truth = torch.arange(2 * n) % n % k
    x = centers[truth] + spread * _normal(seed, "blobs/rows", 2 * n, d)
    x = (x / math.sqrt(radius**2 / d + spread**2)).float()
    classes = tuple(str(label) for label in range(k))
    return Source("blobs", x[:n], truth[:n], classes, test_raw=x[n:], test_truth=truth[n:])


def digits() -> Source:
    """Load 1797 images of handwritten digits with 8 x 8 pixels; a fixed 360 of them are the test set."""
    from sklearn.datasets import load_digits

    bundled = load_digits()
    source = Source(
        "digits",
        torch.from_numpy(bundled.data).to(torch.uint8),
        torch.from_numpy(bundled.target).long(),
        tuple("0123456789"),
        scaling=Scaling(top=16.0),
    )
    return source.hold_out(360, seed=0)


@dataclass(frozen=True)
class BuiltIn(Loader):
    """A data set that needs no files."""

    kind = "built in"

    make: Callable[[], Source] = blobs

    def load(self, root: Path) -> Source:
        """Generate the data; the root folder is not used."""
        return self.make()


LOADERS = (
    BuiltIn("digits", "Digits", "alpaydin1998optical", 1437, 360, (64,), 10, make=digits),
    BuiltIn("blobs", "Blobs", "", 500, 500, (4,), 5, make=blobs),
)
