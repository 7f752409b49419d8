"""Resolved candidate sets: the most probable candidate of each row, with its probability."""

import functools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from propall.estimators.calibration import log_softmax
from propall.wording import list_names, plural


@dataclass(frozen=True, eq=False, repr=False)
class Resolution:
    """The most probable candidate of each row, and how certain it is.

    Attributes:
        log_probabilities: of every class, candidate or not.
        candidates: True for the candidates of each row; every row has at least one.
        classes: class names, one per column.

    Examples:
        >>> import numpy as np
        >>> log_p = np.log([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]])
        >>> candidates = np.array([[False, True, True], [True, True, False]])
        >>> resolution = Resolution(log_p, candidates, np.array(["cat", "dog", "emu"]))
        >>> resolution.label.tolist(), resolution.probability.round(2).tolist()
        (['dog', 'dog'], [0.6, 0.89])
        >>> resolution.doubt.round(2).tolist()
        [0.5, 0.1]
    """

    log_probabilities: Float[np.ndarray, "n k"]
    candidates: Bool[np.ndarray, "n k"]
    classes: NDArray[Any]

    def __post_init__(self) -> None:
        if self.log_probabilities.shape != self.candidates.shape:
            raise ValueError(
                f"candidates: {len(self.candidates)} sets for {len(self.log_probabilities)} rows of X; "
                "expected one candidate set per row."
            )

    def __len__(self) -> int:
        return len(self.candidates)

    def __repr__(self) -> str:
        ambiguous = int((self.candidates.sum(1) > 1).sum())
        text = f"{plural(len(self), 'row')}, {ambiguous} ambiguous, {len(self.classes)} classes"
        mean = f", mean probability {self.probability.mean():.2f}" if len(self) else ""
        return f"{type(self).__name__}({text} ({list_names(self.classes.tolist())}){mean})"

    @property
    def probabilities(self) -> Float[np.ndarray, "n k"]:
        """Probabilities of every class, candidate or not; rows sum to one."""
        probabilities: NDArray[Any] = np.exp(self.log_probabilities)
        return probabilities

    @functools.cached_property
    def among_candidates(self) -> Float[np.ndarray, "n k"]:
        """Probabilities given that the true label is a candidate: zero elsewhere, rows sum to one."""
        inside = np.where(self.candidates, self.log_probabilities, -np.inf)
        probabilities: NDArray[Any] = np.exp(log_softmax(inside)) * self.candidates
        return probabilities

    @functools.cached_property
    def column(self) -> NDArray[np.int64]:
        """Column index of each row's label."""
        best: NDArray[np.int64] = np.where(self.candidates, self.log_probabilities, -np.inf).argmax(1)
        return best

    @property
    def label(self) -> NDArray[Any]:
        """The most probable candidate of each row."""
        names: NDArray[Any] = self.classes[self.column]
        return names

    @property
    def probability(self) -> NDArray[np.float64]:
        """Probability of the label, given that the true label is a candidate; 1 for a single candidate."""
        return self.among_candidates[np.arange(len(self)), self.column]

    @property
    def margin(self) -> NDArray[np.float64]:
        """Difference between `probability` and that of the second candidate; 1 for a single candidate."""
        two = np.partition(self.among_candidates, -2, axis=1)[:, -2:]
        return two[:, 1] - two[:, 0]

    @property
    def doubt(self) -> NDArray[np.float64]:
        """Probability that the true label is not a candidate."""
        outside: NDArray[np.float64] = np.where(self.candidates, 0.0, self.probabilities).sum(1, dtype=float)
        return outside

    def alternatives(self, most: int = 3) -> list[list[tuple[Hashable, float]]]:
        """The most probable other classes of each row, candidates or not, with their probabilities.

        Args:
            most: maximum number of alternatives per row.
        """
        logs = self.log_probabilities.copy()
        logs[np.arange(len(self)), self.column] = np.inf
        order = np.argsort(-logs, axis=1, kind="stable")[:, 1 : most + 1]
        chances = np.take_along_axis(self.probabilities, order, axis=1)
        names = self.classes[order]
        return [list(zip(*row, strict=True)) for row in zip(names.tolist(), chances.tolist(), strict=True)]

    def to_frame(self, index: Any = None, *, most: int = 3) -> pd.DataFrame:
        """A data frame with the columns label, probability, margin, doubt and alternatives.

        Args:
            index: index of the data frame; 0 to n - 1 by default.
            most: maximum number of alternatives per row.
        """
        columns = {name: getattr(self, name) for name in ("label", "probability", "margin", "doubt")}
        return pd.DataFrame({**columns, "alternatives": self.alternatives(most)}, index=index)
