"""Checks of the data that estimators receive."""

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, assert_all_finite, column_or_1d, validate_data

from propall.estimators.images import PixelScale, channels_first, scale_bytes, takes_images
from propall.labels.candidates import CandidateLabels, UninformativeRowsWarning
from propall.labels.inputs import to_python
from propall.labels.parsing import extend_classes
from propall.wording import class_hint, list_names


def check_training_data(
    estimator: Any, X: Any, y: Any, sample_weight: ArrayLike | None
) -> tuple[NDArray[Any], CandidateLabels, NDArray[Any] | None]:
    """Check and convert the arguments of `fit`; the estimator records shape and names of the features."""
    features = check_features(estimator, X, reset=True)
    labels = check_labels(y, estimator.classes)
    check_row_count(labels, len(features))
    weight = None
    if sample_weight is not None:
        weight = _check_sample_weight(sample_weight, X, dtype=features.dtype, ensure_non_negative=True)
    if (class_weight := getattr(estimator, "class_weight", None)) is not None:
        row_weight = weigh_rows(class_weight, labels).astype(features.dtype)
        weight = row_weight if weight is None else weight * row_weight
    return features, labels, weight


def weigh_rows(class_weight: Any, labels: CandidateLabels) -> NDArray[np.float64]:
    """Return the mean weight of each row's candidates; see `PartialLabelClassifier`."""
    shares = labels.to_numpy() / labels.to_numpy().sum(1, keepdims=True)
    if isinstance(class_weight, str) and class_weight == "balanced":
        counts = shares.sum(0)
        # A class without rows has no weight, and needs none.
        weights = np.divide(len(labels) / labels.n_classes, counts, out=0 * counts, where=counts > 0)
    elif isinstance(class_weight, Mapping):
        names = list(labels.classes)
        for name, value in class_weight.items():
            if name not in names:
                raise ValueError(
                    f"class_weight: {name!r} is not a class{class_hint(name, names)}; the classes are "
                    f"{list_names(names)}."
                )
            if not isinstance(value, Real) or not 0 <= float(value) < np.inf:
                raise ValueError(f"class_weight: {name!r} has {value!r}; expected a number of at least 0.")
        weights = np.array([float(class_weight.get(name, 1)) for name in names])
    else:
        raise ValueError(f"class_weight: got {class_weight!r}; expected 'balanced', a dict or None.")
    return np.asarray(shares @ weights)


def check_row_count(labels: CandidateLabels, n: int) -> None:
    """Raise an error unless there is one candidate set for each of n rows."""
    if len(labels) != n:
        raise ValueError(
            f"y: {len(labels)} entries for {n} rows of X, inconsistent numbers of samples; expected one "
            "label or candidate set per row."
        )


def check_features(estimator: Any, X: Any, *, reset: bool) -> NDArray[Any]:
    """Return X as a dense array of finite numbers whose rows have shape `in_shape_`, set if `reset`.

    Images become (n, c, h, w). Their bytes become numbers from 0 to 1, or on the scale of the training images
    (`pixels_`, set if `reset`); other numbers must have that scale.
    """
    if takes_images(estimator) and isinstance(X, list | tuple) and np.ndim(X[0] if len(X) else 0) > 1:
        X = _joined_images(X)
    if not reset:
        _check_layout(X, estimator.in_shape_)
    is_image = getattr(X, "ndim", 2) > 2
    is_pixels = is_image and takes_images(estimator)
    fitted_pixels = None if reset else getattr(estimator, "pixels_", None)
    if is_pixels:
        X = np.asarray(X)
        X = scale_bytes(X, fitted_pixels) if X.dtype == np.uint8 else X
        X = X if not reset and X.shape[1:] == estimator.in_shape_ else channels_first(X)
        if not reset:
            _check_shape(tuple(X.shape[1:]), estimator.in_shape_)  # scikit-learn would count the channels
    options = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "allow_nd": is_image}
    try:
        features: Any = validate_data(estimator, X, reset=reset, **options)
    except ValueError as error:
        if "could not convert string to float" not in str(error):
            raise
        raise ValueError(_describe_text(X, str(error))) from error
    if issparse(features):
        features = features.toarray()  # type: ignore[attr-defined]
    shape = tuple(features.shape[1:])
    if reset:
        estimator.in_shape_ = shape
        estimator.pixels_ = PixelScale.of(features) if is_pixels else None
    else:
        if is_pixels and fitted_pixels is not None:
            fitted_pixels.check(features)
        _check_shape(shape, estimator.in_shape_)
    return features  # type: ignore[no-any-return]


def _describe_text(X: Any, problem: str) -> str:
    """Say which columns of a data frame hold text, and what to do."""
    kinds = X.dtypes.items() if hasattr(X, "dtypes") and hasattr(X.dtypes, "items") else ()
    names = [name for name, kind in kinds if getattr(kind, "kind", "O") == "O"]
    what = f"columns with text ({list_names(names)})" if names else "text"
    return (
        f"X: got {what}; expected numbers ({problem}). Encode them, for example by a pipeline with "
        "make_column_transformer((OneHotEncoder(), [...])), or use `propall fit`, which does it itself."
    )


def _check_layout(X: Any, fitted: tuple[int, ...]) -> None:
    """Raise an error for one image, or a table, where the model was fitted on an array of images."""
    shape = tuple(getattr(X, "shape", ()))
    if len(fitted) != 3 or len(shape) not in (2, 3) or (1, *shape[1:]) == fitted:
        return
    one_image = channels_first(np.broadcast_to(False, (1, *shape))).shape[1:] == fitted
    if one_image or len(shape) == 2:  # scikit-learn would count the channels as features
        what = "one image" if one_image else f"rows of shape {shape[1:]}"
        advice = "Pass X[None]." if one_image else f"Reshape X to {('n', *fitted)}.".replace("'", "")
        raise ValueError(
            f"X: got shape {shape}, {what}; the model was fitted on images of shape {fitted}. {advice}"
        )


def _check_shape(shape: tuple[int, ...], fitted: tuple[int, ...]) -> None:
    if shape != fitted:
        raise ValueError(f"X: rows have shape {shape}; the model was fitted on {fitted}.")


def _joined_images(images: Sequence[Any]) -> NDArray[Any]:
    """A list of images as one array."""
    arrays = [np.asarray(image) for image in images]
    shapes = sorted({array.shape for array in arrays})
    if len(shapes) > 1:
        raise ValueError(
            f"X: images have different shapes, such as {shapes[0]} and {shapes[1]}. Resize them to one size."
        )
    return np.stack(arrays)


def check_labels(y: Any, classes: Sequence[Hashable] | None) -> CandidateLabels:
    """Return ordinary labels or candidate sets as `CandidateLabels`."""
    if y is None:
        raise ValueError("y: this classifier requires y to be passed, but the target y is None.")
    if _is_ordinary(y):
        if isinstance(y, list | tuple) and len({isinstance(value, str) for value in y}) > 1:
            y = np.array(y, dtype=object)  # numpy would turn NaN among strings into the word
        y = column_or_1d(y, warn=True)
        if y.dtype.kind in "fc":
            assert_all_finite(y, input_name="y")
        if y.dtype.kind != "O":
            check_classification_targets(y)
        if classes is None and len(y) and len(set(y.tolist())) == 1:
            raise ValueError(f"y: 1 class given ({to_python(y[0])!r}); a classifier needs at least two.")
    return CandidateLabels.from_any(y, classes=classes)


def _is_ordinary(y: Any) -> bool:
    """Whether y is one plain label per row, to be checked like any scikit-learn target."""
    if isinstance(y, CandidateLabels) or issparse(y):
        return False
    if not hasattr(y, "__len__") and hasattr(y, "__array__"):
        y = np.asarray(y)
    shape = getattr(y, "shape", None)
    if shape is not None and len(shape) != 1:
        return tuple(shape[1:]) == (1,)
    values = y.tolist() if isinstance(y, np.ndarray) and y.dtype == object else y
    if isinstance(values, np.ndarray):
        return values.dtype.kind not in "US" or not any("|" in text for text in values.tolist())
    scalars = str | bytes | int | float | complex | np.generic
    return all(isinstance(v, scalars) for v in values) and not any(
        "|" in v for v in values if isinstance(v, str)
    )


def read_candidates(y: Any, classes: Iterable[Hashable] | None = None, **options: Any) -> CandidateLabels:
    """Read candidate sets without warning about uninformative rows; fitting on them will."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UninformativeRowsWarning)
        return CandidateLabels.from_any(y, classes, **options)


def align_candidates(y: Any, classes: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the candidate matrix of y with a column per class; other candidates are dropped."""
    names = classes.tolist()
    labels = read_candidates(y, None if isinstance(y, CandidateLabels) else extend_classes(names, y, "y"))
    return align_columns(labels.to_numpy(), labels.classes, names)


def align_columns(
    values: NDArray[Any], names: Iterable[Hashable], classes: Iterable[Hashable]
) -> NDArray[Any]:
    """Return columns, named by `names`, in the order of `classes`; zeros for a class without a column."""
    # A class without a column gets the one of zeros at the end.
    padded = np.pad(values, ((0, 0), (0, 1)))
    column = {name: j for j, name in enumerate(names)}
    return padded[:, [column.get(name, -1) for name in classes]]


def candidate_matrix(candidates: Any, classes: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the candidate matrix with a column per class; unknown classes are an error.

    Blank entries stand for every class: such rows cannot be learned from, but can be resolved.
    """
    names, parameter = classes.tolist(), "candidates"
    if getattr(candidates, "shape", ())[1:] == (1,):
        candidates = column_or_1d(candidates)
    if not isinstance(candidates, CandidateLabels):
        new = (extend_classes(names, candidates, parameter, allow_blank=True) or names)[len(names) :]
        if new:
            raise ValueError(
                f"{parameter}: {new[0]!r} is not a class of the model{class_hint(new[0], names)}; its "
                f"classes are {list_names(names)}. Correct the rows, or fit a model with this class."
            )
    return read_candidates(candidates, names, empty="all", parameter=parameter).to_numpy()
