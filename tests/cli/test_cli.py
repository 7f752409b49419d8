"""The command line as a user types it."""

import importlib
import json
import os
import re
import subprocess
import sys
import zipfile

import pytest

from propall import __version__
from propall.cli import main, terminal
from propall.methods import METHODS


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*words):
        with pytest.raises(SystemExit) as stop:
            main(list(words))
        output = capsys.readouterr()
        return stop.value.code or 0, output.out, output.err

    return call


def test_help_answers_without_torch():
    code = "import sys; from propall.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "heavy = {'torch', 'numpy', 'sklearn', 'pandas', 'matplotlib'} & set(sys.modules)\n"
    code += "assert not heavy, heavy"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize(
    "words", [["--help"], ["demo", "-h"], ["train", "--help"], ["data", "get", "--help"]]
)
def test_help(run, words):
    code, out, _ = run(*words)
    assert code == 0
    assert "Usage" in out


@pytest.mark.parametrize("words", [[], ["fit"], ["train"], ["data"], ["data", "list"], ["bench"], ["doctor"]])
def test_help_shows_types_of_options_that_take_a_value_only(run, words):
    _, out, _ = run(*words, "--help")
    assert "--help" in out
    assert not re.search(r"<bool>|BOOL", out)
    if words == ["train"]:
        assert re.search(r"--seeds +(<int|INT)", out)


def test_bash_completes_commands_and_options():
    code = "from propall.cli import main; main()"
    for words, place, expected in [("propall doc", 1, "doctor"), ("propall fit --eff", 2, "--effort")]:
        settings = {"_PROPALL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
        assert done.stdout.split() == [expected]


def test_version(run):
    assert run("--version")[1].strip() == f"propall {__version__}"


def test_an_option_with_one_value_may_be_given_once(run):
    code, _, err = run("fit", "table.csv", "--label", "a", "--label", "b", "--out", "model")
    assert code == 2
    assert "--label was given twice" in err
    assert run("methods", "--json", "--json")[0] == 0


@pytest.mark.parametrize(("own", "expected"), [(None, "passive"), ("active", "active")])
def test_waiting_threads_sleep_unless_the_environment_says_otherwise(run, monkeypatch, own, expected):
    monkeypatch.setenv("OMP_WAIT_POLICY", own or "")  # so that it is set back after the test
    if own is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    run("--version")
    assert os.environ["OMP_WAIT_POLICY"] == expected


@pytest.mark.parametrize("module", ["propall", "propall.cli"])
def test_runs_as_a_module(module):
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == f"propall {__version__}"


def test_methods_lists_all(run):
    code, out, _ = run("methods")
    assert code == 0
    assert all(name in out for name in METHODS)
    rows = json.loads(run("methods", "--json")[1])
    assert {row["name"] for row in rows} == set(METHODS)


def test_data_list_and_check(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PROPALL_DATA", str(tmp_path))
    _, out, _ = run("data", "list")
    assert "birdsong" in out
    assert str(tmp_path) in out
    code, _, _ = run("data", "check", "lost")
    assert code == 1


def test_unknown_names_are_answered_with_near_ones(run, tmp_path):
    for words, hint in [
        (("train", "digit"), "did you mean 'digits'"),
        (("train", "digits", "--method", "prodn"), "did you mean 'proden'"),
        (("train", "digits", "--net", "lineer"), "did you mean 'linear'"),
        (("train", "digits", "--corruption", "exact"), "did you mean 'exactly'"),
        (
            ("train", "digits", "--corruption", "uniform", "--rate", "0.4"),
            "--rate: got 0.4 for --corruption uniform; expected --q. For --rate, use --corruption instance.",
        ),
        (
            ("train", "digits", "--missing", "0.2"),
            "--missing: got 0.2 for the default candidate sets, proden_binomial_min2; expected --q.",
        ),
        (("data", "get", "lots"), "did you mean 'lost'"),
    ]:
        code, _, err = run(*words)
        assert code == 1
        assert hint in " ".join(err.split())
    assert run("trian")[0] == 2


def test_missing_data_says_where_to_put_it(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PROPALL_DATA", str(tmp_path))
    code, _, err = run("train", "soccer_player", "--epochs", "1", "--out", str(tmp_path / "runs"))
    assert code == 1
    assert "soccer_player.mat" in err.replace("\n", "")


def test_train_prints_a_table_and_goes_on(run, tmp_path):
    words = ["train", "blobs", "--method", "propall", "--method", "pl_knn", "--epochs", "2", "--seeds", "2"]
    words += ["--out", str(tmp_path)]
    code, out, _ = run(*words)
    assert code == 0
    assert "ProPaLL" in out
    assert "PL-KNN" in out
    (page,) = tmp_path.glob("*/index.html")
    assert "Training on" in page.read_text(encoding="utf-8")
    (file,) = tmp_path.glob("*/results.jsonl")
    lines = file.read_text()
    assert len(lines.splitlines()) == 4
    file.write_text(lines[:-20])  # as a kill leaves it: the last line is cut
    results = json.loads(run(*words, "--json")[1])
    assert len(results) == 4
    assert all(0 <= row["accuracy"] <= 1 for row in results)


def test_train_says_which_options_mean_nothing_to_a_method(run, tmp_path):
    words = ["train", "digits", "--recipe", "fast", "--net", "small_cnn", "--epochs", "1", "--seeds", "1"]
    words += ["--strong-views", "1", "--no-page", "--out", str(tmp_path)]
    code, out, err = run(*words, "--method", "pl_knn", "--method", "pico")
    assert code == 0
    notes = err.splitlines()
    assert (
        "--recipe, --strong-views, --net and --epochs have no effect on PL-KNN, which has no network."
        in notes
    )
    why = "which uses one weak and one strong view in its own way"
    assert f"--strong-views has no effect on PiCO, {why}." in notes
    assert "small_cnn, 1 epoch" in out
    code, out, err = run("train", "digits", "--method", "pl_knn", "--seeds", "1", "--out", str(tmp_path))
    assert code == 0
    assert "effect" not in err
    assert "epoch" not in out


SMALL = ("--net", "small_cnn", "--epochs", "1", "--seeds", "1")


@pytest.mark.parametrize(("words", "precision"), [((), "float32"), (("--precision", "bfloat16"), "bfloat16")])
def test_train_on_a_cpu_is_in_full_precision_unless_asked(run, tmp_path, words, precision):
    words = ["train", "digits", "--recipe", "fast", *SMALL, "--device", "cpu", *words, "--no-page", "--json"]
    (row,) = json.loads(run(*words, "--out", str(tmp_path))[1])
    assert row["spec"]["recipe"]["precision"] == precision


def test_train_says_that_complementary_labels_bring_a_balance_term(run, tmp_path):
    words = ["train", "digits", "--views", "crdpll", *SMALL, "--corruption", "complementary", "--no-page"]
    words += ["--out", str(tmp_path)]
    assert "9.00 candidates on average; balance term 0.5; small_cnn, 1 epoch" in run(*words)[1]
    assert "balance term" not in run(*words, "--balance", "0.5")[1]  # no news


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("--method", "pl_knn", "--method", "cc"), True),
        (("--method", "cc", "--strong-views", "0"), False),  # the images as they are
        (("--method", "pl_knn"), False),
    ],
)
def test_the_page_shows_images_of_runs_that_see_views_only(run, tmp_path, words, shown):
    code, _, _ = run("train", "digits", "--recipe", "fast", *SMALL, *words, "--out", str(tmp_path))
    assert code == 0
    (page,) = tmp_path.glob("*/index.html")
    html = page.read_text(encoding="utf-8")
    assert html.count("<img src") == (30 if shown else 0)
    assert ("What the network sees: weak and strong views" in html) == shown


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--lr", "-1", "error: --lr: got -1.0; expected"),
        ("--strong-views", "2", "error: --strong-views: 2, but the default recipe of digits has no views"),
        ("--corruption", "nope", "error: corruption: unknown name 'nope'"),
    ],
)
def test_errors_name_the_flag_that_was_typed(run, tmp_path, flag, value, message):
    code, _, err = run("train", "digits", flag, value, "--out", str(tmp_path))
    assert code == 1
    assert message in " ".join(err.split())


def test_reproduce_names_all_that_can_be_reproduced(run):
    code, _, err = run("reproduce", "nope", "--dry-run")
    assert code == 1
    assert "noise_complementary, all, modern." in " ".join(err.split())
    assert "did you mean 'modern'?" in run("reproduce", "moderm", "--dry-run")[2]
    assert "modern has a command of its own" in " ".join(
        run("reproduce", "modern,real", "--dry-run")[2].split()
    )
    assert run("reproduce", "real/lost/cc, uniform", "--dry-run")[0] == 0


def test_demo_writes_a_page(run, tmp_path, monkeypatch):
    from propall.paper.studies import demo
    from propall.training.recipe import Recipe

    monkeypatch.setattr(demo, "RECIPE", Recipe(epochs=3, batch_size=256, learning_rate=0.05))
    code, out, _ = run("demo", "--out", str(tmp_path), "--seeds", "2")
    assert code == 0
    assert "random candidate" in out
    assert "round differently" in out
    page = (tmp_path / "index.html").read_text()
    assert "<html" in page
    assert "proden_binomial_min2" in page
    lines = run("demo", "--out", str(tmp_path), "--seeds", "2", "--markdown")[1].splitlines()
    assert lines[:2] == ["| trained with | test accuracy % | std |", "| --- | --: | --: |"]
    assert len(lines) == 7


def test_errors_are_one_line_unless_debugging(run, tmp_path):
    code, _, err = run("train", "digits", "--lr", "-1", "--out", str(tmp_path))
    assert code == 1
    assert err.startswith("error: --lr: ")
    with pytest.raises(ValueError, match="--lr: "):
        main(["--debug", "train", "digits", "--lr", "-1", "--out", str(tmp_path)])


@pytest.mark.filterwarnings("default")
def test_warnings_are_one_line_without_source(run, tmp_path):
    options = ("--q", "1", "--corruption", "uniform", "--epochs", "1", "--seeds", "1", "--out", str(tmp_path))
    code, _, err = run("train", "digits", *options)
    assert code == 0
    assert " ".join(err.split()).startswith(
        "warning: independent_flip: 1437 of 1437 candidate sets contain all"
    )
    assert ".py" not in err
    assert "return corruption" not in err


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            zipfile.BadZipFile("File is not a zip file"),
            "error: BadZipFile: File is not a zip file. PROPALL_DEBUG=1",
        ),
        (OverflowError(), "error: OverflowError. PROPALL_DEBUG=1 shows where; please report it"),
        (KeyError("epochs"), "error: KeyError: epochs. PROPALL_DEBUG=1"),
        (MemoryError(), "error: memory: not enough for this input."),
        (TypeError("labels: got None; expected a list."), "error: labels: got None; expected a list."),
        (
            OSError(28, "No space left on device", "a.csv"),
            "error: a.csv: No space left on device. Check the path",
        ),
        (ValueError("label: '[/b]' and \x1b[31m are odd."), "error: label: '[/b]' and \\x1b[31m are odd."),
        (RecursionError("too deep"), "error: RecursionError: too deep"),
    ],
)
def test_every_error_is_one_line(run, monkeypatch, error, line):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(importlib.import_module("propall.cli.app"), "app", fail)
    code, _, err = run("methods")
    assert code == 1
    assert " ".join(err.split()).startswith(line)
    monkeypatch.setenv("PROPALL_DEBUG", "1")
    with pytest.raises(type(error)):
        main(["methods"])


def test_markup_and_control_characters_are_inert(capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    names = ["[/b]", "[red]x", ":smile:", "\x1b[31mred", "a\u202eb"]
    terminal.print_table(names, [names], numbers=slice(1, None))
    terminal.print_line("[/b] \x1b]0;title\x07 :smile:")
    terminal.print_note("\x1b[2J")
    output = capsys.readouterr()
    assert "\x1b" not in output.out + output.err
    for text in ("[/b]", "[red]x", ":smile:", r"\x1b[31mred", r"a\u202eb", r"\x1b]0;title\x07 :smile:"):
        assert text in output.out
    assert output.err == "\\x1b[2J\n"
