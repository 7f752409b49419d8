"""Methods as scikit-learn estimators. Public are the names imported here.

- `classifier`: `PartialLabelClassifier`; `ensemble` trains its members, `validation` checks its data.
- `any_classifier`: `CandidateClassifier` fits any scikit-learn classifier, through `soft_targets`.
- `candidate_mixin`: what all classifiers for candidate sets share.
- `search`: model selection without true labels, by `scorers` on `folds`; `cross_fitting` fits all at once.
- `portfolio`: different learners, weighed without true labels into a `mixture`.
- `resolution`, `calibration`: resolved candidate sets, temperature scaling.
- `persistence`, `export`: saved models, and models as torch modules.
"""

from propall.estimators.any_classifier import CandidateClassifier
from propall.estimators.classifier import PartialLabelClassifier
from propall.estimators.folds import CandidateStratifiedKFold
from propall.estimators.mixture import ClassifierMixture
from propall.estimators.portfolio import PartialLabelPortfolio, PortfolioMember, standard_portfolio
from propall.estimators.resolution import Resolution
from propall.estimators.scorers import CRITERIA, SCORERS
from propall.estimators.search import PartialLabelClassifierCV, resolve_out_of_fold

__all__ = [
    "CRITERIA",
    "SCORERS",
    "CandidateClassifier",
    "CandidateStratifiedKFold",
    "ClassifierMixture",
    "PartialLabelClassifier",
    "PartialLabelClassifierCV",
    "PartialLabelPortfolio",
    "PortfolioMember",
    "Resolution",
    "resolve_out_of_fold",
    "standard_portfolio",
]
