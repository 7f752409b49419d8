"""Candidate sets of several annotators against the majority vote, on small made-up images."""

import json

import numpy as np
import pytest
import torch

from propall.cli import main
from propall.paper.studies import annotators
from propall.paper.studies.annotators import (
    AnnotatedImages,
    StudySetting,
    TrainingJob,
    majority_vote,
    score_resolution,
)

SMALL = StudySetting(
    net="linear", epochs=12, batch_size=32, learning_rate=0.002, precision="float32", augmentation="none"
)


@pytest.fixture
def images(tmp_path, monkeypatch):
    """Files in the published layout: a noisy picture per class, and three annotators with errors."""
    random = np.random.default_rng(0)
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "annotations").mkdir()
    truth = random.permuted(np.repeat(np.arange(10), 24))
    pixels = random.integers(0, 128, (10, 3072))[truth] + random.integers(0, 128, (240, 3072))
    records = np.concatenate([truth[:, None], pixels], axis=1).astype(np.uint8)
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    for name, part in zip(names, np.split(records, 6), strict=True):
        (tmp_path / "cifar10" / name).write_bytes(part.tobytes())
    truth = truth[:200]
    said = np.where(random.random((200, 3)) < 0.25, random.integers(0, 10, (200, 3)), truth[:, None])
    arrays = {"clean_label": truth, "aggre_label": truth, "worse_label": truth}
    arrays |= {f"random_label{i + 1}": said[:, i] for i in range(3)}
    np.savez(
        tmp_path / "annotations" / "cifar10n_labels.npz",
        **{name: values.astype(np.uint8) for name, values in arrays.items()},
    )
    monkeypatch.setenv("PROPALL_DATA", str(tmp_path))
    return tmp_path


def test_majority_vote_breaks_ties_evenly():
    answers = torch.tensor([[1, 1, 3], [3, 0, 3], [2, 2, 2], [0, 1, 2]]).repeat(300, 1)
    votes = majority_vote(answers, 4).view(300, 4)
    assert (votes[:, :3] == torch.tensor([1, 3, 2])).all()
    counts = votes[:, 3].bincount(minlength=4)
    assert counts[3] == 0
    assert (counts[:3] > 70).all()
    assert not torch.equal(majority_vote(answers, 4, seed=1), votes.flatten())


def test_people_by_hand(images):
    data = AnnotatedImages.read(SMALL)
    people = data.summarize()
    truth, answers = data.source.truth.numpy(), data.answers.numpy()
    expected = []
    for row, true in zip(answers, truth, strict=True):
        labels, counts = np.unique(row, return_counts=True)
        most = labels[counts == counts.max()]
        expected.append((true in most) / len(most))
    assert people["majority_expected"] == pytest.approx(np.mean(expected))
    assert people["annotators"] == pytest.approx((answers == truth[:, None]).mean(0))
    missing = [true not in row for row, true in zip(answers, truth, strict=True)]
    assert people["without_truth"] == pytest.approx(np.mean(missing))
    assert sum(part["rows"] for part in people["by_size"].values()) == people["rows"] == 200
    assert data.training_labels(TrainingJob("cc", "majority", False)).sum(1).eq(1).all()
    few = AnnotatedImages.read(StudySetting(rows=50))
    assert few.source.truth.bincount().tolist() == [5] * 10
    assert len(few.answers) == 50


def test_what_is_resolved_by_hand():
    logs = np.log([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    candidates = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1]], dtype=bool)
    answers = np.array([[0, 1, 0], [0, 0, 1], [1, 1, 1], [2, 1, 2]])
    halves = [(np.array([2, 3]), np.array([0, 1])), (np.array([0, 1]), np.array([2, 3]))]
    scores = score_resolution(logs, candidates, answers, np.array([0, 2, 1, 1]), halves)
    assert scores["resolved"] == 0.5
    assert scores["by_size"] == {
        "1": {"rows": 1, "right": 1.0},
        "2": {"rows": 3, "right": pytest.approx(1 / 3)},
    }
    assert scores["predicted"] == 0.75
    assert scores["doubt_auc"] == 1
    # Confidence 2/3 twice (one correct), 1 once (correct), 8/9 once (wrong).
    assert scores["error_before"] == pytest.approx((2 * (2 / 3 - 1 / 2) + 0 + 8 / 9) / 4)


def test_a_measurement_from_end_to_end_and_again(images, tmp_path):
    out = tmp_path / "new" / "results.json"
    notes = []
    report = annotators.run_study(
        out, setting=SMALL, methods=["propall", "proden"], device="cpu", note=notes.append
    )
    assert list(report["jobs"]) == [job.key for job in annotators.list_jobs(["propall", "proden"])]
    people, jobs = report["people"], report["jobs"]
    held_out = [numbers for key, numbers in jobs.items() if key.endswith("held out")]
    assert len(held_out) == 3
    for numbers in held_out:
        assert numbers["resolved"] > people["majority_expected"]
        assert numbers["resolved"] <= 1 - people["without_truth"]
        assert numbers["weighed"] > people["majority_expected"]
    assert all(numbers["accuracy"] > 0.5 for numbers in jobs.values() if "accuracy" in numbers)
    assert any("epoch 12 of 12" in line for line in notes)
    assert json.loads(out.read_text()) == json.loads(json.dumps(report))
    notes.clear()
    assert annotators.run_study(out, setting=SMALL, methods=["propall"], note=notes.append) == json.loads(
        out.read_text()
    )
    assert notes == []
    with pytest.raises(ValueError, match="holds results of another setting"):
        annotators.run_study(out, setting=StudySetting())
    out.write_text("{")
    with pytest.raises(ValueError, match="is not a results file of this study"):
        annotators.run_study(out, setting=SMALL)


def test_interrupted_work_is_kept(images, tmp_path):
    out = tmp_path / "results.json"

    class Stopped(Exception):
        pass

    def stop(line):
        if line.startswith("cc/majority/whole: epoch"):
            raise Stopped

    with pytest.raises(Stopped):
        annotators.run_study(out, setting=SMALL, methods=["propall"], device="cpu", note=stop)
    assert list(json.loads(out.read_text())["jobs"]) == ["propall/candidates/whole"]
    notes = []
    annotators.run_study(out, setting=SMALL, methods=["propall"], device="cpu", note=notes.append)
    assert not any(line.startswith("propall/candidates/whole") for line in notes)


def test_methods_without_a_loss_are_refused(images, tmp_path):
    with pytest.raises(ValueError, match="methods: pl_knn is not a loss for a network"):
        annotators.run_study(tmp_path / "out.json", setting=SMALL, methods=["pl_knn"], note=lambda line: None)


def test_the_command(images, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    out = tmp_path / "out.json"
    words = ["annotators", "--epochs", "1", "--rows", "100", "--net", "small_cnn", "--precision", "float32"]
    words += ["--methods", "propall", "--device", "cpu", "--out", str(out)]
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert not stop.value.code
    printed = capsys.readouterr()
    assert "resolved: ProPaLL on candidate sets" in printed.out
    assert "cross-entropy on majority votes" in printed.out
    assert "epoch 1 of 1" in printed.err
    assert json.loads(out.read_text())["setting"]["rows"] == 100
