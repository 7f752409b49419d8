"""Registry of data sets."""

from pathlib import Path

from propall.data import annotations, images, realworld, synthetic
from propall.data.dataset import Loader, Source
from propall.data.files import data_root
from propall.registry import Registry, by_name

DATASETS: Registry[Loader] = by_name(
    "data set", *synthetic.LOADERS, *images.LOADERS, *annotations.LOADERS, *realworld.LOADERS
)
"""Data sets by name.

Examples:
    >>> DATASETS["digits"].title
    'Digits'
"""


def load(name: str, root: Path | str | None = None) -> Source:
    """Read a data set.

    Args:
        name: its name in `DATASETS`.
        root: folder of all data sets; defaults to PROPALL_DATA or the user's cache folder.

    Examples:
        >>> source = load("digits")
        >>> source.raw.shape, len(source.classes)
        (torch.Size([1437, 64]), 10)
    """
    return DATASETS[name].load(data_root(root))
