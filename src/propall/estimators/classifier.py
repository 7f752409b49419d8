"""Any method as a scikit-learn classifier: `fit(X, y)` with labels or candidate sets in y."""

import copy
import dataclasses
import functools
import inspect
import json
import math
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open
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

from propall import __version__, counter_rng
from propall.data.dataset import PartialDataset
from propall.estimators.calibration import fit_temperature, log_softmax
from propall.labels.candidates import CandidateLabels, UninformativeRowsWarning
from propall.labels.parsing import native, with_new_names
from propall.methods import METHODS, LinearClassifier
from propall.nets import NETS
from propall.training.checkpoint import write_tensors
from propall.training.compiled import best_device
from propall.training.contract import Algorithm, Classifier, NetFactory, Objective, Run, State, TrainingSetup
from propall.training.metrics import ProgressBar
from propall.training.networks import NetClassifier, build
from propall.training.recipe import Recipe
from propall.wording import class_hint, listed, plural

#: Numbers that are looked at together where all rows are gone through.
NUMBERS_AT_ONCE = 1 << 18
#: Version of the layout of saved models; a file with a higher one is refused.
SAVED_LAYOUT = 1
#: What makes results repeatable: a seed, or a generator.
RandomState = int | np.random.RandomState | np.random.Generator | None


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
        learning_rate: of the optimiser; None: 0.03 for the linear net, 0.01 for others.
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
        temperature_: what the log-probabilities are divided by; 1 until `calibrate` is called.

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
        learning_rate: float | None = None,
        weight_decay: float = 1e-4,
        n_estimators: int = 1,
        standardize: bool = True,
        classes: Sequence[Hashable] | None = None,
        device: str = "auto",
        verbose: bool = False,
        random_state: RandomState = None,
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
        features, labels, weight = self._checked(X, y, sample_weight)
        runs = self._runs(features, labels, weight)
        algorithm = self._algorithm(weight is not None)
        if isinstance(self.net, nn.Module) and isinstance(self._method(), Objective):
            _refuse_other_outputs(self.net, runs[0])
        if self.verbose:
            with ProgressBar(f"fitting {METHODS.kind} {self._method().name}") as bar:
                self.classifiers_ = algorithm.fit(runs, monitor=bar)
        else:
            self.classifiers_ = algorithm.fit(runs)
        self.temperature_ = 1.0
        return self

    def _checked(
        self, X: Any, y: Any, sample_weight: ArrayLike | None
    ) -> tuple[NDArray[Any], CandidateLabels, NDArray[Any] | None]:
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
        return features, labels, weight

    def _runs(
        self, features: NDArray[Any], labels: CandidateLabels, weight: NDArray[Any] | None
    ) -> list[Run]:
        """One run per member; classes and standardisation are remembered."""
        self.classes_ = labels.decode(range(labels.n_classes))
        self.mean_, self.scale_ = self._standardisation(features, weight)
        x = self._standardised(features)
        device = self._device()
        train = PartialDataset(x.to(device), labels.mask.to(device))
        keys = _content_keys(features, labels.mask)
        own_weight = None if weight is None else torch.as_tensor(weight, device=device)
        return [Run(train, seed, own_weight, keys) for seed in self._seeds()]

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Scores, higher is likelier: (n, k), or (n,) in favour of the second of two classes."""
        x = self._known_features(X)
        alone = len(self.classifiers_) == 1
        scores = (self.classifiers_[0].scores(x) if alone else self._log_probabilities(x)).cpu()
        return (scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores).numpy()

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """How the classes compare, summing to one per row.

        For networks this is the softmax of the outputs, averaged over the members; for ProPaLL it is the
        probability that a class fires alone, given that exactly one does. It is as calibrated as the method
        is, no more, until `calibrate` finds the temperature under which held-out candidate sets are
        likeliest: then a set's probabilities add up to how often such sets hold. How the probability divides
        among the labels of a set remains the method's word.
        """
        return self._log_probabilities(self._known_features(X)).exp().cpu().numpy()

    def predict_log_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Logs of `predict_proba`, exact where the probabilities are too small for their number format."""
        return self._log_probabilities(self._known_features(X)).cpu().numpy()

    def calibrate(self, X: ArrayLike, candidates: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Set `temperature_` from candidate sets of rows that the model was not fitted on.

        Predictions stay, probabilities change. `propall.estimators.search.PartialLabelClassifierCV` does this
        by itself, from the rows it holds out. Where there are true labels, scikit-learn's
        `CalibratedClassifierCV` takes this classifier as any other, and sees more than candidate sets show.

        Args:
            X: held-out rows.
            candidates: their candidate sets, in any form that `fit` takes.
            sample_weight: one weight per row.
        """
        scores = self._log_probabilities(self._known_features(X)).cpu().numpy() * self.temperature_
        self.temperature_ = fit_temperature(scores, self.candidate_matrix(candidates), sample_weight)
        return self

    def resolve(self, X: ArrayLike, candidates: Any) -> "Resolution":
        """The likeliest candidate of every row, and what to think of it.

        A model that was fitted on these very rows is surer than it should be;
        `propall.estimators.search.resolve_out_of_fold` asks models that have not seen them.

        Args:
            X: rows.
            candidates: their candidate sets, in any form that `fit` takes; blank, or all classes, where
                nothing is known.
        """
        known = self.predict_log_proba(X)
        return Resolution(known, self.candidate_matrix(candidates), self.classes_)

    def candidate_matrix(self, candidates: Any) -> NDArray[np.bool_]:
        """Candidate sets in any form as a matrix with a column for each of the model's classes."""
        check_is_fitted(self)
        known, name = self.classes_.tolist(), "candidates"
        if getattr(candidates, "shape", ())[1:] == (1,):
            candidates = column_or_1d(candidates)
        if not isinstance(candidates, CandidateLabels):
            new = (with_new_names(known, candidates, name, blanks=True) or known)[len(known) :]
            if new:
                raise ValueError(
                    f"{name}: {new[0]!r} is no class of the model, which knows {listed(known)}"
                    f"{class_hint(new[0], known)}. Correct the rows, or fit a model with this class."
                )
        with warnings.catch_warnings():
            # A row without information cannot be learnt from, but can well be resolved.
            warnings.simplefilter("ignore", UninformativeRowsWarning)
            return CandidateLabels.from_any(candidates, known, empty="all", parameter=name).to_numpy()

    def to_torch(self) -> nn.Module:
        """The fitted model as one module: raw features in, logits out.

        Standardisation, the average over members and the temperature are inside, so that the softmax of
        the logits is `predict_proba`. The module is a copy in evaluation mode, on the model's device and in
        the precision of the features it was fitted on.

        Raises:
            ValueError: the method keeps training rows instead of a network.
        """
        check_is_fitted(self)
        return FittedNetwork(self.classifiers_, self.mean_, self.scale_, self.temperature_).eval()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likeliest class of every row."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)
        names: NDArray[Any] = self.classes_[index]
        return names

    def score(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Share of rows whose predicted label is among the candidates in y; the accuracy for ordinary y."""
        check_is_fitted(self)
        own = isinstance(y, CandidateLabels)
        labels = self._labels(y, None if own else with_new_names(self.classes_.tolist(), y, "y"))
        position = {name: i for i, name in enumerate(labels.classes)}
        index = [position.get(name, -1) for name in self.predict(X).tolist()]
        mask = labels.mask.numpy()
        found = mask[np.arange(len(index)), index] & (np.asarray(index) >= 0)
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=float)
        return float(np.average(found.astype(float), weights=weight))

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file of tensors and JSON; nothing in it is ever executed."""
        check_is_fitted(self)
        tensors: dict[str, Tensor] = {}
        members = []
        for i, classifier in enumerate(self.classifiers_):
            own, plain = _dismantled(classifier)
            # Members without a network share the training rows; the file format does not.
            tensors |= {f"member/{i}/{n}": t.cpu().clone().contiguous() for n, t in own.items()}
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
            "method_fields": self._method().hyperparameters(),
            "classes": {"dtype": self.classes_.dtype.str, "names": self.classes_.tolist()},
            "in_shape": list(self._in_shape),
            "temperature": self.temperature_,
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
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, tensors, {"propall": text, "digest": _digest(text, tensors)})

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
        model.temperature_ = header["temperature"]
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
            taken = list(inspect.signature(NETS[self.net]).parameters)[2:]
            for name in options:
                if name not in taken:
                    raise ValueError(
                        f"net_options: {name!r} is no option of the network {self.net!r}, which takes "
                        f"{listed(taken) or 'none'}."
                    )
            return functools.partial(NETS[self.net], **options)
        return self.net

    def _rate(self) -> float:
        if self.learning_rate is not None:
            return self.learning_rate
        return 0.03 if self.net == "linear" else 0.01

    def _algorithm(self, weighted: bool) -> Algorithm:
        method = self._method()
        recipe = Recipe(
            epochs=self.epochs,
            batch_size=self.batch_size,
            optimizer=self.optimizer,
            learning_rate=self._rate(),
            weight_decay=self.weight_decay,
            last_batch="keep",
        )
        if weighted and isinstance(method, Algorithm):
            raise ValueError(
                f"sample_weight: {method.title} has no place for weights; leave them out, "
                "or use another method."
            )
        return method.with_training(TrainingSetup(self._net(), recipe))

    def _seeds(self) -> list[int]:
        members: Any = self.n_estimators
        if not isinstance(members, Integral) or members < 1:
            raise ValueError(f"n_estimators: {members!r} given; expected a whole number from 1 on.")
        first = seed_from(self.random_state)
        return [counter_rng.seed_for(first, f"member {i}") for i in range(members)]

    def _device(self) -> torch.device:
        return best_device(self.device)

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
        mean = _column_means(features, weight, lambda part: part)
        scale = np.sqrt(_column_means(features, weight, lambda part: (part - mean) ** 2))
        mean, scale = mean.astype(features.dtype), scale.astype(features.dtype)
        # Rounding leaves a constant column with a tiny spread; dividing by it would blow it up.
        constant = scale <= 10 * np.finfo(features.dtype).eps * np.abs(mean)
        return mean, np.where(constant | (scale == 0), 1.0, scale)

    def _standardised(self, features: NDArray[Any]) -> Tensor:
        if self.mean_ is not None:
            # One copy, however large: the difference, which is then divided in place.
            given = features.dtype
            features = features - self.mean_
            features /= self.scale_
            features = features.astype(given, copy=False)
        return torch.from_numpy(np.require(features, requirements=["C", "W"]))

    def _labels(self, y: Any, classes: Sequence[Hashable] | None = None) -> CandidateLabels:
        if y is None:
            raise ValueError("y: this classifier requires y to be passed, but the target y is None.")
        if _is_ordinary(y):
            if isinstance(y, list | tuple) and len({isinstance(value, str) for value in y}) > 1:
                y = np.array(y, dtype=object)  # numpy would write NaN among strings as the word
            y = column_or_1d(y, warn=True)
            if y.dtype.kind in "fc":
                assert_all_finite(y, input_name="y")
            if y.dtype.kind != "O":
                check_classification_targets(y)
            if len(y) and len(set(y.tolist())) == 1 and classes is None and self.classes is None:
                only = native(y[0])
                raise ValueError(f"y: 1 class given ({only!r}); a classifier needs at least two classes.")
        return CandidateLabels.from_any(y, classes=classes if classes is not None else self.classes)

    def _log_probabilities(self, x: Tensor) -> Tensor:
        return _mixed([_scores(classifier, x) for classifier in self.classifiers_], self.temperature_)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Resolution:
    """What a model makes of candidate sets: the likeliest candidate of each row, and how sure that is.

    Attributes:
        log_probabilities: of every class, candidate or not.
        candidates: True on the candidates of each row; every row has at least one.
        classes: the name of each column.
    """

    log_probabilities: Float[np.ndarray, "n k"]
    candidates: Bool[np.ndarray, "n k"]
    classes: NDArray[Any]

    def __post_init__(self) -> None:
        if self.log_probabilities.shape != self.candidates.shape:
            raise ValueError(
                f"candidates: {len(self.candidates)} sets for {len(self.log_probabilities)} rows of X; give "
                "one candidate set per row."
            )

    def __len__(self) -> int:
        return len(self.candidates)

    def __repr__(self) -> str:
        several = int((self.candidates.sum(1) > 1).sum())
        text = f"{plural(len(self), 'row')}, {several} of them ambiguous, {len(self.classes)} classes"
        mean = f", mean probability {self.probability.mean():.2f}" if len(self) else ""
        return f"{type(self).__name__}({text} ({listed(self.classes.tolist())}){mean})"

    @property
    def probabilities(self) -> Float[np.ndarray, "n k"]:
        """Of every class, candidate or not; rows sum to one."""
        chances: NDArray[Any] = np.exp(self.log_probabilities)
        return chances

    @functools.cached_property
    def among_candidates(self) -> Float[np.ndarray, "n k"]:
        """Probabilities given that the truth is a candidate: zero elsewhere, rows sum to one."""
        inside = np.where(self.candidates, self.log_probabilities, -np.inf)
        chances: NDArray[Any] = np.exp(log_softmax(inside)) * self.candidates
        return chances

    @functools.cached_property
    def column(self) -> NDArray[np.int64]:
        """The column of each row's label."""
        best: NDArray[np.int64] = np.where(self.candidates, self.log_probabilities, -np.inf).argmax(1)
        return best

    @property
    def label(self) -> NDArray[Any]:
        """The likeliest candidate of each row."""
        names: NDArray[Any] = self.classes[self.column]
        return names

    @property
    def probability(self) -> NDArray[np.float64]:
        """Probability of the label, given that the truth is a candidate; 1 for a set of one."""
        return self.among_candidates[np.arange(len(self)), self.column]

    @property
    def margin(self) -> NDArray[np.float64]:
        """By how much that exceeds the second candidate's; 1 for a set of one."""
        two = np.partition(self.among_candidates, -2, axis=1)[:, -2:]
        return two[:, 1] - two[:, 0]

    @property
    def doubt(self) -> NDArray[np.float64]:
        """Probability that the truth is outside the candidate set."""
        outside: NDArray[np.float64] = np.where(self.candidates, 0.0, self.probabilities).sum(1, dtype=float)
        return outside

    def alternatives(self, most: int = 3) -> list[list[tuple[Hashable, float]]]:
        """The likeliest other labels of each row with their probabilities, candidates or not, best first."""
        logs = self.log_probabilities.copy()
        logs[np.arange(len(self)), self.column] = np.inf
        order = np.argsort(-logs, axis=1, kind="stable")[:, 1 : most + 1]
        chances = np.take_along_axis(self.probabilities, order, axis=1)
        names = self.classes[order]
        return [list(zip(*row, strict=True)) for row in zip(names.tolist(), chances.tolist(), strict=True)]

    def to_frame(self, index: Any = None, *, most: int = 3) -> pd.DataFrame:
        """A table with the columns label, probability, margin, doubt and alternatives.

        Args:
            index: of the table; 0 to n - 1 by default.
            most: how many alternatives to name.
        """
        columns = {name: getattr(self, name) for name in ("label", "probability", "margin", "doubt")}
        return pd.DataFrame({**columns, "alternatives": self.alternatives(most)}, index=index)


class FittedNetwork(nn.Module):
    """Raw features to logits, as `PartialLabelClassifier.to_torch` puts them together.

    Args:
        classifiers: the members; networks or linear maps.
        mean: subtracted from the features, or None.
        scale: the features are divided by it, or None.
        temperature: the logits are divided by it.
    """

    mean: Tensor | None
    scale: Tensor | None

    def __init__(
        self,
        classifiers: Sequence[Classifier],
        mean: NDArray[Any] | None,
        scale: NDArray[Any] | None,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(_module(classifier) for classifier in classifiers)
        reference = next(self.members.parameters())
        for name, values in (("mean", mean), ("scale", scale)):
            self.register_buffer(name, None if values is None else torch.as_tensor(values).to(reference))
        self.temperature = temperature

    def forward(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Logits whose softmax are the probabilities."""
        if self.mean is not None and self.scale is not None:
            x = (x - self.mean) / self.scale
        outputs = [member(x) for member in self.members]
        return outputs[0] / self.temperature if len(outputs) == 1 else _mixed(outputs, self.temperature)


class _DecodedNet(nn.Module):
    """A trained network with what its objective makes of the outputs."""

    def __init__(self, classifier: NetClassifier) -> None:
        super().__init__()
        self.net, self.objective = copy.deepcopy(classifier.net), classifier.objective
        self._parts = {part: list(getattr(classifier.state, part)) for part in ("shared", "trained")}
        for part, names in self._parts.items():
            for name in names:
                self.register_buffer(f"{part}_{name}", getattr(classifier.state, part)[name].clone())

    def forward(self, x: Tensor) -> Tensor:
        parts = {
            part: {name: getattr(self, f"{part}_{name}") for name in names}
            for part, names in self._parts.items()
        }
        return self.objective.scores(self.net(x), State(**parts))


def _refuse_other_outputs(net: nn.Module, run: Run) -> None:
    with torch.no_grad():
        outputs = build(net, run).eval()(run.train.x[:1])
    if outputs.shape != (1, run.train.n_classes):
        raise ValueError(
            f"net: it returns shape {tuple(outputs.shape)} for one row, but there are {run.train.n_classes} "
            f"classes; expected {(1, run.train.n_classes)}, a score for each."
        )


def _module(classifier: Classifier) -> nn.Module:
    if isinstance(classifier, NetClassifier):
        return _DecodedNet(classifier)
    if isinstance(classifier, LinearClassifier):
        classes, features = classifier.weight.shape
        layer = nn.utils.skip_init(nn.Linear, features, classes).to(classifier.weight)
        layer.load_state_dict({"weight": classifier.weight, "bias": classifier.bias})
        return nn.Sequential(nn.Flatten(), layer)
    raise ValueError(
        f"to_torch: a {classifier.name!r} classifier compares with the training rows and is no network; use "
        "`predict_proba`, or choose a method with a network."
    )


def seed_from(random_state: RandomState) -> int:
    """A seed that a random state gives; a generator moves on."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(np.iinfo(np.int32).max))
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _scores(classifier: Classifier, x: Tensor) -> Tensor:
    """Scores whose softmax is what the classifier says; a method may have probabilities of its own."""
    if type(classifier).probabilities is Classifier.probabilities:
        return classifier.scores(x)
    return classifier.probabilities(x).clamp_min(torch.finfo(x.dtype).tiny).log()


def _mixed(scores: Sequence[Tensor], temperature: float) -> Tensor:
    """Log of the average of the members' softmax, at a temperature."""
    mixture = torch.stack([s.log_softmax(-1) for s in scores]).logsumexp(0) - math.log(len(scores))
    return (mixture / temperature).log_softmax(-1)


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


def _parts(rows: NDArray[Any]) -> Iterator[slice]:
    """Slices of rows, few enough that what is computed on one of them takes little memory."""
    step = max(1, NUMBERS_AT_ONCE // max(1, rows[:1].size))
    return (slice(start, start + step) for start in range(0, len(rows), step))


def _column_means(
    features: NDArray[Any], weight: NDArray[Any] | None, of: Callable[[NDArray[Any]], NDArray[Any]]
) -> NDArray[np.float64]:
    """Weighted means of a function of the entries, in 64 bits whatever the features are in."""
    total = np.zeros(features.shape[1])
    for part in _parts(features):
        values = of(features[part].astype(np.float64))
        total += values.sum(0) if weight is None else weight[part].astype(np.float64) @ values
    return total / (len(features) if weight is None else weight.sum(dtype=np.float64))


def _content_keys(features: NDArray[Any], candidates: Tensor) -> Tensor:
    """A whole number per row that depends on nothing but its contents, equal for equal rows."""
    rows = np.ascontiguousarray(features.reshape(len(features), -1))
    bits = rows.view(np.uint64 if rows.dtype == np.float64 else np.uint32)
    key = np.zeros(len(rows), dtype=np.uint64)
    for i, table in enumerate((bits, candidates.numpy())):
        a, b = counter_rng.words(counter_rng.seed_for(i, "content"), torch.arange(table.shape[1]))
        odd = ((a << 31) ^ b | 1).numpy().astype(np.uint64)
        key += np.einsum("ij,j->i", table, odd)
    return torch.from_numpy((key >> np.uint64(32)).astype(np.int64))


def _digest(text: str, tensors: dict[str, Tensor]) -> str:
    return counter_rng.digest(text, *(part for name in sorted(tensors) for part in (name, tensors[name])))


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
