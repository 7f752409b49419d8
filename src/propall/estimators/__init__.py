"""Methods as scikit-learn estimators. Public are the names imported here.

- `classifier`: `PartialLabelClassifier`; `ensemble` trains its members, `validation` checks its data.
- `search`: model selection without true labels, by `scorers` on `folds`; `cross_fitting` fits all at once.
- `resolution`, `calibration`: resolved candidate sets, temperature scaling.
- `persistence`, `export`: saved models, and models as torch modules.
"""

from propall.estimators.classifier import PartialLabelClassifier
from propall.estimators.folds import CandidateStratifiedKFold
from propall.estimators.resolution import Resolution
from propall.estimators.scorers import CRITERIA, SCORERS
from propall.estimators.search import PartialLabelClassifierCV, resolve_out_of_fold

__all__ = [
    "CRITERIA",
    "SCORERS",
    "CandidateStratifiedKFold",
    "PartialLabelClassifier",
    "PartialLabelClassifierCV",
    "Resolution",
    "resolve_out_of_fold",
]
