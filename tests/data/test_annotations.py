import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from propall.data import Source, load
from propall.data.files import DamagedDataError, MissingDataError
from tests.data.test_images import cifar_batches, write_cifar

LABELS = ("random_label1", "random_label2", "random_label3")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Five batches of four training images and four test images, nothing annotated yet."""
    write_cifar(tmp_path / "cifar10", "bin", cifar_batches())
    (tmp_path / "annotations").mkdir()
    return tmp_path


def labels_of(root: Path) -> dict[str, np.ndarray]:
    truth = load("cifar10", root).truth.numpy().astype(np.uint8)
    rng = np.random.default_rng(2)
    answers = {name: rng.integers(0, 10, len(truth)).astype(np.uint8) for name in (*LABELS, "aggre_label")}
    return {"clean_label": truth, "worse_label": answers["random_label1"], **answers}


def write_labels(root: Path, labels: dict[str, np.ndarray]) -> None:
    np.savez(root / "annotations" / "cifar10n_labels.npz", **labels)


def test_every_annotators_label_is_a_candidate(root: Path) -> None:
    labels = labels_of(root)
    write_labels(root, labels)
    source = load("cifar10n", root)
    images = load("cifar10", root)
    for row in range(20):
        assert set(source.candidates[row].nonzero().squeeze(-1).tolist()) == {
            int(labels[a][row]) for a in LABELS
        }
    assert torch.equal(source.truth, images.truth)
    assert torch.equal(source.test_x, images.test_x)
    for name in (*LABELS, "aggre_label", "worse_label"):
        assert source.annotations[name].tolist() == labels[name].tolist()
    # Candidate sets may miss the true class, as random labels mostly do.
    assert not source.candidates[torch.arange(20), source.truth].all()
    assert torch.equal(source.problem().train.candidates, source.candidates)


def test_classes_with_votes_are_candidates(root: Path) -> None:
    counts = np.random.default_rng(3).integers(0, 3, (4, 10))
    counts[:, 0] += 1
    np.save(root / "annotations" / "cifar10h-counts.npy", counts)
    source = load("cifar10h", root)
    images = load("cifar10", root)
    assert torch.equal(source.candidates, torch.from_numpy(counts > 0))
    assert torch.equal(source.raw, images.test_raw)
    assert torch.equal(source.truth, images.test_truth)
    assert source.annotations["counts"].tolist() == counts.tolist()
    problem = source.fold(0, 2)
    assert len(problem.train) == len(problem.test_x) == 2
    assert problem.train.x.shape[1:] == (3, 32, 32)


def test_votes_need_the_test_images_only(root: Path) -> None:
    np.save(root / "annotations" / "cifar10h-counts.npy", np.ones((4, 10), np.int64))
    (root / "cifar10" / "data_batch_1.bin").unlink()
    assert len(load("cifar10h", root)) == 4


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"clean_label": np.zeros(20, np.uint8)},
            "the clean labels do not match those of the images",
        ),
        ({"random_label2": np.zeros(19, np.uint8)}, "the arrays differ in length"),
        ({"random_label2": np.full(20, 10, np.uint8)}, "random_label2 must be a vector of labels 0 to 9"),
        ({"random_label2": np.zeros(20)}, "random_label2 must be a vector of labels 0 to 9"),
    ],
)
def test_invalid_labels_are_refused(change: dict[str, np.ndarray], problem: str, root: Path) -> None:
    write_labels(root, {**labels_of(root), **change})
    with pytest.raises(DamagedDataError, match=f"cifar10n_labels.npz: {problem}"):
        load("cifar10n", root)


def test_pickles_and_other_files_are_refused(root: Path) -> None:
    path = root / "annotations" / "cifar10n_labels.npz"
    labels = labels_of(root)
    write_labels(root, {name: array.astype(object) for name, array in labels.items()})
    with pytest.raises(DamagedDataError, match="saved without pickle"):
        load("cifar10n", root)
    path.write_bytes(b"something else")
    with pytest.raises(DamagedDataError, match=r"cifar10n_labels.npz: cannot be read"):
        load("cifar10n", root)
    del labels["random_label3"]
    write_labels(root, labels)
    with pytest.raises(DamagedDataError, match="random_label3"):
        load("cifar10n", root)


@pytest.mark.parametrize("counts", [np.ones((5, 10), np.int64), np.ones((4, 10))], ids=["rows", "fractions"])
def test_invalid_votes_are_refused(counts: np.ndarray, root: Path) -> None:
    np.save(root / "annotations" / "cifar10h-counts.npy", counts)
    with pytest.raises(
        DamagedDataError, match=r"cifar10h-counts.npy: .* expected integers of shape \(4, 10\)"
    ):
        load("cifar10h", root)


def test_truncated_votes_are_refused(root: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, np.ones((4, 10), np.int64))
    (root / "annotations" / "cifar10h-counts.npy").write_bytes(stream.getvalue()[:-8])
    with pytest.raises(DamagedDataError, match=r"cifar10h-counts.npy: cannot be read"):
        load("cifar10h", root)


def test_the_labels_in_a_pickle_must_be_converted_by_hand(root: Path) -> None:
    with pytest.raises(MissingDataError) as caught:
        load("cifar10n", root)
    assert "CIFAR-10_human.pt, a pickle, which propall does not open" in str(caught.value)
    assert f"Save it as {root / 'annotations' / 'cifar10n_labels.npz'}" in str(caught.value)


# --- the published files ------------------------------------------------------------------------------------


@pytest.mark.realdata
@pytest.mark.slow
def test_published_labels_of_three_annotators(published: Callable[[str], Source]) -> None:
    source = published("cifar10n")
    assert torch.bincount(source.candidates.sum(-1)).tolist() == [0, 30178, 16781, 3041]
    inside = source.candidates[torch.arange(50000), source.truth]
    assert round(float(inside.double().mean()), 4) == 0.9787
    errors = {
        name: float((labels != source.truth).double().mean()) for name, labels in source.annotations.items()
    }
    assert {name: round(100 * error, 2) for name, error in errors.items()} == {
        "aggre_label": 9.01,
        "worse_label": 40.21,
        "random_label1": 17.23,
        "random_label2": 18.12,
        "random_label3": 17.64,
    }
    assert source.candidates[torch.arange(50000), source.annotations["worse_label"]].all()


@pytest.mark.realdata
@pytest.mark.slow
def test_published_votes(published: Callable[[str], Source]) -> None:
    source = published("cifar10h")
    votes = source.annotations["counts"]
    assert int(votes.sum()) == 511000
    assert (int(votes.sum(-1).min()), int(votes.sum(-1).max())) == (47, 63)
    sizes = source.candidates.sum(-1)
    assert round(float(sizes.double().mean()), 3) == 1.940
    assert round(float((sizes == 1).double().mean()), 3) == 0.439
    inside = source.candidates[torch.arange(10000), source.truth]
    assert round(float(inside.double().mean()), 4) == 0.9996
    assert round(float((votes.argmax(-1) == source.truth).double().mean()), 4) == 0.9921
