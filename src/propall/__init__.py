"""Learning from labels that are not certain: partial and complementary labels."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from propall.estimators.classifier import PartialLabelClassifier as PartialLabelClassifier
    from propall.labels.candidates import CandidateLabels as CandidateLabels
    from propall.losses import PartialLabelLoss as PartialLabelLoss
    from propall.losses import ProPaLLLoss as ProPaLLLoss
    from propall.methods.propall import propall_loss as propall_loss
    from propall.numerics import log1mexp as log1mexp

# Public names are looked up on first use, so that `propall --help` answers without importing torch.
_HOMES = {
    "CandidateLabels": "propall.labels",
    "PartialLabelClassifier": "propall.estimators",
    "PartialLabelLoss": "propall.losses",
    "ProPaLLLoss": "propall.losses",
    "log1mexp": "propall.numerics",
    "propall_loss": "propall.methods.propall",
}
__all__ = [*sorted(_HOMES), "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'propall' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
