"""Several workers on a folder of tables give what one process gives."""

import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from propall.cli import main as run_command
from propall.estimators.workers import ONE_PROCESS, Workers, connect_to_ray
from propall.tables.fitting import FitOptions
from propall.tables.folders import predict_folder, resolve_folder
from propall.tables.label_source import LabelSource
from propall.tables.larger_than_memory import fit_in_parts
from propall.tables.streaming import predict_to_file, read_parts, resolve_to_file
from tests.tables.test_larger_than_memory import make_frame

LABELS = LabelSource(label="tree")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A table of three files, the second with a row that has no usable label."""
    path = tmp_path_factory.mktemp("table")
    frame = make_frame()
    frame.loc[401, "tree"] = "ash|!birch"
    for i, rows in enumerate((slice(0, 400), slice(400, 410), slice(410, None))):
        frame[rows].to_parquet(path / f"part-{i}.parquet")
    return path


def fit(folder: Path, out: Path, workers: Workers = ONE_PROCESS) -> Path:
    options = FitOptions(effort="quick", epochs=3, seed=2)
    fitted = fit_in_parts(lambda: read_parts(folder), LABELS, out, options, workers=workers)
    return fitted.model.save(out)


@pytest.fixture(scope="module")
def model(folder, tmp_path_factory) -> Path:
    return fit(folder, tmp_path_factory.mktemp("models") / "model")


def read_folder(path: Path) -> pd.DataFrame:
    return pd.concat([pd.read_parquet(file) for file in sorted(path.iterdir())], ignore_index=True)


def check_workers(workers: Workers, model: Path, folder: Path, tmp_path: Path) -> None:
    from propall.tables.model import TableModel

    loaded = TableModel.load(model)
    whole = predict_to_file(loaded, read_parts(folder), tmp_path / "predicted.parquet")
    summary = predict_folder(model, folder, tmp_path / "predicted", workers)
    expected = pd.read_parquet(tmp_path / "predicted.parquet")
    pd.testing.assert_frame_equal(read_folder(tmp_path / "predicted"), expected)
    assert summary.rows == 900
    assert summary.counts() == [(name, rows, pytest.approx(mean)) for name, rows, mean in whole.counts()]
    resolved = resolve_to_file(loaded, lambda: read_parts(folder), tmp_path / "resolved.parquet")
    shared = resolve_folder(model, folder, tmp_path / "resolved", workers)
    expected = pd.read_parquet(tmp_path / "resolved.parquet")
    pd.testing.assert_frame_equal(read_folder(tmp_path / "resolved"), expected)
    assert shared.as_dict()["remarks"] == resolved.as_dict()["remarks"]
    assert (shared.n_rows, shared.ambiguous, shared.sure) == (900, resolved.ambiguous, resolved.sure)
    assert [note.rows for note in shared.notes if note.kind == "unusable label"] == [(401,)]


def check_training(workers: Workers, model: Path, folder: Path, tmp_path: Path) -> None:
    from propall.estimators.persistence import load_fitted

    fit(folder, tmp_path / "shared", workers)
    one, shared = (load_fitted(path / "classifier.safetensors") for path in (model, tmp_path / "shared"))
    assert one.names == shared.names
    for component, other in zip(one.components, shared.components, strict=True):
        nets = component.classifiers_[0].net, other.classifiers_[0].net
        for a, b in zip(*(net.state_dict().values() for net in nets), strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_files_in_this_process(model, folder, tmp_path):
    check_workers(Workers(1), model, folder, tmp_path)


@pytest.mark.slow
def test_two_processes(model, folder, tmp_path):
    check_workers(Workers(2), model, folder, tmp_path)
    check_training(Workers(2), model, folder, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'propall[ray]'")
def test_two_workers_of_ray(model, folder, tmp_path, monkeypatch):
    import ray

    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray leaves sockets open
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        try:
            check_workers(Workers(2, "ray"), model, folder, tmp_path)
            check_training(Workers(2, "ray"), model, folder, tmp_path)
            with pytest.raises(ValueError, match="workers: got 3; the Ray cluster has 2 CPUs"):
                Workers(3, "ray").fit(None, tmp_path, np.array(["a"]))
        finally:
            ray.shutdown()


@pytest.mark.skipif(find_spec("ray") is not None, reason="ray is installed here")
def test_ray_is_not_installed():
    with pytest.raises(ValueError, match="launcher: ray is not installed"):
        connect_to_ray()


def test_what_workers_need(model, folder, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is not a folder of Parquet or CSV files"):
        predict_folder(model, folder / "part-0.parquet", tmp_path / "out", Workers(2))
    with pytest.raises(ValueError, match=r"out: .* exists; several workers write a new folder"):
        predict_folder(model, folder, tmp_path, Workers(2))
    with pytest.raises(ValueError, match="workers: got 0"):
        Workers(0)
    with pytest.raises(ValueError, match="these labels need the answers of all rows"):
        resolve_folder(model, folder, tmp_path / "out", Workers(2), LabelSource(annotators=("tree", "leaf")))


def test_options_that_workers_do_not_support(model, folder, tmp_path, capsys):
    table = tmp_path / "table.csv"
    make_frame(30).to_csv(table, index=False)
    commands = [
        (
            ["fit", str(table), "--label", "tree", "--options", "workers=2", "--out", str(tmp_path / "m")],
            "in memory",
        ),
        (
            ["predict", str(folder), "--model", str(model), "--options", "workers=two", "--out", "x"],
            "workers: got 'two'; expected a number of processes",
        ),
        (
            [
                *("predict", str(folder), "--model", str(model), "--encoding", "cp1251"),
                *("--options", "workers=2", "--out", str(tmp_path / "p")),
            ],
            "encoding: not supported with several workers",
        ),
    ]
    for words, message in commands:
        with pytest.raises(SystemExit) as stop:
            run_command(words)
        assert stop.value.code == 1
        assert message in " ".join(capsys.readouterr().err.split())


def test_notes_count_rows_that_were_dropped_from_earlier_files(model, tmp_path) -> None:
    frame = make_frame()[:20].astype(object)
    number = next(name for name in frame.columns if isinstance(frame[name].iloc[0], float))
    lines = frame.to_csv(index=False).splitlines()
    path = tmp_path / "table"
    path.mkdir()
    (path / "a.csv").write_text("\n".join([*lines[:6], "," * lines[0].count(","), *lines[6:11]]) + "\n")
    frame.loc[15, number] = "wide"
    later = frame[10:].to_csv(index=False)
    (path / "b.csv").write_text(later)
    summary = predict_folder(model, path, tmp_path / "out", ONE_PROCESS)
    rows = {note.kind: note.rows for note in summary.notes}
    assert rows["empty row"] == (5,)
    assert rows["unreadable values"] == (16,)
