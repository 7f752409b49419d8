"""Methods as scikit-learn estimators: classifier, search without true labels, calibration."""

from propall.estimators.classifier import PartialLabelClassifier, Resolution

__all__ = ["PartialLabelClassifier", "Resolution"]
