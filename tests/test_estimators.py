from sklearn.utils.estimator_checks import parametrize_with_checks

from propall import PartialLabelClassifier


@parametrize_with_checks([PartialLabelClassifier()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)
