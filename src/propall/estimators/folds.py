"""Cross-validation folds for candidate sets."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.model_selection import BaseCrossValidator

from propall import counter_rng
from propall.estimators.validation import read_candidates
from propall.labels.candidates import CandidateLabels

#: Row indices to fit on and row indices to hold out.
Fold = tuple[NDArray[np.int64], NDArray[np.int64]]

#: Largest group of rows with equal features that is treated as copies of one row.
MAX_COPIES = 10


class CandidateStratifiedKFold(BaseCrossValidator):
    """Stratified k-fold splitter for candidate sets, compatible with scikit-learn.

    A row with candidate set S counts 1/|S| for each of its labels, and every label gets about the same total
    in each fold. Rows with small sets are assigned first, each to the fold that lacks its labels most; fold
    sizes differ by at most one row. Up to `MAX_COPIES` rows with equal features go into the same fold, so
    that no model is evaluated on a copy of a training row. Larger groups are common with coarse features and
    are split, as are all groups if there are fewer distinct rows than folds.

    Args:
        n_splits: number of folds.
        random_state: seed for breaking ties.

    References:
        [sechidis2011stratification], for multi-label data.

    Notes:
        The published rule takes the rarest label first and considers that label alone. Considering all labels
        of a row, smallest sets first, halves the remaining imbalance. Rows with the same candidate set are
        distributed evenly; only the remainder is assigned one by one, which is fast for data with few
        distinct sets.

    Examples:
        >>> import numpy as np
        >>> y = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]], dtype=bool)
        >>> [test.tolist() for _, test in CandidateStratifiedKFold(2).split(np.zeros((6, 1)), y)]
        [[0, 4, 5], [1, 2, 3]]
    """

    def __init__(self, n_splits: int = 5, *, random_state: int = 0) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits

    def _iter_test_indices(self, X: Any = None, y: Any = None, groups: Any = None) -> Iterator[NDArray[Any]]:
        if y is None:
            raise ValueError("y: missing; folds are stratified by candidate sets. Pass them to `split`.")
        fold = self.assign(read_candidates(y).to_numpy(), X)
        for number in range(self.n_splits):
            yield np.flatnonzero(fold == number)

    def assign(self, candidates: NDArray[np.bool_], X: Any = None) -> NDArray[np.int64]:
        """Return the index of the fold that holds out each row.

        Args:
            candidates: (n, k), True for candidates.
            X: features, for detecting copies of a row.
        """
        n, folds = len(candidates), self.n_splits
        if not 2 <= folds <= n:
            raise ValueError(f"n_splits: got {folds} folds for {n} rows; expected 2 to {n}.")
        seed = counter_rng.seed_for(self.random_state, "folds")
        shuffled = counter_rng.order(seed, torch.arange(n)).numpy()
        ties = counter_rng.uniform(seed, torch.arange(n)[:, None], torch.arange(folds)).numpy()
        fold = np.full(n, -1)
        capacity = np.full(folds, n // folds) + (np.arange(folds) < n % folds)
        deficit = np.zeros((folds, candidates.shape[1]))
        if (group := group_equal_rows(X, n)) is not None and group.max() + 1 >= folds:
            groups = np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])
            copies = [rows for rows in groups if 1 < len(rows) <= MAX_COPIES]
            self._assign_groups(copies, candidates, fold, capacity, deficit, ties)
            shuffled = shuffled[fold[shuffled] < 0]
        remainders = []
        _, distinct = np.unique(np.packbits(candidates[shuffled], axis=1), axis=0, return_inverse=True)
        by_set = np.argsort(distinct.ravel(), kind="stable")
        for rows in np.split(shuffled[by_set], np.cumsum(np.bincount(distinct.ravel()))[:-1]):
            per_fold = len(rows) // folds
            fold[rows[: per_fold * folds]] = np.tile(np.arange(folds), per_fold)
            capacity -= per_fold
            remainders.append(rows[per_fold * folds :])
        self._assign_groups(np.concatenate(remainders)[:, None], candidates, fold, capacity, deficit, ties)
        return fold

    def _assign_groups(
        self,
        groups: Sequence[NDArray[Any]] | NDArray[Any],
        candidates: NDArray[np.bool_],
        fold: NDArray[Any],
        capacity: NDArray[Any],
        deficit: NDArray[Any],
        ties: NDArray[Any],
    ) -> None:
        """Assign groups of rows to folds one by one, updating `fold`, `capacity` and `deficit` in place."""
        if not len(groups):
            return
        shares = candidates / candidates.sum(1, keepdims=True)
        starts = np.cumsum([0, *map(len, groups[:-1])])
        weight = np.add.reduceat(shares[np.concatenate(groups)], starts)
        deficit += weight.sum(0) / self.n_splits
        first_tie = np.array([ties[rows[0], 0] for rows in groups])
        # Concentrated groups first; the small shares of large sets can still balance the folds afterwards.
        for i in np.lexsort((first_tie, -np.square(weight).sum(1))):
            rows = groups[i]
            # The fold where the sum of squared deficits decreases most.
            gain = np.where(capacity >= min(len(rows), capacity.max()), deficit @ weight[i], -np.inf)
            # Sums of 1/|S| are rounded, so equal gains may differ in the last digits.
            best = np.lexsort((ties[rows[0]], -capacity, -np.round(gain, 9)))[0]
            fold[rows] = best
            deficit[best] -= weight[i]
            capacity[best] -= len(rows)


def group_equal_rows(X: Any, n: int) -> NDArray[np.int64] | None:
    """Number the distinct rows of X from 0 and return each row's number.

    None if all rows differ, entries cannot be hashed, or X, an array, sparse matrix, data frame or list, does
    not have n rows.
    """
    keys: Iterable[Any]
    if issparse(X):
        matrix: Any = csr_array(X, copy=True)  # type: ignore[call-overload]
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        ends = itertools.pairwise(matrix.indptr)
        keys = (hash((matrix.indices[a:b].tobytes(), matrix.data[a:b].tobytes())) for a, b in ends)
    else:
        values = np.asarray(X)
        if values.ndim == 0 or len(values) != n:
            return None
        flat = values.reshape(n, -1)
        if flat.dtype == object:
            # NaN is unequal to itself. Hashes would do for bytes, but those of -1 and -2 are equal.
            keys = (tuple("NaN" if _is_nan(value) else value for value in row) for row in flat.tolist())
        elif flat.dtype.kind in "fc":
            keys = (hash((row + 0.0).tobytes()) for row in flat)  # -0.0 becomes 0.0
        else:
            keys = (hash(row.tobytes()) for row in flat)
    numbers: dict[Any, int] = {}
    try:
        group = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    except TypeError:  # entries such as lists
        return None
    return group if len(numbers) < n else None


def keys_of_copies(keys: NDArray[np.int64], X: Any) -> NDArray[np.int64]:
    """Keys of rows, where up to `MAX_COPIES` rows with equal features all have the smallest of their keys.

    An order by keys then keeps copies together, whatever their candidates are.
    """
    if (group := group_equal_rows(X, len(keys))) is None:
        return keys
    smallest = np.full(group.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(smallest, group, keys)
    return np.where(np.bincount(group)[group] <= MAX_COPIES, smallest[group], keys)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def make_folds(cv: Any, X: Any, labels: CandidateLabels) -> list[Fold]:
    """Return this number of folds, those of a splitter, or pairs (rows to fit on, rows to hold out)."""
    if isinstance(cv, int | np.integer):
        cv = CandidateStratifiedKFold(int(cv))
    pairs = cv.split(X, labels) if hasattr(cv, "split") else cv
    return [(np.asarray(fit), np.asarray(hold)) for fit, hold in pairs]


def make_partition(cv: Any, X: Any, labels: CandidateLabels) -> list[Fold]:
    """Return folds that hold out each row exactly once."""
    folds = make_folds(cv, X, labels)
    if not is_partition(folds, len(labels)):
        raise ValueError("cv: each row must be held out exactly once. Use a splitter such as KFold.")
    return folds


def is_partition(folds: Sequence[Fold], n: int) -> bool:
    """Whether each of n rows is held out exactly once."""
    held_out = np.concatenate([hold for _, hold in folds])
    return np.array_equal(np.sort(held_out), np.arange(n))
