"""Results as files: readable lines, and everything the report needs."""

import csv
import io
import json
import sqlite3
from pathlib import Path

import pytest

from propall.paper import reproduction, results_io
from propall.paper.results import RunResult
from propall.paper.store import Store, StoreError
from tests.made_up import fill, made_up


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite") as opened:
        fill(opened, ["real", "noise_real"], data=["lost"])
        fill(opened, ["uniform"], ["q0.1", "timed"], data=["mnist"])
        yield opened


def test_one_line_a_run_with_where_it_came_from(store, tmp_path):
    counts = results_io.write_folder(store, tmp_path / "results")
    assert counts == {"uniform": 43, "real": 70, "noise_real": 10}
    assert {path.name for path in (tmp_path / "results").iterdir()} == {
        "uniform.csv",
        "real.csv",
        "noise_real.csv",
        "details.jsonl",
        "README.md",
    }
    readme = (tmp_path / "results" / "README.md").read_text(encoding="utf-8")
    assert all(f"`{column}`" in readme for column in results_io.TABLE_COLUMNS)
    with (tmp_path / "results" / "real.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    (row,) = [row for row in rows if (row["cell"], row["fold"]) == ("real/lost/proden", "3")]
    expected = {
        "data": "lost",
        "corruption": "own",
        "protocol": "folds5",
        "method": "proden",
        "net": "linear",
    }
    expected |= {
        "seed": "0",
        "epochs": "500",
        "precision": "float32",
        "hardware": "NVIDIA H200",
        "commit": "0123456789ab",
        "q": "",
    }
    assert {name: row[name] for name in expected} == expected
    assert (row["torch"], row["version"]) == ("2.13.0", "1.0")
    assert row["date"].startswith("2026-01-02")
    (knn, *_) = [row for row in rows if row["method"] == "pl_knn"]
    assert (knn["net"], knn["epochs"]) == ("", "")
    with (tmp_path / "results" / "uniform.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert {(row["corruption"], row["q"]) for row in rows} == {
        ("proden_binomial_min2", "0.1"),
        ("proden_binomial_min2", "0.5"),
    }
    assert {row["protocol"] for row in rows} == {"q0.1", "timed"}


def test_a_folder_gives_the_same_entries_as_the_store(store, tmp_path):
    results_io.write_folder(store, tmp_path / "results")
    (tmp_path / "results" / "selection.csv").write_text("a file,of another kind\n1,2\n", encoding="utf-8")
    with results_io.open_folder(tmp_path / "results") as again:
        assert again.keys() == store.keys()
        for table, protocol in (("real", None), ("noise_real", None), ("uniform", "q0.1")):
            cells = reproduction.select_cells(table, protocol=protocol)
            for ours, theirs in zip(
                reproduction.cell_results(cells, store),
                reproduction.cell_results(cells, again),
                strict=True,
            ):
                assert ours.mean == (None if theirs.mean is None else pytest.approx(theirs.mean, abs=1e-4))
                assert ours.runs == theirs.runs
        timed = [result for result in again if result.spec.is_timed]
        assert len(timed) == 3
        for result in timed:
            (before,) = store.find([result.spec]).values()
            last = max(before.curve)
            assert result.times[last] == pytest.approx(before.times[last], abs=1e-3)
            assert result.stack == 1
            assert set(result.curve) < set(before.curve)
            assert all(
                result.curve[epoch] == pytest.approx(before.curve[epoch], abs=1e-4) for epoch in result.curve
            )
        watched = [result for result in again if result.recalls]
        assert watched
        assert all(len(result.confusions) in (0, 8) for result in watched)


def test_a_folder_is_imported_once_and_does_not_replace_what_knows_more(store, tmp_path):
    results_io.write_folder(store, tmp_path / "results")
    assert results_io.import_results(store, tmp_path / "results") == (118, 0)
    with Store(tmp_path / "other.sqlite") as other:
        assert results_io.import_results(other, tmp_path / "results") == (118, 118)
        assert results_io.import_results(other, tmp_path / "results") == (118, 0)


def test_a_folder_that_is_none_or_is_damaged_is_refused(store, tmp_path):
    with pytest.raises(StoreError, match=r"details.jsonl does not exist"):
        results_io.read_folder(tmp_path)
    folder = tmp_path / "results"
    results_io.write_folder(store, folder)
    details = (folder / "details.jsonl").read_text(encoding="utf-8").splitlines()
    (folder / "details.jsonl").write_text("\n".join(details[1:]) + "\n", encoding="utf-8")
    with pytest.raises(StoreError, match=r"line \d+ is not a result \(details.jsonl lacks run"):
        results_io.read_folder(folder)
    (folder / "details.jsonl").write_text("{broken\n", encoding="utf-8")
    with pytest.raises(StoreError, match=r"details.jsonl: line 1 is not a result"):
        results_io.read_folder(folder)


def test_a_smaller_store_leaves_no_files_of_a_larger_one(store, tmp_path):
    folder = tmp_path / "results"
    results_io.write_folder(store, folder)
    (folder / "selection.csv").write_text("mine", encoding="utf-8")
    with Store(tmp_path / "small.sqlite") as small:
        fill(small, ["uniform"], ["timed"], data=["mnist"])
        results_io.write_folder(small, folder)
    assert {path.name for path in folder.glob("*.csv")} == {"uniform.csv", "selection.csv"}
    assert len(results_io.read_folder(folder)) == 3


def test_the_kept_description_is_the_written_one(store, tmp_path):
    results_io.write_folder(store, tmp_path / "results")
    kept = Path(__file__).parents[2] / "results" / "README.md"
    written = tmp_path / "results" / "README.md"
    assert written.read_text(encoding="utf-8") == kept.read_text(encoding="utf-8")
    assert "`-dirty`" in kept.read_text(encoding="utf-8")


def test_specs_are_whole(store, tmp_path):
    results_io.write_folder(store, tmp_path / "results")
    keys = store.keys()
    for line in (tmp_path / "results" / "details.jsonl").read_text(encoding="utf-8").splitlines():
        values = json.loads(line)
        assert values["spec"]["data"] in ("lost", "mnist")
        assert values["key"] in keys


def test_frames_are_few_with_both_ends_and_denser_early():
    many = dict.fromkeys(range(1, 501))
    kept = list(results_io.select_frames(many, 6))
    assert kept[0] == 1
    assert kept[-1] == 500
    assert len(kept) == 6
    assert kept[1] - kept[0] < kept[-1] - kept[-2]
    assert list(results_io.select_frames({3: "a", 1: "b"}, 6)) == [1, 3]


def test_cut_protocols_are_written_under_their_names(tmp_path):
    with Store(tmp_path / "r.sqlite") as store:
        cells = reproduction.select_cells(
            "uniform", protocol="q0.5-50epochs", data=["cifar10"], methods=["rc"], seeds=1
        )
        store.add(*(made_up(spec, 0.5) for cell in cells for spec in cell.specs))
        assert reproduction.protocols_with_results("uniform", store) == ["q0.5-50epochs"]
        assert results_io.write_folder(store, tmp_path / "results") == {"uniform": 1}


def test_leaves_through_json_lines_and_comes_back(tmp_path, result):
    results, file = [result(seed) for seed in range(2)], tmp_path / "results.jsonl"
    out = io.StringIO()
    with Store(tmp_path / "one.sqlite") as store:
        store.add(*results)
        assert results_io.export_json(store, out) == 2
    lines = out.getvalue().splitlines()
    assert RunResult.from_dict(json.loads(lines[0])) == results[0]
    assert results[0].to_dict()["key"] == results[0].spec.key
    with Store(tmp_path / "other.sqlite") as other:
        file.write_text("\n".join([*lines, ""]), encoding="utf-8")
        assert results_io.import_results(other, file) == (2, 2)
        assert results_io.import_results(other, file) == (2, 0)
        assert list(other) == results
        file.write_text(f'{lines[0]}\n{{"spec": 1}}', encoding="utf-8")
        with pytest.raises(StoreError, match="line 2 is not a result"):
            results_io.import_results(other, file)
        file.write_text("[1, 2]", encoding="utf-8")
        with pytest.raises(StoreError, match="line 1 is not a result"):
            results_io.import_results(other, file)
        assert len(other) == 2


def test_takes_in_another_store(tmp_path, result):
    results = [result(seed) for seed in range(3)]
    with Store(tmp_path / "other.store") as other:
        other.add(*results[1:])
    with Store(tmp_path / "one.sqlite") as store:
        store.add(*results[:2])
        assert results_io.import_results(store, tmp_path / "other.store") == (2, 1)
        assert list(store) == results
        (tmp_path / "image.bin").write_bytes(b"\x89PNG and so on")
        with pytest.raises(StoreError, match=r"image\.bin: after line 0, not UTF-8 text"):
            results_io.import_results(store, tmp_path / "image.bin")
        with sqlite3.connect(tmp_path / "foreign.sqlite") as foreign:
            foreign.execute("CREATE TABLE things (name TEXT)")
        with pytest.raises(StoreError, match="database of another application"):
            results_io.import_results(store, tmp_path / "foreign.sqlite")
        assert len(store) == 3


def test_leaves_as_a_table(tmp_path, result):
    out = io.StringIO()
    with Store(tmp_path / "one.sqlite") as store:
        store.add(result())
        assert results_io.export_csv(store, out) == 1
    header, line = out.getvalue().splitlines()
    assert header.startswith("key,data,method")
    assert line.startswith(f"{result().spec.key},lost,propall,linear,own,0,0.5,")
