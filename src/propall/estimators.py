"""Any method as a scikit-learn classifier: `fit(X, y)` with labels or candidate sets in y."""

import dataclasses
import functools
import json
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    assert_all_finite,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from torch import Tensor, nn

from propall import __version__, draws
from propall.data.dataset import PartialDataset
from propall.labels import CandidateLabels
from propall.methods import METHODS
from propall.nets import NETS
from propall.training.contract import Algorithm, Classifier, Objective, Run, State
from propall.training.engine import NetClassifier, NetFactory, Trainer
from propall.training.metrics import ProgressBar
from propall.training.recipe import Recipe

#: Version of the layout of saved models; a file with a higher one is refused.
SAVED_LAYOUT = 1


class PartialLabelClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that learns from ordinary labels, candidate sets or complementary labels.

    Args:
        method: a name from `propall methods`, or an objective or algorithm such as `ProPaLL(noise=0.5)`.
        net: "linear", "mlp", another name from `propall.nets.NETS`, a callable (shape of one row, number of
            classes) -> module, or a ready `nn.Module` whose weights training starts from. Ignored by methods
            without a network.
        net_options: keyword arguments of a named net, such as `{"widths": (500,)}`.
        epochs: passes over the data.
        batch_size: rows per step; all of them where there are fewer.
        optimizer: "adam" or "sgd".
        learning_rate: of the optimiser.
        weight_decay: factor of the L2 penalty.
        n_estimators: networks trained at once from different seeds, their probabilities averaged.
        standardize: subtract the training mean from tabular features and divide by the standard deviation.
        classes: class names in order, for candidate matrices or to fix the order; found in y otherwise.
        device: "auto" (a GPU where there is one), "cpu", "cuda", ...
        verbose: show a progress bar on a terminal.
        random_state: makes results repeatable.

    Attributes:
        classes_: class names, in the order of the columns of `predict_proba`.
        n_features_in_: number of features seen in `fit`.
        classifiers_: the fitted members.

    Notes:
        Computes in the precision of X: float32 stays float32, all else becomes float64. Rows are shuffled and
        perturbed by their contents, not their position, so the order of the rows does not matter; where one
        batch holds all rows, a weight of 2 equals listing a row twice. There is no `partial_fit`: methods
        with memory (PRODEN, RC, ...) must know all rows, and ProPaLL's noise must know when training ends.

    Examples:
        >>> from propall import PartialLabelClassifier
        >>> X = [[0.0, 1.0], [1.0, 0.0], [0.1, 0.9], [0.9, 0.2]]
        >>> clf = PartialLabelClassifier(random_state=0).fit(X, ["cat|dog", "dog", "cat", "dog|cow"])
        >>> clf.predict([[0.0, 1.0]]).item()
        'cat'
    """

    def __init__(
        self,
        method: str | Objective | Algorithm = "propall",
        net: str | NetFactory | nn.Module = "linear",
        *,
        net_options: Mapping[str, Any] | None = None,
        epochs: int = 200,
        batch_size: int = 256,
        optimizer: Literal["adam", "sgd"] = "adam",
        learning_rate: float = 0.01,
        weight_decay: float = 1e-4,
        n_estimators: int = 1,
        standardize: bool = True,
        classes: Sequence[Hashable] | None = None,
        device: str = "auto",
        verbose: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.method = method
        self.net = net
        self.net_options = net_options
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.n_estimators = n_estimators
        self.standardize = standardize
        self.classes = classes
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from rows and what is known of their labels.

        Args:
            X: (n, d) numbers as an array, DataFrame or sparse matrix; (n, c, h, w) for image networks.
            y: one entry per row: ordinary labels, candidate sets in any form that
                `CandidateLabels.from_any` takes, or a `CandidateLabels`.
            sample_weight: one weight per row.
        """
        features = self._features(X, reset=True)
        labels = self._labels(y)
        if len(labels) != len(features):
            raise ValueError(
                f"y: {len(labels)} entries for {len(features)} rows of X, inconsistent numbers of samples; "
                "give one label or candidate set per row."
            )
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=features.dtype, ensure_non_negative=True)
        self.classes_ = labels.decode(range(labels.n_classes))
        self.mean_, self.scale_ = self._standardisation(features, weight)
        x = self._standardised(features)
        device = self._device()
        train = PartialDataset(x.to(device), labels.mask.to(device))
        keys = _content_keys(features, labels.mask)
        own_weight = None if weight is None else torch.as_tensor(weight, device=device)
        runs = [Run(train, seed, own_weight, keys) for seed in self._seeds()]
        algorithm = self._algorithm(own_weight is not None)
        if self.verbose:
            with ProgressBar(f"fitting {METHODS.what} {self._method().name}") as bar:
                self.classifiers_ = algorithm.fit(runs, monitor=bar)
        else:
            self.classifiers_ = algorithm.fit(runs)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Scores, higher is likelier: (n, k), or (n,) in favour of the second of two classes."""
        x = self._known_features(X)
        if len(self.classifiers_) == 1:
            scores = self.classifiers_[0].scores(x)
        else:
            scores = self._probabilities(x).log()
        scores = scores.cpu()
        return (scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores).numpy()

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """How the classes compare, summing to one per row.

        For networks this is the softmax of the outputs, averaged over the members; for ProPaLL it is the
        probability that a class fires alone, given that exactly one does. It is as calibrated as the method
        is, no more.
        """
        return self._probabilities(self._known_features(X)).cpu().numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likeliest class of every row."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)
        names: NDArray[Any] = self.classes_[index]
        return names

    def score(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Share of rows whose predicted label is among the candidates in y; the accuracy for ordinary y."""
        labels = self._labels(y, classes=self._classes_for_scoring(y))
        position = {name: i for i, name in enumerate(labels.classes)}
        index = [position.get(name, -1) for name in self.predict(X).tolist()]
        mask = labels.mask.numpy()
        found = mask[np.arange(len(index)), index] & (np.asarray(index) >= 0)
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=float)
        return float(np.average(found.astype(float), weights=weight))

    def _classes_for_scoring(self, y: Any) -> Sequence[Hashable] | None:
        # A matrix has a column per class known from `fit`; names are looked up whatever the order.
        return self.classes_.tolist() if getattr(y, "ndim", 1) == 2 and not hasattr(y, "columns") else None

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file of tensors and JSON; nothing in it is ever executed."""
        check_is_fitted(self)
        tensors: dict[str, Tensor] = {}
        members = []
        for i, classifier in enumerate(self.classifiers_):
            own, plain = _dismantled(classifier)
            tensors |= {f"member/{i}/{name}": tensor.cpu().contiguous() for name, tensor in own.items()}
            members.append({"classifier": classifier.name, "plain": plain})
        for name in ("mean_", "scale_"):
            if getattr(self, name) is not None:
                tensors[name] = torch.as_tensor(getattr(self, name))
        parameters = self.get_params(deep=False)
        parameters |= {"method": self._method().name, "random_state": None}
        if not isinstance(self.net, str):
            parameters["net"] = None
        header = {
            "layout": SAVED_LAYOUT,
            "version": __version__,
            "parameters": parameters,
            "method_fields": _plain_fields(self._method()),
            "classes": {"dtype": self.classes_.dtype.str, "names": self.classes_.tolist()},
            "in_shape": list(self._in_shape),
            "feature_names": getattr(self, "feature_names_in_", np.array([])).tolist(),
            "n_features_in": getattr(self, "n_features_in_", None),
            "members": members,
        }
        try:
            text = json.dumps(header)
        except TypeError as error:
            raise ValueError(
                f"save: only class names and settings that JSON can hold are saved ({error}). "
                "Use strings or numbers as class names."
            ) from error
        path = Path(path)
        part = path.with_name(path.name + ".part")
        save_file(tensors, part, metadata={"propall": text, "digest": _digest(text, tensors)})
        part.replace(path)

    @classmethod
    def load(cls, path: str | Path, *, net: NetFactory | nn.Module | None = None) -> Self:
        """Read a model that `save` wrote.

        Args:
            path: the file.
            net: the network's factory or a module of the same architecture, where the model was fitted with
                one that is not named in `propall.nets.NETS`.
        """
        try:
            with safe_open(Path(path), framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            header, digest = json.loads(metadata["propall"]), metadata["digest"]
            layout = int(header["layout"])
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise ValueError(f"path: {path} is not a whole, unchanged propall model ({error}).") from error
        if layout > SAVED_LAYOUT:
            raise ValueError(
                f"path: {path} was written by propall {header['version']} in layout {layout}; this version "
                f"({__version__}) reads up to {SAVED_LAYOUT}. Upgrade propall."
            )
        if digest != _digest(metadata["propall"], tensors):
            raise ValueError(f"path: {path} was changed after it was saved; use an unchanged copy.")
        return cls._rebuilt(header, tensors, net)

    @classmethod
    def _rebuilt(cls, header: dict[str, Any], tensors: dict[str, Tensor], net: Any) -> Self:
        parameters = dict(header["parameters"])
        if parameters["net"] is None:
            if net is None:
                raise ValueError("net: the model was fitted with a network of your own; pass it as net=.")
            parameters["net"] = net
        method = METHODS[parameters["method"]](**header["method_fields"])
        parameters["method"] = method
        model = cls(**parameters)
        names = header["classes"]
        model.classes_ = np.array(names["names"], dtype=names["dtype"])
        model._in_shape = tuple(header["in_shape"])
        if header["n_features_in"] is not None:
            model.n_features_in_ = header["n_features_in"]
        if header["feature_names"]:
            model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
        for name in ("mean_", "scale_"):
            setattr(model, name, tensors[name].numpy() if name in tensors else None)
        model.classifiers_ = []
        for i, member in enumerate(header["members"]):
            prefix = f"member/{i}/"
            own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
            model.classifiers_.append(model._assembled(member, own))
        return model

    def _assembled(self, member: dict[str, Any], tensors: dict[str, Tensor]) -> Classifier:
        method = self._method()
        if member["classifier"] != NetClassifier.name:
            kind = method.classifier  # type: ignore[union-attr]
            assert kind.name == member["classifier"]
            return kind(**tensors, **member["plain"])  # type: ignore[no-any-return]
        factory = self._net()
        module = factory if isinstance(factory, nn.Module) else factory(self._in_shape, len(self.classes_))
        weights = {n.removeprefix("net/"): t for n, t in tensors.items() if n.startswith("net/")}
        module = module.to(next(iter(weights.values())).dtype)
        module.load_state_dict(weights)
        module.eval()
        objective = method if isinstance(method, Objective) else method.objective()  # type: ignore[attr-defined]
        parts: list[dict[str, Tensor]] = []
        for part in State._fields:
            prefix = f"{part}/"
            parts.append({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)})
        return NetClassifier(module.to(self._device()), objective, State(*parts))

    def _method(self) -> Objective | Algorithm:
        if isinstance(self.method, Objective | Algorithm):
            return self.method
        return METHODS[self.method]()

    def _net(self) -> NetFactory | nn.Module:
        if isinstance(self.net, str):
            options = self.net_options or {}
            return functools.partial(NETS[self.net], **options)
        return self.net

    def _algorithm(self, weighted: bool) -> Algorithm:
        method = self._method()
        recipe = Recipe(
            epochs=self.epochs,
            batch_size=self.batch_size,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            last_batch="keep",
        )
        if isinstance(method, Objective):
            return Trainer(method, self._net(), recipe)
        if weighted:
            raise ValueError(
                f"sample_weight: {method.title} has no place for weights; leave them out, "
                "or use another method."
            )
        trained = {"net": self._net(), "recipe": recipe}
        own = {field.name for field in dataclasses.fields(method)}  # type: ignore[arg-type]
        return dataclasses.replace(method, **{k: v for k, v in trained.items() if k in own})  # type: ignore[type-var]

    def _seeds(self) -> list[int]:
        random = check_random_state(self.random_state)
        first = int(random.randint(np.iinfo(np.int32).max))
        return [draws.seed_for(first, f"member {i}") for i in range(self.n_estimators)]

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def _features(self, X: Any, *, reset: bool) -> NDArray[Any]:
        images = getattr(X, "ndim", 2) > 2
        features: Any = validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], allow_nd=images
        )
        if issparse(features):
            features = features.toarray()  # type: ignore[attr-defined]
        if reset:
            self._in_shape = tuple(features.shape[1:])
        elif tuple(features.shape[1:]) != self._in_shape:
            raise ValueError(
                f"X: rows of shape {features.shape[1:]} given; the model was fitted on {self._in_shape}."
            )
        return features  # type: ignore[no-any-return]

    def _known_features(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return self._standardised(self._features(X, reset=False)).to(self._device())

    def _standardisation(
        self, features: NDArray[Any], weight: NDArray[Any] | None
    ) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
        if not self.standardize or features.ndim > 2:
            return None, None
        mean = np.average(features, axis=0, weights=weight)
        variance = np.average((features - mean) ** 2, axis=0, weights=weight)
        scale = np.sqrt(variance)
        # Rounding leaves a constant column with a tiny spread; dividing by it would blow it up.
        constant = scale <= 10 * np.finfo(features.dtype).eps * np.abs(mean)
        return mean, np.where(constant | (scale == 0), 1.0, scale)

    def _standardised(self, features: NDArray[Any]) -> Tensor:
        if self.mean_ is not None:
            features = ((features - self.mean_) / self.scale_).astype(features.dtype, copy=False)
        return torch.from_numpy(np.require(features, requirements=["C", "W"]))

    def _labels(self, y: Any, classes: Sequence[Hashable] | None = None) -> CandidateLabels:
        if y is None:
            raise ValueError("y: this classifier requires y to be passed, but the target y is None.")
        if _is_ordinary(y):
            y = column_or_1d(y, warn=True)
            if y.dtype.kind in "fc":
                assert_all_finite(y, input_name="y")
            if y.dtype.kind != "O":
                check_classification_targets(y)
            if len(y) and len(set(y.tolist())) == 1 and classes is None and self.classes is None:
                only = y[0]
                raise ValueError(f"y: 1 class given ({only!r}); a classifier needs at least two classes.")
        return CandidateLabels.from_any(y, classes=classes if classes is not None else self.classes)

    def _probabilities(self, x: Tensor) -> Tensor:
        return torch.stack([classifier.probabilities(x) for classifier in self.classifiers_]).mean(0)


def _is_ordinary(y: Any) -> bool:
    """Whether y is one plain label per row, to be checked as scikit-learn checks targets."""
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


def _content_keys(features: NDArray[Any], candidates: Tensor) -> Tensor:
    """A whole number per row that depends on nothing but its contents, equal for equal rows."""
    rows = np.ascontiguousarray(features.reshape(len(features), -1))
    bits = rows.view(np.uint64 if rows.dtype == np.float64 else np.uint32).astype(np.uint64, copy=False)
    parts = (bits, candidates.numpy().astype(np.uint64))
    key = np.zeros(len(rows), dtype=np.uint64)
    for i, part in enumerate(parts):
        a, b = draws.words(draws.seed_for(i, "content"), torch.arange(part.shape[1]))
        odd = ((a << 31) ^ b | 1).numpy().astype(np.uint64)
        key += (part * odd).sum(1, dtype=np.uint64)
    return torch.from_numpy((key >> np.uint64(32)).astype(np.int64))


def _digest(text: str, tensors: dict[str, Tensor]) -> str:
    return draws.digest(text, *(part for name in sorted(tensors) for part in (name, tensors[name])))


def _plain_fields(method: Objective | Algorithm) -> dict[str, Any]:
    fields = {f.name: getattr(method, f.name) for f in dataclasses.fields(method)}  # type: ignore[arg-type]
    return {name: value for name, value in fields.items() if name not in ("net", "recipe")}


def _dismantled(classifier: Classifier) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A classifier's tensors, and its other fields as plain values."""
    if isinstance(classifier, NetClassifier):
        tensors = {f"net/{name}": tensor for name, tensor in classifier.net.state_dict().items()}
        for part in ("shared", "trained"):
            tensors |= {f"{part}/{n}": t.clone() for n, t in getattr(classifier.state, part).items()}
        return tensors, {}
    fields = {f.name: getattr(classifier, f.name) for f in dataclasses.fields(classifier)}  # type: ignore[arg-type]
    tensors = {name: value for name, value in fields.items() if isinstance(value, Tensor)}
    return tensors, {name: value for name, value in fields.items() if name not in tensors}
