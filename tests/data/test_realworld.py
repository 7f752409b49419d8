import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import savemat
from scipy.sparse import csc_matrix

from propall.data import DATASETS, Source, load
from propall.data.dataset import SINGLE_80, shuffled_folds
from propall.data.files import DamagedDataError, MissingDataError
from propall.data.realworld import LOADERS, read_mat

N, D, K = 20, 6, 4
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(N, D)) * 1000
TRUTH = RNG.integers(0, K, N)
ONE_HOT = np.eye(K)[TRUTH]
CANDIDATES = np.maximum(ONE_HOT, RNG.random((N, K)) < 0.3)


def mat(**fields: Any) -> bytes:
    stream = io.BytesIO()
    savemat(stream, fields)
    return stream.getvalue()


def original(
    features: np.ndarray = FEATURES, truth: Any = ONE_HOT.T, candidates: Any = CANDIDATES.T
) -> bytes:
    return mat(data=features, target=truth, partial_target=candidates)


def converted(features: np.ndarray = FEATURES, truth: Any = ONE_HOT, candidates: Any = CANDIDATES) -> bytes:
    folds = np.empty(5, dtype=object)
    folds[:] = [fold.numpy()[None] + 1 for fold in shuffled_folds(N)]
    return mat(features=features, logitlabels=truth, p_labels=candidates, te=folds)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("labels_in_columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize(
    "features_in_columns", [False, True], ids=["features in rows", "features in columns"]
)
@pytest.mark.parametrize("layout", [original, converted])
def test_every_layout_and_orientation_gives_the_same_table(
    layout: Callable[..., bytes], features_in_columns: bool, labels_in_columns: bool, sparse: bool
) -> None:
    labels = [labels.T if labels_in_columns else labels for labels in (ONE_HOT, CANDIDATES)]
    truth, candidates = (csc_matrix(matrix) if sparse else matrix.astype(np.uint8) for matrix in labels)
    table = read_mat(layout(FEATURES.T if features_in_columns else FEATURES, truth, candidates), "file")
    assert np.array_equal(table.features, FEATURES)
    assert np.array_equal(table.truth, TRUTH)
    assert np.array_equal(table.candidates, CANDIDATES.astype(bool))


def test_with_as_many_classes_as_instances_the_truth_decides() -> None:
    n = 5
    truth = np.array([0, 0, 3, 3, 4])
    one_hot = np.eye(n)[truth]
    for stored in (one_hot, one_hot.T):
        table = read_mat(original(np.zeros((n, 2)), stored, stored), "file")
        assert table.truth.tolist() == truth.tolist()


@pytest.mark.parametrize("name", [loader.name for loader in LOADERS])
def test_a_file_becomes_a_source(name: str, tmp_path: Path) -> None:
    (tmp_path / "realworld").mkdir()
    (tmp_path / "realworld" / f"{name}.mat").write_bytes(original())
    source = load(name, tmp_path)
    assert torch.allclose(source.x, torch.from_numpy(FEATURES).float())
    assert source.truth.tolist() == TRUTH.tolist()
    assert torch.equal(source.candidates, torch.from_numpy(CANDIDATES.astype(bool)))
    assert source.classes == ("0", "1", "2", "3")
    problem = source.fold(SINGLE_80)
    assert problem.train.x.mean(0).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("name", "original_name"), [("soccer_player", "Soccer Player"), ("yahoo_news", "Yahoo! News")]
)
def test_files_are_found_under_their_original_names(name: str, original_name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as caught:
        load(name, tmp_path)
    assert "https://palm.seu.edu.cn/zhangml/files/" in str(caught.value)
    assert f"{original_name.replace(' ', '%20')}.rar, which propall cannot unpack" in str(caught.value)
    assert f"Save it as {tmp_path / 'realworld' / name}.mat" in str(caught.value)
    (tmp_path / "realworld").mkdir()
    (tmp_path / "realworld" / f"{original_name}.mat").write_bytes(converted())
    assert load(name, tmp_path).truth.tolist() == TRUTH.tolist()


def test_binary_features_are_stored_as_bytes(tmp_path: Path) -> None:
    binary = (FEATURES > 0).astype(np.uint8)
    (tmp_path / "realworld").mkdir()
    (tmp_path / "realworld" / "italian.mat").write_bytes(original(binary))
    source = load("italian", tmp_path)
    assert source.raw.dtype == torch.uint8
    assert source.x.dtype == torch.float32
    problem = source.fold(0)
    expected = binary[shuffled_folds(N)[0]] - problem_mean(binary)
    assert np.allclose(problem.test_x, expected / problem_std(binary), atol=1e-6)


def train_rows(features: np.ndarray) -> np.ndarray:
    return np.delete(features.astype(np.float64), shuffled_folds(N)[0].numpy(), axis=0)


def problem_mean(features: np.ndarray) -> np.ndarray:
    return train_rows(features).mean(0)


def problem_std(features: np.ndarray) -> np.ndarray:
    return train_rows(features).std(0)


TWO_TRUE = np.maximum(ONE_HOT, np.eye(K)[(TRUTH + 1) % K])
EMPTY = CANDIDATES * (np.arange(N) != 7)[:, None]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (original()[:300], "cannot be read as a .mat file"),
        (b"nothing of the kind" * 20, "cannot be read as a .mat file"),
        (b"", "cannot be read as a .mat file"),
        (mat(data=FEATURES), "expected the variables data/target/partial_target or features/.*, found data"),
        (mat(other=FEATURES), "found none of them"),
        (original(truth=ONE_HOT.T[:-1]), "target has shape .3, 20., partial_target .4, 20."),
        (original(candidates=CANDIDATES.T * 2), "partial_target contains values other than 0 and 1"),
        (original(features=FEATURES * np.nan), "data contains NaN or infinity"),
        (original(features=FEATURES[:-1]), "data has shape .19, 6., target .4, 20.; every instance"),
        (original(truth=TWO_TRUE.T), "needs exactly one true label"),
        (original(candidates=EMPTY.T), "at least one candidate"),
        (original(features=np.array(["text"])), "an array of class 4; only matrices of numbers"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_truncated_and_foreign_files_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(DamagedDataError, match=f"/a/file.mat: .*{problem}"):
        read_mat(data, "/a/file.mat")


def test_files_of_a_newer_format_explain_what_to_do() -> None:
    header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
    with pytest.raises(
        DamagedDataError,
        match=r"version 7\.3 files are not supported; .* save it with -v7",
    ):
        read_mat(header + b"\x89HDF\r\n\x1a\n" + bytes(1000), "file")


# --- the published files ------------------------------------------------------------------------------------


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "sizes", "ever_true", "largest"),
    [
        ("lost", [67, 728, 327], 14, 0.182),
        ("msrcv2", [140, 462, 503, 371, 208, 66, 8], 23, 0.145),
        ("birdsong", [1632, 1409, 1405, 552], 13, 0.256),
        ("fg_net", [0, 1, 12, 36, 89, 148, 189, 226, 194, 77, 30], 63, 0.047),
        ("italian", [13306, 5924, 832, 1816], 77, 0.162),
    ],
)
def test_published_candidate_sets(
    name: str, sizes: list[int], ever_true: int, largest: float, published: Callable[[str], Source]
) -> None:
    source = published(name)
    loader = DATASETS[name]
    assert (len(source), tuple(source.raw.shape[1:]), source.n_classes) == (
        loader.n,
        loader.shape,
        loader.n_classes,
    )
    assert torch.bincount(source.candidates.sum(-1)).tolist() == [0, *sizes]
    assert source.candidates[torch.arange(len(source)), source.truth].all()
    counts = torch.bincount(source.truth, minlength=source.n_classes)
    assert int((counts > 0).sum()) == ever_true
    assert round(float(counts.max()) / len(source), 3) == largest


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "train", "test"), [("lost", 898, 224), ("msrcv2", 1406, 352), ("birdsong", 3998, 1000)]
)
def test_published_sets_are_split_and_standardized(
    name: str, train: int, test: int, published: Callable[[str], Source]
) -> None:
    problem = published(name).fold(SINGLE_80)
    assert (len(problem.train), len(problem.test_x)) == (train, test)
    assert problem.train.x.mean(0).abs().max() < 1e-5
    assert (problem.train.x.std(0, correction=0) - 1).abs().max() < 1e-4
    assert problem.test_x.isfinite().all()


@pytest.mark.realdata
def test_a_column_constant_in_one_fold_stays_finite(published: Callable[[str], Source]) -> None:
    source = published("msrcv2")
    deviations = source.fold(3).train.x.std(0, correction=0)
    assert int((deviations == 0).sum()) == 1
    assert source.fold(3).test_x.isfinite().all()


@pytest.mark.realdata
def test_constant_columns_of_binary_features(published: Callable[[str], Source]) -> None:
    source = published("italian")
    x = source.fold(0, standardize="all").train.x
    assert x.isfinite().all()
    constant = source.raw.amin(0) == source.raw.amax(0)
    assert int(constant.sum()) == 36
    assert not x[:, constant].any()
