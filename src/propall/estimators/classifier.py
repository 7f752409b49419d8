"""Any method as a scikit-learn classifier: `fit(X, y)` with labels or candidate sets in y."""

import functools
import inspect
from collections.abc import Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from propall.estimators.calibration import fit_temperature
from propall.estimators.candidate_mixin import CandidateMixin
from propall.estimators.ensemble import (
    Ensemble,
    RandomState,
    Scaling,
    Standardization,
    Targets,
    check_outputs,
    log_mixture,
    member_scores,
    out_of_bag_probabilities,
)
from propall.estimators.export import FittedNetwork, linear_map
from propall.estimators.persistence import load_model, save_model
from propall.estimators.validation import check_features, check_training_data
from propall.methods import METHODS
from propall.methods.propall import PROPALL_WITH_VIEWS, ProPaLL
from propall.nets import NETS
from propall.training.compiled import best_device
from propall.training.contract import Algorithm, Classifier, NetFactory, Objective
from propall.training.metrics import ProgressBar
from propall.training.recipe import Recipe
from propall.training.views import Views
from propall.wording import list_names


@dataclass(eq=False, repr=False)
class PartialLabelEstimator(CandidateMixin, BaseEstimator):
    """Parameters that a classifier and a search for one share."""

    _: KW_ONLY
    batch_size: int = 256
    optimizer: Literal["adam", "sgd"] = "adam"
    n_estimators: int = 1
    standardize: Scaling = True
    views: bool | str | Views | None = None
    classes: Sequence[Hashable] | None = None
    device: str = "auto"
    verbose: bool = False
    random_state: RandomState = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@dataclass(eq=False, repr=False)
class PartialLabelClassifier(PartialLabelEstimator):
    """Classifier for ordinary labels, candidate sets and complementary labels.

    Args:
        method: a name from `propall methods`, or an objective or algorithm such as `ProPaLL(noise=0.5)`. With
            strong views, "propall" has no noise on the logits.
        net: "linear", "mlp" or another name from `propall.nets.NETS`; a function (shape of one row, number of
            classes) -> module; or an `nn.Module` whose weights training starts from. Ignored by methods
            without a network.
        net_options: keyword arguments of a named network, such as `{"widths": (500,)}`.
        epochs: passes over the data.
        batch_size: rows per step, at most all of them.
        optimizer: "adam" or "sgd".
        learning_rate: initial learning rate; None: 0.03 for the linear network, 0.01 for others.
        weight_decay: factor of the L2 penalty.
        schedule: "constant" keeps the learning rate; "one_cycle" raises it from a 25th over the first 30 % of
            the steps and then lowers it to nearly 0. Views have their own schedule.
        views: train on augmented views of images, with a learning rate that rises and falls: a `Views`; True
            for defaults by kind of image (color images are mirrored, gray ones are not; operations are
            gentler below 16 pixels; a balance term in the first half of training makes it rare that a class
            is lost); or a name from `propall methods --views`, such as "crdpll", for its targets with
            `method` as base loss. Needs a network for images, such as "small_cnn" or "fast_convnet".
        n_estimators: ensemble size; members are trained together from different seeds, and their
            probabilities averaged.
        bagging: share of the rows that each member is trained on; None: all rows.
        targets: where the label weights of a method that has them, such as PRODEN, come from: the member's
            "own" outputs, or the mean posterior of its "peer" members from 5 % of the epochs on. "balanced
            peer" also keeps the share of each class that it has if the candidates of a row count equally, so
            that labels which accompany many others do not take over. With bagging, peers are the members
            that leave out the same rows, if there are at least two for each part of the rows (10 members for
            `bagging=0.8`); with fewer members, all others are, and `out_of_bag_` is then too optimistic:
            members learn from peers that have seen the rows they leave out.
        standardize: scaling of tabular features: True or "z-score" for zero mean and unit variance; "min-max"
            to [0, 1]; "square root" for the z-score of the square root of the distance to the column's
            minimum, which suits histograms; False to leave them unchanged. With views, any but False scales
            the channels of images to zero mean and unit variance.
        class_weight: weights of classes by name, or "balanced" for weights inversely proportional to the
            class frequencies, where a row counts in equal parts for its candidates; None for equal weights.
            A row has the mean weight of its candidates, multiplied by its `sample_weight`.
        classes: class names in order, for candidate matrices or to fix the order; inferred from y by default.
        device: "auto" (a GPU if available), "cpu", "cuda", ...
        verbose: show a progress bar on a terminal.
        random_state: seed or generator, for reproducible results.

    Attributes:
        classes_: class names, in the order of the columns of `predict_proba`.
        n_features_in_: number of features seen in `fit`.
        in_shape_: shape of one row seen in `fit`.
        pixels_: range of the pixels seen in `fit`, after bytes were divided by 255; None without images.
        classifiers_: the fitted members.
        mean_: column means that are subtracted from the features, or None.
        scale_: standard deviations that the features are divided by, or None.
        floor_: column minima that are subtracted before the square root, or None.
        temperature_: divisor of the log-probabilities; 1 until `calibrate` is called.
        coef_: (k, d) weights of the raw features for a single linear model, (1, d) for two classes:
            `decision_function(X) = X @ coef_.T + intercept_`. Other models have no such attribute.
        intercept_: (k,) constants of the same model, (1,) for two classes.
        out_of_bag_: (n, k) probabilities of the training rows by the members that were not trained on them,
            NaN for rows in every bag; None without bagging. It is not saved.

    Notes:
        Computes in the precision of X: float32 stays float32, everything else becomes float64. Shuffling and
        noise depend on the contents of a row, not its position, so networks do not depend on the order of the
        rows, but trees do; if one batch holds all rows, a weight of 2 equals listing a row twice.

    Examples:
        >>> from propall import PartialLabelClassifier
        >>> X = [[0.0, 1.0], [1.0, 0.0], [0.1, 0.9], [0.9, 0.2]]
        >>> clf = PartialLabelClassifier(random_state=0).fit(X, ["cat|dog", "dog", "cat", "dog|cow"])
        >>> clf.predict([[0.0, 1.0]]).item()
        'cat'
    """

    method: str | Objective | Algorithm = "propall"
    net: str | NetFactory | nn.Module = "linear"
    _: KW_ONLY
    net_options: Mapping[str, Any] | None = None
    epochs: int = 200
    learning_rate: float | None = None
    weight_decay: float = 1e-4
    schedule: Literal["constant", "one_cycle"] = "constant"
    bagging: float | None = None
    targets: Targets = "own"
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None

    def fit(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the ensemble to labels or candidate sets.

        Args:
            X: (n, d) numbers as an array, DataFrame or sparse matrix. For named networks for images and with
                views also images: (n, h, w), (n, h, w, c) or (n, c, h, w), where the channels are the second
                axis if it has 1, 3 or 4 entries, else the last if that has. Bytes (uint8) are divided by 255.
                Prediction takes them as bytes or on the scale of the training images; on a clearly different
                scale they are an error.
            y: one entry per row: ordinary labels, candidate sets in any form that
                `CandidateLabels.from_any` accepts, or a `CandidateLabels`.
            sample_weight: one weight per row.
        """
        features, labels, weight = check_training_data(self, X, y, sample_weight)
        ensemble = self.ensemble().adapted_to(self.in_shape_)
        standardization = ensemble.standardization(features, weight)
        whole = ensemble.whole_run(features, labels, weight, standardization)
        runs = ensemble.members(whole)
        algorithm = ensemble.algorithm(weighted=weight is not None)
        if isinstance(self.net, nn.Module) and isinstance(ensemble.method, Objective):
            check_outputs(self.net, whole)
        with ProgressBar(f"fitting {ensemble.method.title}") if self.verbose else nullcontext() as bar:
            classifiers = algorithm.fit(runs, monitor=bar)
        classes = labels.decode(range(labels.n_classes))
        out_of_bag = None if self.bagging is None else out_of_bag_probabilities(classifiers, runs, whole)
        return self.adopt(classifiers, classes, self.in_shape_, standardization, out_of_bag=out_of_bag)

    def _resolve_method(self) -> Objective | Algorithm:
        if not isinstance(self.method, str):
            return self.method
        has_strong_views = self.views.n_strong > 0 if isinstance(self.views, Views) else bool(self.views)
        if has_strong_views and self.method == ProPaLL.name:
            return PROPALL_WITH_VIEWS
        return METHODS[self.method]()

    def ensemble(self) -> Ensemble:
        """Return the ensemble that the parameters describe: method, network, recipe, seeds and device."""
        default_rate = 0.03 if self.net == "linear" else 0.01
        recipe = Recipe(
            epochs=self.epochs,
            batch_size=self.batch_size,
            optimizer=self.optimizer,
            learning_rate=default_rate if self.learning_rate is None else self.learning_rate,
            weight_decay=self.weight_decay,
            last_batch="keep",
            **self._schedule_fields(),
        )
        return Ensemble(
            method=self._resolve_method(),
            net=self._net_factory(),
            recipe=recipe,
            standardize=self.standardize,
            n_members=self.n_estimators,
            random_state=self.random_state,
            device_name=self.device,
            views=self.views,
            bagging=self.bagging,
            targets=self.targets,
        )

    def _schedule_fields(self) -> dict[str, Any]:
        if self.schedule not in ("constant", "one_cycle"):
            raise ValueError(f"schedule: got {self.schedule!r}; expected 'constant' or 'one_cycle'.")
        if self.views:
            return {"schedule": "cosine", "warm_up": 0.1}
        return {} if self.schedule == "constant" else {"schedule": "one_cycle", "warm_up": 0.3}

    def _net_factory(self) -> NetFactory | nn.Module:
        if not isinstance(self.net, str):
            return self.net
        options = self.net_options or {}
        known = list(inspect.signature(NETS[self.net]).parameters)[2:]
        if unknown := [name for name in options if name not in known]:
            raise ValueError(
                f"net_options: the network {self.net!r} has no option {unknown[0]!r}; its options are "
                f"{list_names(known) or 'none'}."
            )
        return functools.partial(NETS[self.net], **options)

    def adopt(
        self,
        classifiers: Sequence[Classifier],
        classes: NDArray[Any],
        in_shape: tuple[int, ...],
        standardization: Standardization,
        temperature: float = 1.0,
        out_of_bag: NDArray[Any] | None = None,
    ) -> Self:
        """Set the fitted attributes, from members trained by `fit`, by a search, or read from a file."""
        self.classifiers_ = list(classifiers)
        self.classes_ = classes
        self.in_shape_ = in_shape
        self.mean_, self.scale_, self.floor_ = standardization
        self.temperature_ = temperature
        self.out_of_bag_ = out_of_bag
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Return scores: (n, k), or for two classes (n,), positive for the second class."""
        x = self._inputs(X)
        single = len(self.classifiers_) == 1
        scores = (self.classifiers_[0].scores(x) if single else self._log_probabilities(x)).cpu()
        return (scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores).numpy()

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return class probabilities, averaged over the members.

        For networks these are the softmax of the outputs; for ProPaLL, the probability that a class fires
        alone, given that exactly one does. They are as calibrated as the method is, until `calibrate` fits a
        temperature to held-out candidate sets. Then the probability of a candidate set matches how often such
        sets contain the true label; how it is divided among the candidates remains up to the method.
        """
        return self._log_probabilities(self._inputs(X)).exp().cpu().numpy()

    def predict_log_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return log-probabilities, accurate even if the probabilities underflow."""
        return self._log_probabilities(self._inputs(X)).cpu().numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of every row."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)
        names: NDArray[Any] = self.classes_[index]
        return names

    def calibrate(self, X: ArrayLike, candidates: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Set `temperature_` from held-out candidate sets.

        Predictions do not change, probabilities do. `propall.PartialLabelClassifierCV` calibrates
        automatically, on the rows it holds out. With true labels, prefer scikit-learn's
        `CalibratedClassifierCV`: they are more informative than candidate sets.

        Args:
            X: features of rows that the model was not fitted on.
            candidates: their candidate sets, in any form that `fit` accepts.
            sample_weight: one weight per row.
        """
        scores = self._log_probabilities(self._inputs(X)).cpu().numpy() * self.temperature_
        self.temperature_ = fit_temperature(scores, self.candidate_matrix(candidates), sample_weight)
        return self

    @property
    def coef_(self) -> NDArray[Any]:
        """Weights of the raw features, for a single linear model."""
        return self._linear_map("coef_")[0]

    @property
    def intercept_(self) -> NDArray[Any]:
        """Constants of the decision function, for a single linear model."""
        return self._linear_map("intercept_")[1]

    def _linear_map(self, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
        check_is_fitted(self)
        standardization = Standardization(self.mean_, self.scale_, self.floor_)
        found = linear_map(self.classifiers_, standardization)
        if found is None:
            raise AttributeError(
                f"{name}: this model is not linear in its features; expected net='linear', n_estimators=1 "
                "and standardize other than 'square root'. Use `to_torch` for the weights of a network."
            )
        weight, bias = found
        return (weight[1:] - weight[:1], bias[1:] - bias[:1]) if len(bias) == 2 else (weight, bias)

    @property
    def partial_fit(self) -> NoReturn:
        """Not available; the error says why."""
        raise AttributeError(
            "partial_fit: not available, because methods with memory (PRODEN, RC, ...) need all rows and "
            "ProPaLL's noise schedule needs the number of steps. Call fit with all rows, or use "
            "propall.PartialLabelLoss in a training loop."
        )

    def to_torch(self) -> nn.Module:
        """Return the fitted model as a module from raw features to logits.

        The module includes standardization, the average over members and the temperature: the softmax of its
        output is `predict_proba`. It is a copy in evaluation mode, on the model's device and in the precision
        of the training features.

        Raises:
            ValueError: if the method keeps training rows instead of a network.
        """
        check_is_fitted(self)
        standardization = Standardization(self.mean_, self.scale_, self.floor_)
        return FittedNetwork(self.classifiers_, standardization, self.temperature_).eval()

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a file of tensors and JSON; loading it executes no code."""
        check_is_fitted(self)
        save_model(self, path)

    @classmethod
    def load(cls, path: str | Path, *, net: NetFactory | nn.Module | None = None) -> Self:
        """Read a model written by `save`.

        Args:
            path: the file.
            net: the network, for a model fitted with one that is not named in `propall.nets.NETS`: its
                factory, or a module of the same architecture.
        """
        return load_model(cls, path, net)

    def _inputs(self, X: Any) -> Tensor:
        """Checked and standardized features on the model's device."""
        check_is_fitted(self)
        features = check_features(self, X, reset=False)
        standardization = Standardization(self.mean_, self.scale_, self.floor_)
        return standardization.apply(features).to(best_device(self.device))

    def _log_probabilities(self, x: Tensor) -> Tensor:
        return log_mixture([member_scores(c, x) for c in self.classifiers_], self.temperature_)
