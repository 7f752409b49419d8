"""Files written by propall 0.1.0 load and give the same answers; see README.md."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from propall import PartialLabelClassifier
from propall.cli import main
from propall.methods import METHODS

HERE = Path(__file__).parent
ESTIMATORS = json.loads((HERE / "estimators/answers.json").read_text())


@pytest.fixture
def propall(monkeypatch):
    """Run a command."""

    def run(*words):
        monkeypatch.setattr("sys.argv", ["propall", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (0, None)

    return run


def ask(name):
    """A saved estimator, and rows as it takes them."""
    model = PartialLabelClassifier.load(HERE / f"estimators/{name}.safetensors")
    X = np.array(ESTIMATORS["X"], dtype=ESTIMATORS["models"][name]["dtype"])
    named = hasattr(model, "feature_names_in_")
    return model, pd.DataFrame(X, columns=model.feature_names_in_) if named else X


@pytest.mark.parametrize("name", ESTIMATORS["models"])
def test_estimators(name, tmp_path) -> None:
    model, X = ask(name)
    expected = ESTIMATORS["models"][name]
    assert model.predict(X).tolist() == expected["prediction"]
    np.testing.assert_allclose(model.predict_proba(X), expected["probabilities"], rtol=0, atol=1e-6)
    assert model.temperature_ == expected["temperature"]
    model.save(tmp_path / "again.safetensors")
    again = PartialLabelClassifier.load(tmp_path / "again.safetensors")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_settings_of_methods() -> None:
    assert ask("lws")[0].method == METHODS["lws"](beta=2.0)
    valen = ask("valen")[0].method
    assert (valen.warm_up, valen.neighbours) == (2, 3)


@pytest.mark.parametrize("name", ["sets", "annotators"])
def test_models_of_tables(name, propall, tmp_path) -> None:
    table, model = HERE / f"models/{name}.csv", HERE / f"models/{name}"
    for command, participle, options in (
        ("predict", "predicted", ["--probabilities"]),
        ("resolve", "resolved", ["--options", "page=false"]),
    ):
        out = tmp_path / f"{command}.csv"
        propall(command, table, "--model", model, *options, "--out", out)
        old, new = (pd.read_csv(p) for p in (HERE / f"models/{name}_{participle}.csv", out))
        assert new["propall_label"].tolist() == old["propall_label"].tolist()
        numbers = [c for c in old if c.startswith("propall_") and old[c].dtype == float]
        assert len(numbers) >= 2
        # Both are rounded to six digits.
        np.testing.assert_allclose(new[numbers], old[numbers], rtol=0, atol=2e-6)


def test_store(propall, tmp_path) -> None:
    store = tmp_path / "results.sqlite"
    shutil.copy(HERE / "store/results.sqlite", store)
    for kind in ("json", "csv"):
        propall("results", "export", tmp_path / f"out.{kind}", "--format", kind, "--store", store)
        assert (tmp_path / f"out.{kind}").read_text() == (HERE / f"store/exported.{kind}").read_text()


@pytest.mark.parametrize(
    ("file", "keys"),
    [("exported.json", 8), ("exported.csv", 8), ("trained.jsonl", 3), ("tables", 5), ("results.sqlite", 8)],
)
def test_files_of_results_can_be_imported(file, keys, propall, tmp_path) -> None:
    shutil.copytree(HERE / "store", tmp_path / "store")  # opening a store may write to its file
    propall("results", "import", tmp_path / "store" / file, "--store", tmp_path / "new.sqlite")
    propall("results", "export", tmp_path / "new.csv", "--format", "csv", "--store", tmp_path / "new.sqlite")
    new, old = (
        pd.read_csv(path).set_index("key") for path in (tmp_path / "new.csv", HERE / "store/exported.csv")
    )
    assert len(new) == keys
    pd.testing.assert_frame_equal(new, old.loc[new.index], atol=1e-6)
