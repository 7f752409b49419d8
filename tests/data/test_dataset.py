from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.model_selection import KFold

from propall.data.corruption import Complementary, Exactly, IndependentFlip, InstanceDependent
from propall.data.dataset import (
    SINGLE_80,
    PartialDataset,
    Problem,
    Scaling,
    Source,
    shuffled_folds,
    standardized,
)

CLASSES = ("a", "b", "c")


def table(n: int = 23) -> Source:
    """Features on very different scales, with candidate sets and without a test set."""
    generator = torch.Generator().manual_seed(0)
    raw = torch.randn(n, 4, generator=generator, dtype=torch.float64) * torch.tensor([1e4, 1e-4, 1.0, 0.0])
    truth = torch.arange(n) % 3
    candidates = torch.nn.functional.one_hot(truth, 3).bool()
    candidates[::2, 1] = True
    return Source(
        "table", raw + 7, truth, CLASSES, candidates=candidates, annotations={"row": torch.arange(n)}
    )


def images(n: int = 12, m: int = 6) -> Source:
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (n + m, 3, 2, 2), generator=generator, dtype=torch.uint8)
    truth = torch.arange(n + m) % 3
    scaling = Scaling((0.5, 0.25, 0.0), (0.5, 1.0, 2.0))
    return Source(
        "images",
        pixels[:n],
        truth[:n],
        CLASSES,
        test_raw=pixels[n:],
        test_truth=truth[n:],
        scaling=scaling,
    )


def same(first: Problem, second: Problem) -> bool:
    return all(
        torch.equal(a, b)
        for a, b in (
            (first.train.x, second.train.x),
            (first.train.candidates, second.train.candidates),
            (first.truth, second.truth),
            (first.test_x, second.test_x),
            (first.test_truth, second.test_truth),
        )
    )


def test_a_partial_dataset_needs_a_set_per_row() -> None:
    with pytest.raises((ValueError, TypeError)):
        PartialDataset(torch.zeros(3, 2), torch.ones(4, 2, dtype=torch.bool))


def test_a_partial_dataset_knows_its_shape() -> None:
    train = images().problem(Exactly(2)).train
    assert (len(train), train.n_classes, train.in_shape) == (12, 3, (3, 2, 2))
    assert torch.equal(train.to("cpu").x, train.x)


# --- pixels -------------------------------------------------------------------------------------------------


def test_pixels_become_features_channel_by_channel() -> None:
    source = images()
    expected = source.raw.float() / 255
    for channel, (mean, std) in enumerate(((0.5, 0.5), (0.25, 1.0), (0.0, 2.0))):
        assert torch.allclose(source.x[:, channel], (expected[:, channel] - mean) / std, atol=1e-6)
    assert source.x.dtype == torch.float32
    assert source.raw.dtype == torch.uint8
    assert torch.equal(source.scaled(Scaling()).x, expected)


def test_scaling_one_channel_works_on_flat_rows_and_leaves_its_input_alone() -> None:
    pixels = torch.tensor([[0.0, 127.5, 255.0]])
    assert torch.allclose(Scaling((0.5,), (0.5,))(pixels), torch.tensor([[-1.0, 0.0, 1.0]]))
    assert pixels[0, 2] == 255


def test_features_have_no_pixel_scaling() -> None:
    with pytest.raises(ValueError, match="scaling: table has features, not pixels"):
        table().scaled(Scaling())


# --- official split -----------------------------------------------------------------------------------------


def test_the_official_split_corrupts_only_the_training_set() -> None:
    source = images()
    problem = source.problem(Complementary(), seed=3)
    assert torch.equal(problem.train.candidates, Complementary()(source.truth, 3, 3))
    assert torch.equal(problem.train.x, source.x)
    assert torch.equal(problem.test_truth, torch.arange(12, 18) % 3)
    assert problem.classes == CLASSES
    assert same(problem.to("cpu"), problem)


def test_scores_reach_the_corruption() -> None:
    source = images()
    scores = torch.randn(12, 3)
    corruption = InstanceDependent(0.4)
    drawn = source.problem(corruption, 5, scores=scores).train.candidates
    assert torch.equal(drawn, corruption(source.truth, 3, 5, scores=scores))


def test_a_corruption_is_required_without_candidate_sets() -> None:
    with pytest.raises(ValueError, match="corruption: images comes without candidate sets"):
        images().problem()


def test_the_official_split_needs_a_test_set() -> None:
    with pytest.raises(ValueError, match="table: the data set has no official test set; use `fold`"):
        table().problem()


# --- folds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "n_folds", "seed"), [(1122, 5, 0), (23, 5, 0), (24, 3, 7), (10, 10, 0)])
def test_folds_are_those_of_scikit_learn(n: int, n_folds: int, seed: int) -> None:
    theirs = KFold(n_folds, shuffle=True, random_state=seed).split(np.zeros(n))
    ours = shuffled_folds(n, n_folds, seed)
    assert len(ours) == n_folds
    for test, (_, expected) in zip(ours, theirs, strict=True):
        assert test.tolist() == expected.tolist()


def test_folds_do_not_touch_the_global_generator() -> None:
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.rand()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    shuffled_folds(50)
    assert np.random.rand() == expected  # noqa: NPY002


@pytest.mark.parametrize(
    ("n", "train", "test"),
    [
        (1122, 898, 224),  # Lost
        (1758, 1406, 352),  # MSRCv2
        (4998, 3998, 1000),  # BirdSong
        (17472, 13978, 3494),  # Soccer Player
        (22991, 18393, 4598),  # Yahoo! News
    ],
)
def test_the_single_split_has_the_published_sizes(n: int, train: int, test: int) -> None:
    raw, truth = torch.zeros(n, 1), torch.zeros(n, dtype=torch.long)
    source = Source("sizes", raw, truth, ("a", "b"), candidates=torch.ones(n, 2, dtype=torch.bool))
    problem = source.fold(SINGLE_80)
    assert (len(problem.train), len(problem.test_x)) == (train, test)
    assert same(problem, source.fold(2))


def test_every_row_is_tested_once_and_not_in_that_training_set() -> None:
    source = table()
    seen = []
    for index, test in enumerate(shuffled_folds(len(source))):
        problem = source.fold(index, standardize=None)
        train = [row for row in range(len(source)) if row not in test]
        assert torch.equal(problem.train.x, source.x[train])
        assert torch.equal(problem.train.candidates, source.candidates[train])
        assert torch.equal(problem.truth, source.truth[train])
        assert torch.equal(problem.test_x, source.x[test])
        assert torch.equal(problem.test_truth, source.truth[test])
        seen += test.tolist()
    assert sorted(seen) == list(range(len(source)))


def test_the_default_standardization_is_fitted_on_the_training_rows() -> None:
    source = table(60)
    problem = source.fold(1)
    test = shuffled_folds(60)[1]
    train = [row for row in range(60) if row not in test]
    fitted = source.raw[train].numpy()
    std = np.where(fitted.std(0) > 0, fitted.std(0), 1)
    assert np.allclose(problem.test_x, (source.raw[test].numpy() - fitted.mean(0)) / std, atol=1e-5)
    assert problem.train.x[:, :3].mean(0).abs().max() < 1e-6
    assert (problem.train.x[:, :3].std(0, correction=0) - 1).abs().max() < 1e-5
    assert problem.train.x[:, 3].abs().max() == 0
    assert same(problem, source.fold(1, standardize="train"))
    assert not same(problem, source.fold(1, standardize="all"))


def test_standardizing_all_rows_uses_all_rows() -> None:
    source = table(60)
    problem = source.fold(1, standardize="all")
    x = torch.cat([problem.train.x, problem.test_x])[:, :3]
    assert x.mean(0).abs().max() < 1e-6
    assert (x.std(0, correction=0) - 1).abs().max() < 1e-5


def test_a_column_constant_in_training_is_shifted_only() -> None:
    # The mean of three times 0.1 is not exactly 0.1, so the deviation is tiny instead of zero.
    train, test = standardized(torch.full((3, 1), 0.1, dtype=torch.float64), torch.tensor([[0.6]]))
    assert train.abs().max() < 1e-15
    assert torch.allclose(test, torch.tensor([[0.5]]))


def test_integers_are_standardized() -> None:
    (x,) = standardized(torch.tensor([[0], [1], [1], [0]], dtype=torch.uint8))
    assert x.squeeze(-1).tolist() == [-1, 1, 1, -1]


def test_images_keep_their_constants_in_folds() -> None:
    source = replace(images(), test_raw=None, test_truth=None)
    problem = source.fold(0, corruption=Exactly(2))
    assert torch.equal(problem.test_x, source.x[shuffled_folds(12)[0]])


def test_a_rows_drawn_set_does_not_depend_on_the_fold() -> None:
    source = table()
    corruption = IndependentFlip(0.4)
    whole = source.candidate_sets(corruption, 9)
    for index, test in enumerate(shuffled_folds(len(source))):
        train = [row for row in range(len(source)) if row not in test]
        assert torch.equal(source.fold(index, corruption=corruption, seed=9).train.candidates, whole[train])


def test_invalid_folds_are_refused() -> None:
    with pytest.raises(ValueError, match="index: got 5; expected a fold from 0 to 4"):
        table().fold(5)
    with pytest.raises(ValueError, match="n_folds: got 30 for 23 rows"):
        table().fold(0, 30)


# --- parts of a source --------------------------------------------------------------------------------------


def test_keeping_classes_relabels_training_and_test_set() -> None:
    part = images().keep_classes([2, 1])
    assert part.classes == ("c", "b")
    assert set(part.truth.tolist()) == {0, 1}
    whole = images()
    kept = whole.truth > 0
    assert torch.equal(part.raw, whole.raw[kept])
    assert torch.equal(part.truth, 2 - whole.truth[kept])
    assert torch.equal(part.test_truth, 2 - whole.test_truth[whole.test_truth > 0])
    assert len(part.test_raw) == len(part.test_truth)


def test_keeping_classes_refuses_invalid_labels() -> None:
    with pytest.raises(ValueError, match=r"labels: got \[1, 3\]"):
        images().keep_classes([1, 3])
    with pytest.raises(ValueError, match=r"labels: got \[1, 1\]"):
        images().keep_classes([1, 1])
    with pytest.raises(ValueError, match="table: classes cannot be dropped"):
        table().keep_classes([0, 1])


def test_the_first_rows_of_each_class() -> None:
    source = table(30)
    part = source.first_per_class(2)
    assert part.annotations["row"].tolist() == [0, 1, 2, 3, 4, 5]
    assert torch.equal(part.candidates, source.candidates[:6])


def test_random_rows_of_each_class() -> None:
    source = table(30)
    part = source.first_per_class(2, seed=1)
    rows = part.annotations["row"].tolist()
    assert rows == sorted(set(rows))
    assert torch.bincount(part.truth).tolist() == [2, 2, 2]
    assert rows == source.first_per_class(2, seed=1).annotations["row"].tolist()
    assert rows != source.first_per_class(2, seed=2).annotations["row"].tolist()
    assert rows != list(range(6))


def test_more_rows_than_a_class_has_are_refused() -> None:
    with pytest.raises(ValueError, match="n: got 8, but class c of table has only 7 rows"):
        table(23).first_per_class(8)


def test_holding_out_splits_the_training_rows() -> None:
    source = table(30)
    part = source.hold_out(8, seed=0)
    assert len(part) == 22
    assert len(part.test_raw) == 8
    rows = {tuple(row) for row in torch.cat([part.raw, part.test_raw]).tolist()}
    assert rows == {tuple(row) for row in source.raw.tolist()}
    assert torch.equal(part.test_raw, source.hold_out(8, seed=0).test_raw)
    assert not torch.equal(part.test_raw, source.hold_out(8, seed=1).test_raw)
    with pytest.raises(ValueError, match="n: got 30 for 30 rows"):
        source.hold_out(30)


# --- invalid sources ----------------------------------------------------------------------------------------


def test_sets_may_miss_the_truth_but_not_be_empty() -> None:
    source = table(6)
    wrong = ~torch.nn.functional.one_hot(source.truth, 3).bool()
    assert torch.equal(
        replace(source, candidates=wrong).fold(0, 3).train.candidates.sum(-1), torch.full((4,), 2)
    )
    empty = wrong.clone()
    empty[4] = False
    with pytest.raises(ValueError, match=r"candidates: 1 empty row in table \(first: 4\)"):
        replace(source, candidates=empty)


@pytest.mark.parametrize(
    "wrong",
    [
        {"truth": torch.tensor([0, 1, 3])},
        {"truth": torch.tensor([0, 1, -1])},
        {"truth": torch.tensor([0, 1])},
        {"candidates": torch.ones(3, 2, dtype=torch.bool)},
        {"test_raw": torch.zeros(2, 4)},
        {"test_raw": torch.zeros(2, 4), "test_truth": torch.tensor([0])},
    ],
    ids=[
        "label too large",
        "label negative",
        "labels too few",
        "classes too few",
        "no test truth",
        "test truth",
    ],
)
def test_inconsistent_parts_are_refused(wrong: dict[str, torch.Tensor]) -> None:
    fields = {"raw": torch.zeros(3, 4), "truth": torch.tensor([0, 1, 2])}
    Source("fits", classes=CLASSES, **fields)
    with pytest.raises((ValueError, TypeError)):
        Source("misfit", classes=CLASSES, **{**fields, **wrong})
