"""Views by name: published consistency methods as settings of `Views`, each with its own base loss."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from propall.registry import Registry
from propall.training.cleaning import ConformalCleaning, Purification
from propall.training.views import BALANCE_FIELDS, Views


class NamedViews(NamedTuple):
    """A published way to train on views.

    Attributes:
        title: name as printed.
        reference: citation key.
        views: by the published formula; the augmentations are those of the recipe.
        base: registered name of the base loss. Without weight (`views.base_weight`) it only scores.
        base_settings: fields of the base loss that differ from its defaults.
        notes: what differs from the published method.

    Examples:
        >>> VIEWS["crdpll"].title, VIEWS["crdpll"].base, VIEWS["crdpll"].views.targets
        ('CR-DPLL', 'non_candidates', 'memory')
    """

    title: str
    reference: str
    views: Views
    base: str = "cc"
    base_settings: Mapping[str, Any] = {}
    notes: str = ""

    def with_base(self) -> Views:
        """The views for another base loss, which then has full weight."""
        return dataclasses.replace(self.views, base_weight=1.0)


#: A row's weights are the latest prediction on its candidates, as in PRODEN.
_PROGRESSIVE = Views(targets="memory", momentum=0.0, base_weight=0.0, ramp=0.0)
#: Targets are averaged over visits and may leave the candidates.
_ALIM = Views(
    targets="memory",
    refresh="before",
    mask="widened",
    tolerance="auto",
    base_weight=0.0,
    ramp=0.0,
    mixup=4,
)

VIEWS: Registry[NamedViews] = Registry(
    "views",
    [
        (
            "crdpll",
            NamedViews(
                "CR-DPLL",
                "wu2022revisiting",
                Views(
                    n_strong=2,
                    targets="memory",
                    momentum=0.0,
                    geometric=True,
                    ramp=0.5,
                    base_views="weak",
                    reduction="sum",
                    divergence="kl",
                ),
                base="non_candidates",
                notes="the weight rises with every step, not every epoch",
            ),
        ),
        (
            "glws",
            NamedViews(
                "GLWS",
                "chen2024general",
                Views(n_strong=2, ramp=0.0, base_views="weak", balance=0.1),
                base="non_candidates",
                notes="assumes equally frequent classes; set `prior` otherwise",
            ),
        ),
        (
            "pocr",
            NamedViews(
                "POCR",
                "wang2021partial",
                Views(
                    n_strong=2,
                    ramp=0.5,
                    base_views="weak",
                    consistency_views="strong",
                    reduction="sum",
                    divergence="kl",
                ),
                base="non_candidates",
                base_settings={"guard": 1.1e-7},
                notes="the weight rises with every step, not every epoch",
            ),
        ),
        (
            "dirk",
            NamedViews(
                "DIRK",
                "wu2024distilling",
                Views(
                    targets="teacher",
                    teacher_view="strong",
                    teacher_momentum=0.99,
                    mask="rectified",
                    consistency_views="strong",
                    base_weight=0.0,
                    ramp=0.0,
                ),
                notes="without the contrastive term of DIRK-REF",
            ),
        ),
        (
            "pop",
            NamedViews(
                "POP",
                "xu2023progressive",
                dataclasses.replace(_PROGRESSIVE, n_strong=2, cleaning=Purification()),
            ),
        ),
        (
            "conformal",
            NamedViews(
                "Conformal cleaning",
                "fuchs2025conformal",
                dataclasses.replace(_PROGRESSIVE, cleaning=ConformalCleaning()),
                notes="on PRODEN's weights; scores of the training pass",
            ),
        ),
        (
            "alim_scale",
            NamedViews(
                "ALIM (scale)",
                "xu2023alim",
                _ALIM,
                notes="on averaged predictions instead of PiCO; tolerant from half of training on",
            ),
        ),
        (
            "alim_one_hot",
            NamedViews(
                "ALIM (one-hot)",
                "xu2023alim",
                dataclasses.replace(_ALIM, one_hot=True, memory_from=0.25),
                notes="as ALIM (scale); hard labels after a quarter of training",
            ),
        ),
    ],
)
"""Names for `propall train --views` and `VIEWS[name].views`.

Examples:
    >>> VIEWS["pop"].title
    'POP'
"""


def find_views(views: Views | None) -> NamedViews | None:
    """The named setting that some views are, apart from augmentations, balance term and base loss."""
    if views is None:
        return None
    if not views.n_strong:  # some settings need a strong view
        return None
    names = ("weak", "strong", "n_strong", "base_weight", *BALANCE_FIELDS)
    free = {name: getattr(views, name) for name in names}
    return next((n for n in VIEWS.values() if dataclasses.replace(n.views, **free) == views), None)


def catalog() -> list[dict[str, str]]:
    """Describe every named setting: name, title, base loss, targets, views per row, notes, reference."""
    return [
        {
            "name": name,
            "title": named.title,
            "base loss": named.base if named.views.base_weight else "none",
            "targets": f"{named.views.targets}, {named.views.mask}",
            "views": str(named.views.n_views),
            "notes": named.notes,
            "reference": named.reference,
        }
        for name, named in VIEWS.items()
    ]
