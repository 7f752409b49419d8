"""Write files with the installed version of propall, and beside them what it answers; see README.md."""

import json
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from propall import PartialLabelClassifier
from propall.methods import METHODS

HERE = Path(__file__).parent
CLASSES = np.array(["cat", "cow", "dog"])
#: Parameters of each saved estimator; "dtype" is that of its features.
ESTIMATORS = {
    "propall_linear": {"method": "propall"},
    "proden_mlp_2_members": {
        "method": "proden",
        "net": "mlp",
        "net_options": {"widths": [8]},
        "n_estimators": 2,
    },
    "cc_calibrated": {"method": "cc", "dtype": "float32"},
    "cpe": {"method": METHODS["cpe"](variant="T"), "net": "mlp", "net_options": {"widths": [8]}},
    "lws": {"method": METHODS["lws"](beta=2.0), "standardize": False},
    "valen": {
        "method": METHODS["valen"](warm_up=2, neighbours=3),
        "net": "mlp",
        "net_options": {"widths": [8]},
        "epochs": 4,
    },
    "d2cnn": {"method": "d2cnn", "net": "mlp", "net_options": {"widths": [8]}, "epochs": 4},
    "pl_knn": {"method": METHODS["pl_knn"](), "n_estimators": 2},
    "ipal": {"method": "ipal"},
    "plle": {"method": "plle"},
    "pl_svm": {"method": "pl_svm"},
    "clpl": {"method": "clpl"},
}
PROPALL = (sys.executable, "-c", "from propall.cli import main; main()")


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features of three noisy classes, and the true columns."""
    draw = np.random.default_rng(seed)
    truth = np.arange(n) % 3
    return (np.eye(3, 4)[truth] * 2 + draw.normal(size=(n, 4))).round(3), truth


def candidate_strings(truth: np.ndarray, every: int = 2) -> list[str]:
    """The true label, and in one of so many rows another one."""
    return [
        f"{CLASSES[t]}|{CLASSES[(t + 1) % 3]}" if i % every == 0 else CLASSES[t] for i, t in enumerate(truth)
    ]


def write_estimators(folder: Path) -> None:
    """One file per entry of `ESTIMATORS`, and answers.json."""
    folder.mkdir(exist_ok=True)
    (X, truth), (new, _) = rows(36, 0), rows(6, 1)
    answers = {"X": new.tolist(), "models": {}}
    for name, parameters in ESTIMATORS.items():
        parameters = {"epochs": 10, "device": "cpu", "random_state": 0, **parameters}
        dtype = parameters.pop("dtype", "float64")
        frame = (
            pd.DataFrame(X.astype(dtype), columns=list("abcd"))
            if name == "propall_linear"
            else X.astype(dtype)
        )
        model = PartialLabelClassifier(**parameters).fit(
            frame, candidate_strings(truth, 1 if name == "cpe" else 2)
        )
        if name == "cc_calibrated":
            held_out, held_out_truth = rows(30, 2)
            model.calibrate(held_out.astype(dtype), candidate_strings(held_out_truth))
        model.save(folder / f"{name}.safetensors")
        asked = (
            pd.DataFrame(new.astype(dtype), columns=list("abcd"))
            if name == "propall_linear"
            else new.astype(dtype)
        )
        answers["models"][name] = {
            "dtype": dtype,
            "prediction": model.predict(asked).tolist(),
            "probabilities": model.predict_proba(asked).tolist(),
            "temperature": model.temperature_,
        }
    (folder / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")


def run(*words: object) -> str:
    """What a command prints."""
    done = subprocess.run([*PROPALL, *map(str, words)], check=True, capture_output=True, text=True)
    return done.stdout


def write_models(folder: Path) -> None:
    """Two tables, a model of each made by `propall fit`, and what `propall predict` and `resolve` answer."""
    folder.mkdir(exist_ok=True)
    X, truth = rows(48, 3)
    frame = pd.DataFrame(X, columns=["length", "width", "height", "noise"])
    frame["place"] = np.where(truth == 1, "farm", "house")
    frame["notes"] = np.where(truth == 2, "barks loudly", "calm and quiet")
    draw = np.random.default_rng(4)
    labels = frame.assign(animal=candidate_strings(truth))
    labels.loc[3, "animal"] = "!cow"
    people = frame.copy()
    for person in ("ann", "bob", "eve"):
        wrong = draw.random(len(truth)) < 0.25
        people[person] = CLASSES[np.where(wrong, (truth + 1) % 3, truth)]
    options = ("--epochs", 5, "--members", 2, "--folds", 2, "--net", "linear", "--net", "mlp", "--no-page")
    for name, table, where in (
        ("sets", labels, ("--label", "animal")),
        ("annotators", people, ("--annotators", "ann,bob,eve")),
    ):
        csv = folder / f"{name}.csv"
        table.to_csv(csv, index=False)
        model = folder / name
        run("fit", csv, *where, *options, "--device", "cpu", "--out", model)
        run("predict", csv, "--model", model, "--probabilities", "--out", folder / f"{name}_predicted.csv")
        run("resolve", csv, "--model", model, "--no-page", "--out", folder / f"{name}_resolved.csv")


def write_store(folder: Path, results: Path) -> None:
    """A store with a short training and some imported results, and what `propall results export` writes."""
    folder.mkdir(exist_ok=True)
    (tables := folder / "tables").mkdir(exist_ok=True)
    keys: set[str] = set()
    for name, methods in (("uniform", ("propall", "valen")), ("real", ("pl_knn", "valen", "plle"))):
        heading, *lines = (results / f"{name}.csv").read_text().splitlines()
        kept = [next(line for line in lines if line.split(",")[6] == method) for method in methods]
        (tables / f"{name}.csv").write_text("\n".join([heading, *kept]) + "\n")
        keys |= {line.split(",")[-1] for line in kept}
    details = (results / "details.jsonl").read_text().splitlines()
    (tables / "details.jsonl").write_text("".join(f"{d}\n" for d in details if json.loads(d)["key"] in keys))
    with tempfile.TemporaryDirectory() as runs:
        run(
            "train",
            "blobs",
            "--method",
            "propall",
            "--method",
            "valen",
            "--method",
            "pl_knn",
            "--corruption",
            "proden_binomial_min2",
            "--q",
            0.2,
            "--seeds",
            1,
            "--epochs",
            2,
            "--device",
            "cpu",
            "--out",
            runs,
        )
        (trained,) = Path(runs).rglob("results.jsonl")
        store = Path(runs, "results.sqlite")
        run("results", "import", trained, "--store", store)
        run("results", "import", tables, "--store", store)
        with sqlite3.connect(store) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA journal_mode = DELETE")
        connection.close()
        (folder / "trained.jsonl").write_text(trained.read_text())
        (folder / "results.sqlite").write_bytes(store.read_bytes())
        for kind in ("json", "csv"):
            run("results", "export", folder / f"exported.{kind}", "--format", kind, "--store", store)


if __name__ == "__main__":
    write_estimators(HERE / "estimators")
    write_models(HERE / "models")
    write_store(HERE / "store", Path(sys.argv[1]))
