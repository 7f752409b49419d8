"""compare, reproduce and results as a user types them."""

import json
import re

import pytest

from propall.cli import main


@pytest.fixture
def run(capsys, monkeypatch, root, tmp_path):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)

    def call(*words):
        code = 0
        try:
            main(list(words))
        except SystemExit as stop:
            code = stop.code or 0
        output = capsys.readouterr()
        return code, output.out, output.err

    return call


COMPARE = ("compare", "--data", "lost,msrcv2", "--folds", "2", "--epochs", "2", "--device", "cpu")


def test_compare(run):
    code, out, err = run(*COMPARE, "--methods", "propall,pl_knn,pc_ishida,lws")
    assert code == 0
    assert "MSRCv2" in out
    assert "78.78" in out  # the paper's number
    assert "PC (Ishida): not run. candidates: " in out
    assert "LWS *" in out
    assert "12 runs" in out.splitlines()[-1]
    assert "6 of 8 cells done" in err or "cells done" in err
    code, out, err = run(*COMPARE, "--methods", "propall,pl_knn", "--json")
    rows = json.loads(out)
    assert {row["protocol"] for row in rows} == {"folds2, 2 epochs"}
    assert err == ""  # everything was in the store
    code, _, err = run(*COMPARE, "--methods", "propal")
    assert code == 1
    assert "did you mean 'propall'" in err


def test_reproduce_and_results(run, tmp_path):
    words = ("reproduce", "real", "--protocol", "short", "--methods", "pl_knn,ga", "--device", "cpu")
    code, out, _ = run(*words, "--data", "lost", "--dry-run")
    assert code == 0
    assert re.search(r"2 runs to do \(about .* s( \*)?\); 0 already in the store\.", out)
    assert not (tmp_path / "runs").exists()
    code, out, _ = run(*words)
    assert code == 0
    assert "Table 4: real-world candidate sets. short: a smoke run" in out
    assert "data not available here; put soccer_player.mat at" in out.replace("\n", " ")
    assert "6 of 10 cells done; data not available here: 4." in out
    assert out.count("not comparable with the paper: a smoke run, too short for a comparison") == 3
    code, out, _ = run(*words, "--data", "lost", "--dry-run", "--json")
    assert json.loads(out)["stored"] == 2
    code, out, _ = run(*words, "--data", "lost", "--json")
    assert [row["cell"] for row in json.loads(out)] == ["real/lost/pl_knn", "real/lost/ga"]
    assert {row["incomparable"] for row in json.loads(out)} == {"a smoke run, too short for a comparison"}
    # the store
    code, out, _ = run("results", "list", "--method", "ga")
    assert "3 results in runs/results.sqlite" in out
    key = json.loads(run("results", "list", "--json")[1])[0]["key"]
    code, out, _ = run("results", "show", key[:9])
    assert code == 0
    assert key in out
    assert json.loads(run("results", "show", key, "--json")[1])["key"] == key
    code, _, err = run("results", "list", "--method", "gaa")
    assert code == 1
    assert "method: no result has method 'gaa' in runs/results.sqlite" in err
    assert "stored: 'ga', 'pl_knn'" in " ".join(err.split())
    code, out, _ = run("results", "list", "--method", "ga", "--data", "lost", "--protocol", "short")
    assert "1 result in" in out
    code, _, err = run("results", "show", "zzz")
    assert code == 1
    assert "no result has key 'zzz'" in err
    code, out, _ = run("results", "export", "all.jsonl")
    assert out.strip() == "6 results written to all.jsonl"
    assert run("results", "export", "new/folder/all.jsonl")[0] == 0
    assert (tmp_path / "new/folder/all.jsonl").read_text() == (tmp_path / "all.jsonl").read_text()
    assert run("results", "export", "all.csv")[0] == 0
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 7
    assert run("results", "export", "-")[1] == (tmp_path / "all.jsonl").read_text()
    code, out, _ = run("results", "import", "all.jsonl", "--store", "other.sqlite")
    assert out.strip() == "6 of 6 results added to other.sqlite"
    assert run("results", "import", "all.jsonl", "--store", "other.sqlite")[1].startswith("0 of 6")
    assert run("results", "import", "all.csv", "--store", "other.sqlite")[1].startswith("0 of 6")
    assert run("results", "import", "all.csv", "--store", "third.sqlite")[1].startswith("6 of 6")
    # a folder to publish
    code, out, _ = run("results", "export", "results")
    assert out.strip() == "Runs written to results: real 6"
    assert run("results", "import", "results", "--store", "fourth.sqlite")[1].startswith("6 of 6")
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    code, _, err = run("results", "import", "nope.csv", "--store", "fifth.sqlite")
    assert code == 1
    assert "file: nope.csv does not exist" in err
    assert not (tmp_path / "fifth.sqlite").exists()
    code, _, err = run("results", "import", "bad.csv", "--store", "fourth.sqlite")
    assert code == 1
    assert "bad.csv: line 2 is not a result" in err


def test_reproduce_with_a_process_per_device(run):
    words = ("reproduce", "real", "--protocol", "short", "--methods", "pl_knn,ga", "--data", "lost")
    code, out, _ = run(*words, "--device", "cpu,cpu")
    assert code == 0
    assert "2 of 2 cells done." in out
    code, _, err = run(*words, "--device", ",")
    assert code == 1
    assert "device: got ','" in err


def test_a_sweep_over_n_prints_a_column_for_each(run, monkeypatch):
    code, out, _ = run(
        "reproduce", "candidates5", "--protocol", "short", "--data", "cifar10", "--methods", "pc"
    )
    assert code == 0
    assert "n = 4" in out
    assert "not part of smoke runs: images with channels" in out


def test_a_plan_of_the_table_of_images_names_its_rows(run):
    words = ("reproduce", "modern", "--only", "digits-uniform-0.5*", "--seeds", "1", "--dry-run", "--json")
    code, out, _ = run(*words, "--device", "cpu")
    assert code == 0
    groups = {tuple(group["methods"]): group["runs"] for group in json.loads(out)["groups"]}
    # Objectives with one recipe are trained together.
    assert groups.pop(("ProPaLL", "CC", "PRODEN")) == 3
    alone = ("ProPaLL, balanced", "DIRK", "CR-DPLL", "POP", "ALIM (scale)", "ProPaLL, one view", "PaPi")
    assert {(title,): 1 for title in alone}.items() <= groups.items()
    assert not {("CC",), ("Non-candidates",)} & groups.keys()
    out = run(*words[:-1], "--device", "cpu")[1]
    assert re.search(r"digits +ProPaLL; CC; PRODEN +small_cnn", out)


def test_results_need_a_file_that_is_one(run, tmp_path):
    code, _, err = run("results", "list", "--store", "none.sqlite")
    assert (code, "none.sqlite does not exist" in err) == (1, True)
    (tmp_path / "mine.txt").write_text("mine\n" * 300)
    code, _, err = run("reproduce", "real", "--store", "mine.txt")
    assert code == 1
    assert "not a store of results" in err
    assert (tmp_path / "mine.txt").read_text() == "mine\n" * 300


def test_an_unknown_table_is_answered_with_the_near_ones(run):
    code, _, err = run("reproduce", "uniforms")
    assert code == 1
    assert "did you mean" in err
    code, _, err = run("reproduce", "uniform,moden/cc")
    assert (code, "did you mean 'modern'" in err) == (1, True)
    code, _, err = run("reproduce", "modern/uniform-0.5")
    assert code == 1
    assert "table: got 'modern/uniform-0.5'; choose rows of modern with --only." in err
    code, _, err = run("reproduce", "uniform,modern")
    assert (code, "modern has a command of its own" in err) == (1, True)


def test_a_report_replaces_no_table(tmp_path, capsys) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("mine")
    with pytest.raises(SystemExit) as ended:
        main(["report", "--out", str(table)])
    assert ended.value.code == 1
    assert "runs.csv is not an HTML page; expected a name such as report.html." in capsys.readouterr().err
    assert table.read_text() == "mine"


def test_base_losses_of_teachers_and_of_paired_classes(run, tmp_path):
    tiny = ["--epochs", "1", "--seeds", "1", "--device", "cpu"]
    file = tmp_path / "study.json"
    only = ["--only", "cc/one-view/20-plain-0.4", "--data", "digits", "--net", "mlp", "--per-class", "5"]
    code, out, _ = run("base-losses", *tiny, *only, "--seed", "3", "--out", str(file))
    assert code == 0
    assert "cc/one-view/20-plain-0.4/seed-3" in out
    assert "swallowed" in out
    file = tmp_path / "pairs.json"
    code, out, _ = run("base-losses", "--pairs", *tiny, "--only", "cc/one-view", "--out", str(file))
    assert code == 0
    assert "r = 0.95" in out
    assert list(json.loads(file.read_text())["cells"]) == ["cc/one-view"]
    code, _, err = run("base-losses", "--pairs", "--per-class", "5", "--out", str(file))
    assert code != 0
    assert "error: --per-class: --pairs takes all rows" in err


def test_a_time_limit_leaves_the_rest_to_the_next_call(run):
    words = ("reproduce", "real", "--protocol", "short", "--methods", "pl_knn,ga", "--data", "lost")
    code, out, err = run(*words, "--device", "cpu", "--time-limit", "0")
    assert code == 0
    assert "0 of 2 cells done; not run: 2." in out
    assert "Time limit reached, 2 runs left; the same command continues." in err
    code, out, err = run(*words, "--device", "cpu", "--time-limit", "1000")
    assert code == 0
    assert "2 of 2 cells done." in out
    assert "Time limit" not in err
    modern = ("reproduce", "modern", "--only", "digits-*/cc", "--protocol", "short", "--device", "cpu")
    code, out, err = run(*modern, "--time-limit", "0")
    assert code == 0
    assert "Time limit reached, 3 runs left" in err
    assert "Comparison of methods, Digits" in out
    assert "Not the protocol of the table: not comparable" in out
