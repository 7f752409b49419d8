"""The commands for tables as a user types them."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from propall.cli import main
from propall.tables import fitting
from propall.tables.model import TableModel
from tests.fixtures.tables import write_birds
from tests.tables.test_crowd import answers_of, long_form
from tests.tables.test_trust import blobs, corrupted


def settings(**values):
    return [word for key, value in values.items() for word in ("--options", f"{key}={value}")]


QUICKLY = settings(net="linear", epochs=8, members=1, folds=2, search="false")
NO_PAGE = settings(page="false")


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*words):
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        output = capsys.readouterr()
        return stop.value.code or 0, output.out, output.err

    return call


def test_inspect_answers_dirt_well(run, dirty_birds) -> None:
    code, out, _ = run("inspect", dirty_birds, "--label", "species")
    assert code == 0
    for part in (
        "300 rows, 8 columns",
        "'herrng gull' is read as 'herring gull' (row 18)",
        "'comon tern' is read as 'common tern' (row 24)",
        "'wing_mm' is in the header twice",
        "class 'great auk' is in one row only",
        "lists both candidates and labels that are ruled out (row 43)",
        "'abt. 400' is not a number",
        "no label; every class is possible",
        "298 of 300 rows can be used for training: 6 classes",
        f"Next: propall fit {dirty_birds} --label species --out model",
    ):
        assert part in out, part
    found = json.loads(run("inspect", dirty_birds, "--label", "species", "--json")[1])
    assert found["rows"] == 300
    assert {note["kind"] for note in found["remarks"]} >= {"typo", "duplicate heading"}


def test_inspect_says_where_nothing_is_left_to_learn_from(run, tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,file,label\n1,a.png,cat\n1,b.png,dog|cat\n1,c.png,dog\n")
    code, out, _ = run("inspect", path, "--label", "label")
    assert code == 0
    assert "3 of 3 rows can be used for training" in out
    path.write_text("x,label\n1,cat\n1,dog|cat\n1,dog\n")
    code, out, _ = run("inspect", path, "--label", "label")
    assert code == 0
    assert "no usable column is left: 'x' is '1' in every row" in out
    assert "3 of 3 rows have labels: 2 classes" in out
    assert "Next" not in out


def test_names_may_hold_commas(run, tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('x,label\n1,"gull, common"\n2,tern\n3,"gull, common|tern"\n')
    names = '"gull, common",tern'
    code, out, _ = run("inspect", path, "--label", "label", "--options", f"classes={names}")
    assert code == 0
    assert "3 of 3 rows can be used for training: 2 classes" in out
    assert f"--options 'classes={names}'" in out


def test_inspect_without_a_label_asks_for_it(run, dirty_birds) -> None:
    code, out, _ = run("inspect", dirty_birds)
    assert code == 0
    assert "Which column holds the labels? It may be 'species': --label species." in out
    assert "wing_mm (2)" in out


def test_inspect_leaves_out_the_columns_that_fit_would(run, birds_file, tmp_path) -> None:
    words = (birds_file, "--label", "species", "--ignore", "truth,wing_mm")
    code, out, _ = run("inspect", *words)
    assert code == 0
    assert len(re.findall(r"^(?:truth|wing_mm) +left out ", out, re.MULTILINE)) == 2
    assert "copy of the labels" not in out  # not looked for in a column that is left out
    assert f"Next: propall fit {birds_file} --label species --ignore truth,wing_mm --out model" in out
    unknown = (birds_file, "--label", "species", "--ignore", "truht")
    answers = [run("inspect", *unknown), run("fit", *unknown, "-o", tmp_path / "model", *QUICKLY)]
    assert answers[0] == answers[1]
    assert "ignore: birds.csv has no column 'truht'; did you mean 'truth'?" in answers[0][2]


def test_inspect_leaves_out_columns_without_a_label(run, tmp_path) -> None:
    pd.DataFrame({"id": [1, 2, 3, 4], "color": list("abab")}).to_csv(tmp_path / "t.csv", index=False)
    found = json.loads(run("inspect", tmp_path / "t.csv", "--ignore", "id", "--json")[1])
    assert {column["name"]: column["role"] for column in found["columns"]}["id"] == "left out"
    assert any(note["kind"] == "duplicate rows" for note in found["remarks"])  # equal but for the id


def test_inspect_annotators_and_votes(run, tmp_path) -> None:
    frame = pd.DataFrame(
        {
            "x": [1, 2, 3, 5],
            "ann": ["a", "b", "a", "b"],
            "bob": ["a", "a", "b", "b"],
            "a": [1, 0, 2, 1],
            "b": [0, 1, 2, 0],
        }
    )
    path = tmp_path / "votes.csv"
    frame.to_csv(path, index=False)
    _, out, _ = run("inspect", path, "--annotators", "ann,bob")
    assert "Agreement: 50.0 % of pairs of answers are equal, Krippendorff's alpha" in out
    assert "--annotators ann,bob" in out
    _, out, _ = run("inspect", path, "--votes", "a,b", "--options", "rule=plurality")
    assert "votes in 2 columns, plurality" in out
    assert "--votes a,b --options rule=plurality --out model" in out


def test_from_a_file_to_labels(run, dirty_birds, tmp_path) -> None:
    model, table = tmp_path / "model", tmp_path / "resolved.csv"
    code, out, err = run("fit", dirty_birds, "--label", "species", "--out", model, *QUICKLY)
    assert code == 0, err
    assert "TF-IDF" in out
    assert "Default settings, judged on 2 folds, without true labels: method propall, net linear" in out
    assert (model / "report.html").is_file()
    TableModel.load(model)
    code, out, err = run("resolve", dirty_birds, "--model", model, "--out", table)
    assert code == 0, err
    assert "ambiguous rows resolved" in out
    frame = pd.read_csv(table)
    assert len(frame) == 299  # all but the line that could not be read
    assert frame["propall_label"].notna().sum() == 298
    assert (tmp_path / "resolved.html").is_file()
    code, out, err = run(
        "predict", dirty_birds, "--model", model, "--out", tmp_path / "p.tsv", "--probabilities", "--quiet"
    )
    assert code == 0, err
    assert out.startswith("299 rows predicted")
    assert "propall_p_mew gull" in pd.read_csv(tmp_path / "p.tsv", sep="\t")


def test_scripts_get_json(run, birds_file, tmp_path) -> None:
    model = tmp_path / "model"
    words = [
        "fit",
        birds_file,
        "--label",
        "species",
        "--ignore",
        "truth",
        "--out",
        model,
        *NO_PAGE,
        *QUICKLY,
    ]
    account = json.loads(run(*words, "--json", "--options", "seed=3")[1])
    assert account["seed"] == 3
    assert account["page"] is None
    assert not (model / "report.html").exists()
    found = json.loads(run("evaluate", birds_file, "--model", model, "--truth", "truth", "--json")[1])
    assert found["rows"] == 240
    assert found["rows_fitted_on"] == 240
    assert found["truth_among_candidates"] == 1
    found = json.loads(run("predict", birds_file, "--model", model, "--out", tmp_path / "p.csv", "--json")[1])
    assert found["rows"] == 240
    words = ["resolve", birds_file, "--model", model, "--out", tmp_path / "r.jsonl", "--json", *NO_PAGE]
    found = json.loads(run(*words)[1])
    assert found["resolved"] == 240
    page = model / "accuracy.html"
    code, out, _ = run("evaluate", birds_file, "--model", model, "--truth", "truth", "--out", page)
    assert code == 0
    assert f"Report: {page}" in out
    assert "Accuracy on birds.csv" in page.read_text(encoding="utf-8")
    code, _, err = run("evaluate", birds_file, "--model", model, "--truth", "truth", "--out", "accuracy.csv")
    assert code == 1
    assert "out: accuracy.csv is not an HTML page" in err
    assert "Accuracy" in out
    assert "expected calibration error" in out
    assert "predicted by cross-validation models that did not see them" in out


def test_labels_of_the_fitted_file_by_models_that_did_not_see_them(run, birds_file, tmp_path) -> None:
    model, out = tmp_path / "m", tmp_path / "r.csv"
    code, _, err = run("fit", birds_file, "--label", "species", "--ignore", "truth", "-o", model, *QUICKLY)
    assert code == 0, err
    code, printed, err = run("resolve", birds_file, "--model", model, "--out", out, "--quiet")
    assert code == 0, err
    assert len(printed.strip().splitlines()) == 1
    frame = pd.read_csv(out)
    assert (frame["propall_label"] == frame["truth"]).mean() > 0.7
    assert set(frame["propall_by"]) == {"models that did not see it"}


@pytest.mark.parametrize("words", [["--fit"], []])
def test_resolve_without_a_model_says_how_to_fit_one(run, birds_file, words) -> None:
    code, _, err = run("resolve", birds_file, *words, "--out", "r.csv")
    assert code == 2
    plain = " ".join(err.replace("│", " ").split())
    assert "Fit a model first: propall fit FILE --label COLUMN --out model" in plain


def test_a_fit_can_be_repeated_from_its_options_file(run, birds_file, tmp_path) -> None:
    words = ["fit", birds_file, "-l", "species", "--ignore", "truth", *QUICKLY, *NO_PAGE, "-O", "seed=3"]
    run(*words, "-o", tmp_path / "one")
    options = tmp_path / "one" / "options.json"
    saved = json.loads(options.read_text(encoding="utf-8"))
    assert saved["label"] == "species"
    assert saved["net"] == ["linear"]
    code, _, err = run("fit", birds_file, "-O", options, "-O", "page=false", "-o", tmp_path / "two")
    assert code == 0, err
    one, two = (TableModel.load(tmp_path / name) for name in ("one", "two"))
    assert one.account["options"] == two.account["options"] == saved
    np.testing.assert_array_equal(one.held_out.log_probabilities, two.held_out.log_probabilities)
    run("fit", birds_file, "-O", options, "-O", "seed=4", "-o", tmp_path / "two")
    assert TableModel.load(tmp_path / "two").account["seed"] == 4
    # Options of other commands in a shared file are not an error.
    code, _, err = run("resolve", birds_file, "-m", tmp_path / "one", "-O", options, "-o", tmp_path / "r.csv")
    assert code == 0, err


def test_flags_have_priority_over_the_options_file(run, birds_file, tmp_path) -> None:
    (tmp_path / "o.toml").write_text('label = "truth"\nclasses = ["mew gull", "great skua"]\n')
    summary = json.loads(run("inspect", birds_file, "-O", tmp_path / "o.toml", "--json")[1])
    assert summary["labels"]["where"] == "column 'truth'"
    assert [row["name"] for row in summary["labels"]["classes"]] == ["mew gull", "great skua"]
    words = ("inspect", birds_file, "-O", tmp_path / "o.toml", "-l", "species", "--json")
    assert json.loads(run(*words)[1])["labels"]["where"] == "column 'species'"


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ("epoch=3", "options: unknown key 'epoch'; did you mean 'epochs'?"),
        ("epochs=0", "options: epochs is '0'; expected a whole number of at least 1."),
        ("search=maybe", "options: search is 'maybe'; expected true or false."),
        ("unlabeled=ask", "options: unlabeled is 'ask'; expected keep or drop."),
        ("alternatives=2", "options: unknown key 'alternatives'"),
        ("settings.yaml", "'settings.yaml' is neither KEY=VALUE nor a .toml or .json file"),
        ("absent.toml", "absent.toml does not exist"),
        ({"a.json": '{"seeds": 3}'}, "unknown key 'seeds' in"),
        ({"a.toml": "seed = "}, "is not valid TOML"),
        ({"a.json": "[1]"}, "holds a list; expected keys and values"),
        ({"a.toml": "[label]\nname = 'x'"}, "options: label is {'name': 'x'}; expected text."),
    ],
)
def test_bad_options_are_answered(run, birds_file, tmp_path, options, part) -> None:
    if isinstance(options, dict):
        ((name, text),) = options.items()
        (tmp_path / name).write_text(text)
        options = tmp_path / name
    code, _, err = run("fit", birds_file, "-l", "species", "-o", tmp_path / "m", "-O", options)
    assert code == 1
    assert part in " ".join(err.split())


@pytest.mark.parametrize(
    ("flags", "hint"),
    [(["--seed", "3"], "Use --options seed=VALUE."), (["--no-search"], "Use --options search=false.")],
)
def test_flags_that_are_settings_are_answered(run, birds_file, flags, hint) -> None:
    code, _, err = run("fit", birds_file, "-o", "m", *flags)
    assert code == 2
    assert hint in " ".join(err.replace("│", " ").split())


@pytest.mark.parametrize(
    "command", ["inspect", "fit", "resolve", "consensus", "predict", "evaluate", "export"]
)
def test_help_is_short_and_has_an_example(run, command) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"Example: propall {command} " in out
    panels = out.split("Arguments")[1].split("Settings for --options")[0]
    flags = re.findall(r"^│ +(?:\* +)?(--[a-z-]+)", panels, re.MULTILINE)
    assert 1 <= len(set(flags) - {"--help"}) <= 20


def test_interrupted_it_leaves_a_model(run, birds_file, tmp_path, monkeypatch) -> None:
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting.PartialLabelClassifierCV, "fit", interrupted)
    words = [
        "fit",
        birds_file,
        "--label",
        "species",
        "--out",
        tmp_path / "model",
        *settings(epochs=2, members=1),
    ]
    code, _, err = run(*words)
    assert code == 130
    assert "holds a model with default settings" in err
    assert "Interrupted; results that were already written are kept." in err
    assert len(TableModel.load(tmp_path / "model").predict(pd.read_csv(birds_file))) == 240


def test_errors_are_one_line(run, dirty_birds, tmp_path) -> None:
    for words, part in [
        (("inspect", tmp_path / "none.csv"), "does not exist"),
        (("inspect", dirty_birds, "--label", "specie"), "did you mean 'species'"),
        (("fit", dirty_birds, "--out", tmp_path / "m"), "no label column is named"),
        (
            ("fit", dirty_birds, "--label", "species", "--method", "prodn", "--out", tmp_path / "m"),
            "did you mean 'proden'",
        ),
        (
            ("predict", dirty_birds, "--model", tmp_path, "--out", tmp_path / "p.csv"),
            "is not a propall model",
        ),
        (("export", tmp_path, "--onnx", tmp_path / "m.onnx"), "is not a propall model"),
        (("fit", dirty_birds, "--label", "species", "--out", tmp_path), "which is not part of a model"),
        (("resolve", dirty_birds, "-m", "m", "--out", tmp_path / "r.docx"), "has the suffix .docx"),
        (("predict", dirty_birds, "--model", "m", "--out", dirty_birds), "is the input file"),
        (("predict", tmp_path, "--model", "m", "--out", tmp_path / "x.csv.gz"), "is in the input folder"),
    ]:
        code, _, err = run(*words)
        assert code == 1
        assert part in err.replace("\n", " ")
        assert "Traceback" not in err


def test_hierarchies_and_embeddings(run, tmp_path) -> None:
    truth = write_birds(tmp_path / "birds.csv", 90)
    frame = pd.read_csv(tmp_path / "birds.csv", dtype=object)
    frame["species"] = [name.split()[-1] if i % 3 == 0 else name for i, name in enumerate(truth)]
    frame.to_csv(tmp_path / "birds.csv", index=False)
    (tmp_path / "tree.txt").write_text(
        "gull/herring gull\ngull/mew gull\ntern/common tern\ntern/arctic tern\ngreat skua\n"
    )
    frame.loc[frame["species"] == "skua", "species"] = "great skua"
    frame.to_csv(tmp_path / "birds.csv", index=False)
    np.save(tmp_path / "e.npy", np.random.default_rng(0).normal(size=(90, 5)))
    words = ["--label", "species", "--hierarchy", tmp_path / "tree.txt", "--embeddings", tmp_path / "e.npy"]
    code, _, err = run(
        "fit",
        tmp_path / "birds.csv",
        *words,
        "--out",
        tmp_path / "m",
        *settings(features="wing_mm,notes"),
        *QUICKLY,
    )
    assert code == 0, err
    code, _, err = run(
        "resolve", tmp_path / "birds.csv", "--model", tmp_path / "m", "--out", tmp_path / "r.csv", *words[-2:]
    )
    assert code == 0, err
    resolved = pd.read_csv(tmp_path / "r.csv")
    for row in resolved.itertuples():
        assert row.propall_label.endswith(row.species.split()[-1])
    code, _, err = run(
        "predict", tmp_path / "birds.csv", "--model", tmp_path / "m", "--out", tmp_path / "p.csv"
    )
    assert code == 1
    assert "embeddings: missing; the model was fitted with embeddings" in err


def test_repeated_rows_are_held_out_together(run, tmp_path) -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(size=(60, 20)), columns=[f"x{i}" for i in range(20)])
    frame["label"] = draw.choice(["a", "b", "c", "d"], size=60)
    path = tmp_path / "twice.csv"
    pd.concat([frame, frame]).to_csv(path, index=False)
    assert "120 rows have the same features as another" in run("inspect", path)[1]
    code, out, _ = run("fit", path, "--out", tmp_path / "model", *QUICKLY, *settings(epochs=60), *NO_PAGE)
    assert code == 0
    assert "120 rows have the same features as another" in out
    account = TableModel.load(tmp_path / "model").account
    assert account["held_out"]["covering_rate"] < 0.6


def test_the_file_s_separator_stays(run, birds_file, tmp_path) -> None:
    path = tmp_path / "birds.csv"
    path.write_text(birds_file.read_text().replace(",", ";"))
    run("fit", path, "-l", "species", "-o", tmp_path / "m", *NO_PAGE, *QUICKLY)
    code, _, err = run("resolve", path, "-m", tmp_path / "m", "-o", tmp_path / "r.csv", *NO_PAGE)
    assert code == 0, err
    heading, first = (tmp_path / "r.csv").read_text().splitlines()[:2]
    assert ";truth;propall_label;" in heading
    assert first.startswith(path.read_text().splitlines()[1])
    run("predict", path, "-m", tmp_path / "m", "-o", tmp_path / "p.csv")
    assert ";propall_label;" in (tmp_path / "p.csv").read_text()
    run("predict", path, "-m", tmp_path / "m", "-o", tmp_path / "p.tsv")
    assert "\tpropall_label\t" in (tmp_path / "p.tsv").read_text()


def test_what_fit_says_in_one_line(run, dirty_birds, tmp_path) -> None:
    words = ["fit", dirty_birds, "-l", "species", "-o", tmp_path / "m", "-q", *NO_PAGE, *QUICKLY]
    _, out, _ = run(*words)
    assert out.startswith("Fitted on 298 of 300 rows in ")
    account = TableModel.load(tmp_path / "m").account
    guessing = f"(random guessing: {100 * account['mean_candidates'] / 6:.0f} %)"
    assert f"among the row's candidates {guessing}. This is not accuracy, which needs true labels" in out
    assert f"Model: {tmp_path / 'm'}\n" in out
    assert "too few" not in out
    _, out, _ = run(*words, *settings(folds=40))
    assert "Fewer than 10 rows per fold: too few to select or evaluate a model reliably." in out
    assert f"Model: {tmp_path / 'm'} (replaces the previous one)\n" in out


def test_settings_hold_for_a_label_column_found_by_its_name(run, tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('x,label\n1,a\n2,"a, b"\n3,b\n')
    _, out, _ = run("inspect", path, *settings(separator=","))
    assert "candidates  1 in 2 rows, 2 in 1 row" in out
    assert "--label label --options separator=, --out model" in out


def test_fit_names_the_column_that_looks_like_labels(run, dirty_birds, tmp_path) -> None:
    _, _, err = run("fit", dirty_birds, "-o", tmp_path / "m")
    assert "It may be 'species': --label species." in err


def test_cells_that_look_like_lists(run, tmp_path) -> None:
    cells = ["Bär, Fuß", "Bär", "Fuß", "Möwe, Bär", "Möwe", "Fuß"] * 5
    pd.DataFrame({"x": np.arange(30) % 7, "art": cells}).to_csv(tmp_path / "t.csv", index=False)
    _, out, _ = run("inspect", tmp_path / "t.csv", "-l", "art")
    assert "cells such as 'Bär, Fuß' look like lists; split them with --options separator=," in out
    assert (
        "look like lists" not in run("inspect", tmp_path / "t.csv", "-l", "art", *settings(separator=","))[1]
    )
    names = ["Smith, Ann", "Smith, Bob", "Miller"] * 10
    pd.DataFrame({"x": np.arange(30) % 7, "art": names}).to_csv(tmp_path / "t.csv", index=False)
    assert "look like lists" not in run("inspect", tmp_path / "t.csv", "-l", "art")[1]


def test_a_table_of_images_asks_for_them(run, tmp_path) -> None:
    frame = pd.DataFrame({"file": [f"a/{i}.PNG" for i in range(30)], "label": ["a", "b", "a|b"] * 10})
    frame.to_csv(tmp_path / "t.csv", index=False)
    _, _, err = run("fit", tmp_path / "t.csv", "-o", tmp_path / "m")
    message = err.replace("\n", " ")
    assert "no usable column is left: 'file' has 30 different values in 30 rows" in message
    assert "To learn from images, use --images file." in message


def test_a_wide_table_is_not_listed_in_full(run, tmp_path) -> None:
    names = [f"c{i}" for i in range(150)]
    rows = [",".join([str(i), *[str(j % 7 + i) for j in range(149)], "ab"[i % 2]]) for i in range(12)]
    (tmp_path / "wide.csv").write_text("\n".join([",".join([*names, "label"]), *rows]))
    code, out, _ = run("inspect", str(tmp_path / "wide.csv"))
    assert code == 0
    assert "and 51 more columns; --json lists all" in out
    assert "c99 " in out
    assert "c100" not in out
    quick = ["--effort", "quick", "--time-limit", "0", "--out", str(tmp_path / "model")]
    code, out, _ = run("fit", str(tmp_path / "wide.csv"), "--label", "label", *quick)
    assert code == 0
    assert "and 50 more columns; --json lists all" in out
    assert "c99 " in out
    assert "c100 " not in out
    assert "left out (the time limit has passed): small MLP; " in out
    assert "mean log-probability that the label of a row is one of its candidates" in out


def test_square_roots_of_counts_are_listed(run, tmp_path) -> None:
    rows = [f"{i % 5},{7 * i % 11},{'ab'[i % 2]}" for i in range(24)]
    quick = ["--label", "label", "--effort", "quick", "--time-limit", "0", "--out", tmp_path / "model"]
    for name, shift in (("counts", 0), ("differences", -3)):
        file = tmp_path / f"{name}.csv"
        cells = "\n".join(["x,y,label", *rows])
        file.write_text(cells if not shift else cells.replace("\n0,", f"\n{shift},"))
        code, out, _ = run("fit", file, *quick)
        assert code == 0
        assert ("IPAL, square root" in out) == (name == "counts")


def test_consensus_of_answers(run, tmp_path) -> None:
    _, _, wide = answers_of(n=300)
    wide.to_csv(tmp_path / "wide.csv", index=False)
    wide_file, long_file = tmp_path / "wide.csv", tmp_path / "long.csv"
    code, out, _ = run("consensus", wide_file, "--annotators", "a,b,c", "--out", tmp_path / "out.csv")
    assert code == 0
    assert "accuracy %" in out
    assert "Krippendorff's alpha" in out
    assert "Ask again first: row" in out
    assert "300 rows labeled" in out
    names = {path.name for path in tmp_path.iterdir()} - {"wide.csv"}
    beside = {"out.html", "out_annotators.csv", "out_confusions.csv", "out_questions.csv"}
    assert names == {"out.csv", *beside}
    packed = tmp_path / "packed"
    packed.mkdir()
    code, _, _ = run("consensus", wide_file, "--annotators", "a,b,c", "--out", packed / "out.csv.gz")
    assert code == 0
    assert {path.name for path in packed.iterdir()} == {"out.csv.gz", *beside}
    long_form(wide).to_csv(long_file, index=False)
    code, out, _ = run("consensus", long_file, "--out", tmp_path / "long_out.csv", "--json", *NO_PAGE)
    assert code == 0
    found = json.loads(out)
    assert found["resolved"] == 300
    assert 0 < found["alpha"] < 1
    assert {row["name"] for row in found["annotators"]} == {"a", "b", "c"}
    code, _, err = run("consensus", tmp_path / "wide.csv", "--out", tmp_path / "no.csv")
    assert code != 0
    assert "which columns hold the answers" in err


def test_reports_of_a_consensus_do_not_replace_the_answers(run, tmp_path) -> None:
    _, _, wide = answers_of(n=20)
    file = tmp_path / "labels_annotators.csv"
    wide.to_csv(file, index=False)
    answers = file.read_bytes()
    code, _, err = run("consensus", file, "--annotators", "a,b,c", "--out", tmp_path / "labels.csv")
    assert code == 1
    assert "labels_annotators.csv is the input file, which a report beside" in " ".join(err.split())
    assert file.read_bytes() == answers
    assert [path.name for path in tmp_path.iterdir()] == ["labels_annotators.csv"]


def test_consensus_in_a_named_encoding(run, tmp_path) -> None:
    lines = [
        "item,annotator,answer",
        *(f"x{i},{who},{'кот' if i % 2 else 'пёс'}" for i in range(6) for who in "abc"),
    ]
    (tmp_path / "a.csv").write_bytes("\n".join(lines).encode("cp1251"))
    for named in ([], ["--item", "item", "--annotator", "annotator", "--label", "answer"]):
        out = tmp_path / "out.csv"
        code, _, err = run(
            "consensus", tmp_path / "a.csv", *named, "--encoding", "cp1251", "--out", out, *NO_PAGE
        )
        assert code == 0, err
        assert set(pd.read_csv(out)["propall_label"]) == {"кот", "пёс"}


def test_an_output_that_cannot_be_written_stops_a_fit_at_once(run, birds_file, tmp_path) -> None:
    code, out, err = run("fit", birds_file, "--label", "species", "--out", birds_file / "models" / "new")
    assert code == 1
    assert "Not a directory. Check the path" in " ".join(err.split())
    assert "fitting" not in out + err


#: Answers (item, annotator, answer) that are easy to get wrong, and some labels that must come out.
ODD_ANSWERS = {
    "one always answers the same": (
        [
            (f"x{i}", who, "cat" if who == "w3" else "cat" if i < 9 else "dog" if i < 17 else "emu")
            for i in range(24)
            for who in ("w1", "w2", "w3")
        ],
        {"x0": "cat", "x10": "dog", "x20": "emu"},
    ),
    "answers that nobody else has": (
        [
            (f"x{i}", who, "fox" if who == "w3" else "cat" if i % 2 else "dog")
            for i in range(12)
            for who in ("w1", "w2", "w3")
        ],
        {"x0": "dog", "x1": "cat"},
    ),
    "500 answers on one row": (
        [("x0", f"w{i}", "cat" if i % 3 else "dog") for i in range(500)]
        + [(f"x{i}", "w1", "dog") for i in range(1, 9)],
        {"x0": "cat", "x8": "dog"},
    ),
    "one annotator per row": (
        [(f"x{i}", f"w{i}", "cat" if i % 2 else "dog") for i in range(30)],
        {"x0": "dog", "x29": "cat"},
    ),
    "all agree": (
        [(f"x{i}", who, "cat" if i % 2 else "dog") for i in range(10) for who in ("w1", "w2", "w3")],
        {f"x{i}": "cat" if i % 2 else "dog" for i in range(10)},
    ),
    "contradictions": (
        [
            (f"x{i}", who, name)
            for i in range(8)
            for who, name in (("w1", "cat"), ("w2", "dog"), ("w3", "emu"))
        ],
        {},
    ),
}


@pytest.mark.parametrize("case", ODD_ANSWERS)
def test_consensus_of_odd_answers(run, tmp_path, case) -> None:
    answers, expected = ODD_ANSWERS[case]
    frame = pd.DataFrame(answers, columns=["item", "annotator", "answer"])
    frame.to_csv(tmp_path / "answers.csv", index=False)
    code, out, err = run("consensus", tmp_path / "answers.csv", "--out", tmp_path / "out.csv", "--json")
    assert code == 0, err
    labels = pd.read_csv(tmp_path / "out.csv").drop_duplicates("item").set_index("item")
    assert len(labels) == frame["item"].nunique()
    probability = labels["propall_probability"]
    assert ((probability > 0) & (probability <= 1)).all()
    assert {item: labels.loc[item, "propall_label"] for item in expected} == expected
    accuracy = pd.read_csv(tmp_path / "out_annotators.csv")["accuracy"]
    assert len(accuracy) == frame["annotator"].nunique()
    assert ((accuracy > 0) & (accuracy < 1)).all()
    alpha = json.loads(out)["alpha"]
    if case == "all agree":
        assert alpha == 1
        assert accuracy.min() > 0.8
    if case == "contradictions":
        assert alpha < 0  # less than chance
        assert probability.max() < 0.9
    if case == "one annotator per row":
        assert alpha is None  # no two answers can be compared


def test_empty_lists_and_lists_of_every_class(run, tmp_path) -> None:
    frame, truth = blobs(60)
    frame["reply"] = [f"- {name}" for name in truth]
    frame.loc[:4, "reply"] = ""
    frame.loc[5:9, "reply"] = "cat, dog or emu"
    frame.to_csv(tmp_path / "replies.csv", index=False)
    words = ("--lists", "reply", *settings(classes="cat,dog,emu"))
    found = json.loads(run("inspect", tmp_path / "replies.csv", *words, "--json")[1])
    assert found["rows"] == 60
    quickly = settings(net="linear", epochs=100, members=1, folds=2, search="false")
    code, out, err = run("fit", tmp_path / "replies.csv", *words, *quickly, "--out", tmp_path / "m", *NO_PAGE)
    assert code == 0, err
    assert "60 of 60 rows, 3 classes" in out  # neither says anything, and both rows are kept
    code, _, err = run(
        "resolve",
        tmp_path / "replies.csv",
        "--model",
        tmp_path / "m",
        "--out",
        tmp_path / "out.csv",
        *NO_PAGE,
    )
    assert code == 0, err
    labels = pd.read_csv(tmp_path / "out.csv")["propall_label"]
    assert set(labels) <= {"cat", "dog", "emu"}
    assert (labels == truth)[10:].mean() > 0.8


def test_fit_says_how_far_labels_are_trusted(run, tmp_path) -> None:
    frame, truth = blobs(300)
    said, _ = corrupted(truth, 0.3)
    for name in ("cat", "dog", "emu"):
        frame[f"p_{name}"] = 0.1 + 0.8 * (said == name)
    frame.to_csv(tmp_path / "scores.csv", index=False)
    options = settings(sets="top_k=1", net="linear", epochs=100, members=1, folds=2, search="false")
    words = ("fit", tmp_path / "scores.csv", "--scores", "p_cat,p_dog,p_emu", *options)
    code, out, _ = run(*words, "--out", tmp_path / "m", *NO_PAGE)
    assert code == 0
    assert "1.00 candidates per row; share of sets without the true label: estimated at" in out
    assert "The labels are trusted to" in out
    code, _, err = run(*words, "--trust", "2", "--out", tmp_path / "m2")
    assert code != 0
    assert "trust: got '2'; expected auto, full or a number" in err


def test_a_report_beside_the_output_replaces_only_reports(run, tmp_path) -> None:
    _, _, wide = answers_of(n=60)
    wide.to_csv(tmp_path / "answers.csv", index=False)
    words = ("consensus", tmp_path / "answers.csv", "--annotators", "a,b,c", "--out", tmp_path / "mine.csv")
    (tmp_path / "mine.html").write_text("<h1>My page</h1>")
    code, _, err = run(*words)
    assert code == 1
    assert "mine.html, which is not a report of propall; choose another name" in " ".join(err.split())
    assert (tmp_path / "mine.html").read_text() == "<h1>My page</h1>"
    assert not (tmp_path / "mine.csv").exists()
    assert run(*words, *NO_PAGE)[0] == 0
    assert (tmp_path / "mine.html").read_text() == "<h1>My page</h1>"
    (tmp_path / "mine.html").unlink()
    assert run(*words)[0] == 0
    assert run(*words)[0] == 0  # an older report is replaced
    (tmp_path / "mine_annotators.csv").write_text("name,phone\nann,123\n")
    code, _, err = run(*words)
    assert code == 1
    assert "mine_annotators.csv, which is another table" in " ".join(err.split())
    assert "ann,123" in (tmp_path / "mine_annotators.csv").read_text()


def test_resolve_replaces_no_other_page(run, tmp_path) -> None:
    frame, truth = blobs(60)
    frame["ann"], frame["bob"] = truth, [*truth[:50], *["dgo"] * 2, *truth[52:]]
    frame.to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", "--annotators", "ann,bob", *QUICKLY, "--out", tmp_path / "m")
    assert run(*fit, *NO_PAGE)[0] == 0
    words = ("resolve", tmp_path / "t.csv", "--model", tmp_path / "m", "--out", tmp_path / "out.csv")
    (tmp_path / "out.html").write_text("<h1>My page</h1>")
    code, _, err = run(*words)
    assert code == 1
    assert "out.html, which is not a report of propall" in " ".join(err.split())
    (tmp_path / "out.html").unlink()
    code, out, err = run(*words)
    assert code == 0, err
    assert "'dgo' is read as 'dog' (rows 51, 52)" in out  # all notes, not only on dropped rows
    files = [tmp_path / f"out_{name}.csv" for name in ("annotators", "confusions", "questions")]
    assert all(path.exists() and path.name in "".join(out.split()) for path in files)
    assert json.loads(run(*words, "--json")[1])["files"] == list(map(str, files))


def test_consensus_prints_all_notes_and_names_items(run, tmp_path) -> None:
    _, _, wide = answers_of(n=60)
    frame = long_form(wide).set_axis(["photo", "labeler", "verdict"], axis=1)
    frame = pd.concat([frame, frame.head(2)])
    frame.to_csv(tmp_path / "answers.csv", index=False)
    words = ("consensus", tmp_path / "answers.csv", "--out", tmp_path / "out.csv", *NO_PAGE)
    code, out, err = run(*words, "--item", "photo", "--annotator", "labeler")
    assert code == 0, err
    text = " ".join(out.split())
    assert "2 answers of an annotator who had answered the row before; all are candidates, the last" in text
    assert re.search(r"Ask again first: x\d+ \(row \d+\), [abc];", text)
    assert "Also written:" in text
    code, _, err = run(*words)
    assert code == 1
    assert "--label ANSWER --item ITEM --annotator WHO" in " ".join(err.split())
