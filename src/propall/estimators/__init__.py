"""Methods as scikit-learn estimators: classifier, model selection without true labels, calibration."""

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
