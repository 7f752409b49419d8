"""A model fitted in parts is the model of the whole table in memory."""

import gzip
import json
import math
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from propall import CandidateLabels, PartialLabelClassifier
from propall.cli import main as run_command
from propall.data.stored import RowWriter, StoredDataset
from propall.estimators.calibration import fit_temperature
from propall.estimators.stored_fitting import StoredSettings, check_streamable, fit_stored
from propall.tables import larger_than_memory
from propall.tables.features import Features
from propall.tables.fitting import FitOptions
from propall.tables.label_cells import CellReader, NameCounts
from propall.tables.label_columns import open_table
from propall.tables.label_source import LabelSource
from propall.tables.larger_than_memory import fit_in_parts, needs_parts, parse_size
from propall.tables.model import TableModel
from propall.tables.reading import RawTable, read_table
from propall.tables.streaming import read_parts

LABELS = LabelSource(label="tree")
NAMES = np.array(["ash", "birch", "cedar"])


def make_frame(n: int = 900, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, 3, n)
    height = truth * 2.0 + draw.normal(size=n)
    leaf = np.where(draw.random(n) < 0.1, None, np.array(["wide", "thin", "needle"])[truth])
    second = (truth + draw.integers(1, 3, n)) % 3
    both = draw.random(n) < 0.5
    cells = [
        f"{NAMES[a]}|{NAMES[b]}" if more else str(NAMES[a])
        for a, b, more in zip(truth, second, both, strict=True)
    ]
    frame = pd.DataFrame({"height": height, "girth": draw.normal(size=n), "leaf": leaf, "tree": cells})
    frame.loc[draw.random(n) < 0.05, "girth"] = np.nan
    return frame


@pytest.fixture
def folder(tmp_path) -> Path:
    """The table as three Parquet files."""
    path = tmp_path / "table"
    path.mkdir()
    frame = make_frame()
    for i, rows in enumerate((slice(0, 400), slice(400, 410), slice(410, None))):
        frame[rows].to_parquet(path / f"part-{i}.parquet", row_group_size=150)
    return path


def weights(model: TableModel) -> list[torch.Tensor]:
    components = [c for component in model.classifier.components for c in component.classifiers_]
    return [tensor for c in components for tensor in c.net.state_dict().values()]


def main(words: list[str]) -> int:
    with pytest.raises(SystemExit) as stop:
        run_command(words)
    return int(stop.value.code or 0)


QUICK = FitOptions(effort="quick", epochs=2, seed=3)


def test_networks_are_those_trained_in_memory(tmp_path):
    draw = np.random.default_rng(0)
    X = draw.normal(size=(3000, 7)).astype(np.float32)
    mask = draw.random((3000, 4)) < 0.3
    mask[np.arange(3000), X[:, :4].argmin(1)] = False
    mask[np.arange(3000), X[:, :4].argmax(1)] = True
    labels = CandidateLabels.from_matrix(mask, list("abcd"))
    for net in ("linear", "mlp"):
        settings = {
            "epochs": 3,
            "batch_size": 256,
            "schedule": "one_cycle",
            "standardize": False,
            "random_state": 5,
        }
        model = PartialLabelClassifier("propall", net, device="cpu", **settings)
        expected = PartialLabelClassifier("propall", net, device="cpu", **settings).fit(X, labels)
        keys = larger_than_memory.content_keys(X, labels.mask).numpy()
        with RowWriter(tmp_path, 7, 4) as writer:
            for rows in (slice(0, 1000), slice(1000, 1001), slice(1001, None)):
                writer.append(X[rows], mask[rows], keys[rows])
        data = StoredDataset.open(tmp_path)
        fit_stored(model, data, np.array(list("abcd")))
        data.close()
        pairs = zip(
            model.classifiers_[0].net.state_dict().values(),
            expected.classifiers_[0].net.state_dict().values(),
            strict=True,
        )
        assert all(torch.equal(one, other) for one, other in pairs)
        assert (model.predict_proba(X[:50]) == expected.predict_proba(X[:50])).all()


def test_parts_and_formats_do_not_change_the_model(folder, tmp_path):
    """Files, row groups, parts and the order of the files change nothing."""
    options = QUICK
    first = fit_in_parts(partial(read_parts, folder), LABELS, tmp_path / "a", options)
    second = fit_in_parts(partial(read_parts, folder, rows=70), LABELS, tmp_path / "b", options)
    whole = tmp_path / "whole.parquet"
    make_frame().to_parquet(whole)
    third = fit_in_parts(lambda: iter([read_table(whole)]), LABELS, tmp_path / "c", options)
    for other in (second, third):
        assert all(map(torch.equal, weights(first.model), weights(other.model)))
        assert first.model.account["portfolio_score"] == other.model.account["portfolio_score"]
    for name in "abc":
        assert not list(tmp_path.glob(f".{name}.*")), "the folder of encoded rows is removed"


def test_the_encoding_is_that_of_the_whole_table(folder, tmp_path):
    fitted = fit_in_parts(partial(read_parts, folder), LABELS, tmp_path / "a", QUICK)
    table = open_table(make_frame(), LABELS)
    expected = Features.fit(table.frame, without=("tree",))
    assert fitted.model.features.as_dict() == expected.as_dict()
    account = fitted.model.account
    assert account["rows"] == account["used"] == 900
    assert account["mean_candidates"] == pytest.approx(float(table.labeled.labels.sizes.double().mean()))
    assert account["written"] == table.labeled.kind_counts


def test_a_sample_decides_the_encoding_of_a_larger_table(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(larger_than_memory, "SURVEY_ROWS", 200)
    fitted = fit_in_parts(partial(read_parts, folder, rows=60), LABELS, tmp_path / "a", QUICK)
    again = fit_in_parts(partial(read_parts, folder, rows=200), LABELS, tmp_path / "a", QUICK)
    assert fitted.model.features.as_dict() == again.model.features.as_dict()
    median = fitted.model.features.as_dict()["median"][0]
    assert median != pytest.approx(float(make_frame()["height"].median()), abs=1e-12)
    assert median == pytest.approx(float(make_frame()["height"].median()), abs=0.6)
    assert fitted.model.account["streamed"]["surveyed_rows"] == 200


def test_distinct_cells_are_read_like_whole_columns():
    cells = ["ash", "ash|birch", "!cedar", "", "ashh", "birch|", '["ash", "cedar"]', "!ash|!birch|!cedar"]
    frame = pd.DataFrame({"tree": cells * 30 + ["cedar"] * 400 + ["ash"] * 400 + ["birch"] * 40})
    whole = open_table(frame, LABELS).labeled
    counts = NameCounts(LABELS)
    counts.add(RawTable(frame))
    classes, _ = counts.classes("table")
    assert classes == tuple(whole.labels.classes)
    reader = CellReader(LABELS, classes)
    masks, rows, notes = [], [], set()
    for start in range(0, len(frame), 100):
        part = reader.read(RawTable(frame[start : start + 100]))
        masks.append(part.candidates)
        rows += (part.rows + start).tolist()
        notes |= {(note.kind, row) for note in part.notes for row in note.rows}
    assert (np.concatenate(masks) == whole.labels.to_numpy()).all()
    assert rows == whole.rows.tolist()
    kinds = {"unusable label", "typo", "unlabeled"}
    expected = {(note.kind, row) for note in whole.notes for row in note.rows if note.kind in kinds}
    assert {pair for pair in notes if pair[0] in kinds} == expected


def test_memory_of_distinct_cells_is_bounded(monkeypatch):
    monkeypatch.setattr("propall.tables.label_cells.MOST_CELLS", 4)
    frame = pd.DataFrame({"tree": ["a", "b", "c", "a|b", "a|c", "b|c", "a|b|c", "!a", "!b"]})
    reader = CellReader(LABELS, ("a", "b", "c"))
    masks = [reader.read(RawTable(frame[i : i + 3])).candidates for i in range(0, 9, 2)]
    assert (masks[1] == [[0, 0, 1], [1, 1, 0], [1, 0, 1]]).all()
    assert (masks[4] == [[1, 0, 1]]).all()


def test_which_tables_are_fitted_in_parts(tmp_path, folder):
    path = tmp_path / "table.csv"
    make_frame().to_csv(path, index=False)
    assert not needs_parts(path)
    assert needs_parts(path, memory=10_000)
    packed = tmp_path / "table.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    limit = path.stat().st_size * larger_than_memory.BYTES_PER_TEXT_BYTE
    assert needs_parts(packed, memory=limit - 1)
    assert not needs_parts(packed, memory=limit)
    assert needs_parts(folder)
    assert needs_parts(folder / "part-0.parquet", memory=400 * 1500)
    assert not needs_parts(folder / "part-0.parquet", memory=10**7)
    assert not needs_parts(tmp_path / "nothing.parquet")
    assert (parse_size("2GiB"), parse_size("500 MB"), parse_size("1.5k"), parse_size("7")) == (
        2 << 30,
        500_000_000,
        1500,
        7,
    )
    for text in ("2 GIBs", "lots", "2iB", ""):
        with pytest.raises(ValueError, match="memory: got"):
            parse_size(text)


def test_too_little_memory_or_disk_is_said_before_anything_is_written(folder, tmp_path, monkeypatch):
    fit = partial(fit_in_parts, partial(read_parts, folder), LABELS, tmp_path / "model", QUICK)
    with pytest.raises(ValueError, match=r"memory: 900 rows of 3 classes need .* GiB"):
        fit(memory=1 << 20)
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(larger_than_memory.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(ValueError, match=r"out: 900 rows of 7 features need .*; 0.0 GiB are free"):
        fit()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table"]


def test_what_needs_all_rows_is_refused(folder, tmp_path):
    parts = partial(read_parts, folder)
    with pytest.raises(ValueError, match="label: a table that is read in parts needs one column"):
        fit_in_parts(parts, LabelSource(annotators=("tree", "leaf")), tmp_path / "m")
    with pytest.raises(ValueError, match="trust: got 'auto'"):
        fit_in_parts(parts, LABELS, tmp_path / "m", FitOptions(trust="auto"))
    with pytest.raises(ValueError, match="device: got 'cuda'"):
        fit_in_parts(parts, LABELS, tmp_path / "m", FitOptions(device="cuda"))
    with pytest.raises(ValueError, match="PRODEN remembers every row"):
        fit_in_parts(parts, LABELS, tmp_path / "m", FitOptions(methods=("proden",)))
    with pytest.raises(ValueError, match="IPAL needs all rows in memory"):
        check_streamable(PartialLabelClassifier("ipal"))
    peers = PartialLabelClassifier("propall", targets="balanced peer", n_estimators=2, standardize=False)
    with pytest.raises(ValueError, match="targets='balanced peer', which needs all rows"):
        check_streamable(peers)
    with pytest.raises(ValueError, match="standardize, which needs all rows"):
        check_streamable(PartialLabelClassifier("propall"))


def test_methods_and_networks_can_be_chosen(folder, tmp_path):
    options = FitOptions(methods=("cc",), nets=("linear", "mlp"), epochs=1, members=2)
    fitted = fit_in_parts(partial(read_parts, folder), LABELS, tmp_path / "m", options)
    assert [row["name"] for row in fitted.portfolio.results] == ["cc, linear", "cc, mlp"]
    assert all(len(c.classifiers_) == 2 for c in fitted.portfolio.mixture.components)
    X, candidates = fitted.held_out
    for model in fitted.portfolio.mixture.components:
        scores = model.predict_log_proba(X).astype(float) * model.temperature_
        assert model.temperature_ == pytest.approx(fit_temperature(scores, candidates), abs=1e-3)
        assert model.temperature_ != 1


def test_the_time_limit_keeps_the_first_model(folder, tmp_path):
    options = FitOptions(effort="quick", epochs=1, time_limit=0.0)
    fitted = fit_in_parts(partial(read_parts, folder), LABELS, tmp_path / "m", options)
    rows = fitted.model.account["portfolio"]
    assert [(row["name"], row["refusal"]) for row in rows] == [
        ("linear", ""),
        ("MLP, 128 units", "the time limit has passed"),
    ]


def test_epochs_shrink_with_the_number_of_rows():
    def epochs(rows: int) -> int:
        return StoredSettings().portfolio(rows)[0].model.epochs

    assert (epochs(1000), epochs(10_000_000), epochs(10**9)) == (20, 2, 1)
    names = [member.name for member in StoredSettings(effort="best").portfolio(1000)]
    assert names == ["linear", "MLP, 256 units", "MLP, 512 x 512 units", "forest on a sample"]


def test_fit_predict_and_resolve_a_folder(folder, tmp_path, capsys):
    model = tmp_path / "model"
    options = ["--effort", "quick", "--options", "epochs=20", "--options", "seed=1"]
    assert main(["fit", str(folder), "--label", "tree", "--out", str(model), *options]) == 0
    printed = capsys.readouterr()
    assert "is fitted in parts" in printed.err
    assert "held-out rows, without true labels; on training rows it is" in printed.out
    assert "Fitted on 900 rows" in printed.out
    assert sorted(path.name for path in model.iterdir()) == [
        "classifier.safetensors",
        "model.json",
        "options.json",
        "report.html",
    ]
    assert printed.out.rstrip().endswith(f"Report: {model / 'report.html'}")
    assert json.loads((model / "options.json").read_text())["seed"] == 1
    assert main(["predict", str(folder), "--model", str(model), "--out", str(tmp_path / "p.parquet")]) == 0
    capsys.readouterr()
    out = tmp_path / "r.parquet"
    assert main(["resolve", str(folder), "--model", str(model), "--out", str(out)]) == 0
    assert "interrupted" not in capsys.readouterr().err
    draw = np.random.default_rng(0)
    truth = NAMES[draw.integers(0, 3, 900)]
    resolved = pd.read_parquet(out)["propall_label"]
    assert (resolved == truth).mean() > 0.9
    assert set(pd.read_parquet(out)["propall_by"]) == {"the model"}


def test_a_folder_of_csv_files_and_the_usual_label(tmp_path, capsys):
    folder = tmp_path / "files"
    folder.mkdir()
    frame = make_frame().rename(columns={"tree": "label"})
    for i, suffix in enumerate((".csv", ".csv.gz", ".csv")):
        frame[i * 300 : i * 300 + 300].to_csv(folder / f"{i}{suffix}", index=False)
    whole = pd.concat([part.frame for part in read_parts(folder, size=5000)])
    assert whole.index.tolist() == list(range(900))
    assert (whole["label"] == frame["label"]).all()
    command = ["fit", str(folder), "--out", str(tmp_path / "model"), "--effort", "quick", "-q"]
    assert main([*command, "--options", "epochs=1"]) == 0
    assert "Fitted on 900 rows" in capsys.readouterr().out


@pytest.mark.slow
def test_a_killed_fit_leaves_nothing_that_stays(folder, tmp_path, monkeypatch):
    """A killed process cannot remove its files; the next fit to the same folder does."""
    out = tmp_path / "model"
    code = (
        "import sys; from propall.cli import main; "
        f"main(['fit', {str(folder)!r}, '--label', 'tree', '--out', {str(out)!r}, "
        "'--options', 'epochs=100000', '--effort', 'quick'])"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "fitting linear" in line:
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    assert len(list(tmp_path.glob(".model.*.part"))) == 1
    monkeypatch.setattr("propall.atomic_files.ABANDONED_AFTER", 0.0)
    fit_in_parts(partial(read_parts, folder), LABELS, out, QUICK)
    assert not list(tmp_path.glob(".model.*.part"))


def test_rows_with_unusable_labels_are_noted(tmp_path):
    frame = make_frame()
    frame.loc[5, "tree"] = "ash|!birch"
    frame.loc[7:400, "tree"] = ""
    path = tmp_path / "table.parquet"
    frame.to_parquet(path)
    fitted = fit_in_parts(partial(read_parts, path, rows=100, size=1), LABELS, tmp_path / "m", QUICK)
    notes = {note.kind: note for note in fitted.notes}
    assert notes["unusable label"].rows == (5,)
    assert notes["unlabeled"].rows == tuple(range(7, 107))
    assert "394 rows" in notes["unlabeled"].text
    assert fitted.model.account["used"] == 899
    assert math.isfinite(fitted.model.account["portfolio_score"])
