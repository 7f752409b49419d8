"""Learning from uncertain labels: partial and complementary labels."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from propall.estimators import SCORERS as SCORERS
    from propall.estimators import CandidateClassifier as CandidateClassifier
    from propall.estimators import CandidateStratifiedKFold as CandidateStratifiedKFold
    from propall.estimators import PartialLabelClassifier as PartialLabelClassifier
    from propall.estimators import PartialLabelClassifierCV as PartialLabelClassifierCV
    from propall.estimators import PartialLabelPortfolio as PartialLabelPortfolio
    from propall.estimators import Resolution as Resolution
    from propall.estimators import resolve_out_of_fold as resolve_out_of_fold
    from propall.labels import CandidateLabels as CandidateLabels
    from propall.labels.annotators import combine_answers as combine_answers
    from propall.losses import ConsistencyLoss as ConsistencyLoss
    from propall.losses import PartialLabelLoss as PartialLabelLoss
    from propall.losses import ProPaLLLoss as ProPaLLLoss
    from propall.methods.propall import propall_loss as propall_loss
    from propall.numerics import log1mexp as log1mexp
    from propall.training.image_views import ImageViews as ImageViews
    from propall.training.views import Views as Views

# Public names are imported on first use, so that `propall --help` does not wait for torch.
_HOMES = {
    "SCORERS": "propall.estimators",
    "CandidateClassifier": "propall.estimators",
    "CandidateLabels": "propall.labels",
    "CandidateStratifiedKFold": "propall.estimators",
    "ConsistencyLoss": "propall.losses",
    "ImageViews": "propall.training.image_views",
    "PartialLabelClassifier": "propall.estimators",
    "PartialLabelClassifierCV": "propall.estimators",
    "PartialLabelLoss": "propall.losses",
    "PartialLabelPortfolio": "propall.estimators",
    "ProPaLLLoss": "propall.losses",
    "Resolution": "propall.estimators",
    "Views": "propall.training.views",
    "combine_answers": "propall.labels.annotators",
    "log1mexp": "propall.numerics",
    "propall_loss": "propall.methods.propall",
    "resolve_out_of_fold": "propall.estimators",
}
__all__ = [*sorted(_HOMES), "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'propall' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
