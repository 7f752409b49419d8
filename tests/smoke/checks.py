"""What an installed propall must do, as a script without test libraries: `python checks.py FIXTURES`.

FIXTURES is a copy of tests/compatibility. Run it in an empty folder, with the package installed.
"""

import csv
import io
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path

PACKAGES = [
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
    "safetensors",
    "typer",
    "rich",
    "matplotlib",
    "jinja2",
    "jaxtyping",
]


def run(*words: str) -> str:
    """Run a propall command; returns what it prints."""
    from propall.cli import main

    out = io.StringIO()
    try:
        with redirect_stdout(out):
            main(list(words))
    except SystemExit as stop:
        if stop.code:
            raise RuntimeError(f"propall {' '.join(words)} ended with {stop.code}") from stop
    return out.getvalue()


def check_import(fixtures: Path) -> None:
    """The installed package is imported, with all public names."""
    import propall

    assert "site-packages" in propall.__file__, propall.__file__
    for name in propall.__all__:
        getattr(propall, name)


def check_losses(fixtures: Path) -> None:
    """Every loss has a finite gradient."""
    import torch

    from propall import PartialLabelLoss, ProPaLLLoss
    from propall.methods import METHODS

    candidates = torch.tensor([[1, 1, 0], [0, 1, 0]]).bool()
    for loss in (ProPaLLLoss(), PartialLabelLoss(METHODS["cc"]())):
        logits = torch.randn(2, 3, requires_grad=True)
        loss(logits, candidates).backward()
        assert logits.grad is not None
        assert logits.grad.isfinite().all()


def check_estimators(fixtures: Path) -> None:
    """Fit, predict, save and load, with scikit-learn around it."""
    import numpy as np
    from sklearn.datasets import load_iris
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from propall import PartialLabelClassifier, resolve_out_of_fold

    X, y = load_iris(return_X_y=True)
    candidates = np.eye(3, dtype=bool)[y]
    candidates[::3, 0] = True
    for method, net in (("propall", "linear"), ("cc", "mlp"), ("pl_knn", "linear")):
        model = PartialLabelClassifier(method, net, epochs=60, random_state=0).fit(X, candidates)
        assert (model.predict(X) == y).mean() > 0.7, method
        model.save("model.safetensors")
        again = PartialLabelClassifier.load("model.safetensors")
        assert np.array_equal(again.predict_proba(X), model.predict_proba(X)), f"{method} after loading"
    pipeline = make_pipeline(StandardScaler(), PartialLabelClassifier(epochs=150, random_state=0))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.7, "cross-validation"
    small = PartialLabelClassifier(epochs=10, random_state=0)
    assert len(resolve_out_of_fold(small, X, candidates).label) == len(X)


def check_commands(fixtures: Path) -> None:
    """Inspect, fit, resolve, predict and evaluate a table; doctor."""
    table = str(fixtures / "models" / "sets.csv")
    assert "48 rows" in run("inspect", table, "--label", "animal")
    run("fit", table, "--label", "animal", "--out", "model", "--effort", "quick", "--quiet")
    run("resolve", table, "--model", "model", "--out", "resolved.csv", "--quiet")
    run("predict", table, "--model", "model", "--out", "predicted.csv", "--quiet")
    with Path("predicted.csv").open(newline="", encoding="utf-8") as file:
        assert all(row["propall_label"] for row in csv.DictReader(file))
    assert "Accuracy" in run("evaluate", "resolved.csv", "--model", "model", "--truth", "propall_label")
    assert "propall" in run("methods")
    assert "Everything that is required works." in run("doctor")


def check_old_files(fixtures: Path) -> None:
    """Models, estimator files and results of 0.1.0 are read."""
    from propall import PartialLabelClassifier

    for file in sorted((fixtures / "estimators").glob("*.safetensors")):
        PartialLabelClassifier.load(file)
    for name in ("sets", "annotators"):
        model, table = fixtures / "models" / name, fixtures / "models" / f"{name}.csv"
        run("predict", str(table), "--model", str(model), "--out", f"{name}.csv", "--quiet")
    assert "8 results" in run("results", "list", "--store", str(fixtures / "store" / "results.sqlite"))
    run("report", "--results", str(fixtures / "store" / "tables"), "--out", "report.html")
    assert Path("report.html").read_text(encoding="utf-8").rstrip().endswith("</html>")


CHECKS: Sequence[Callable[[Path], None]] = (
    check_import, check_losses, check_estimators, check_commands, check_old_files,
)  # fmt: skip


def main() -> None:
    """Run all checks; the exit status is the number of failures."""
    fixtures = Path(sys.argv[1]).resolve()
    print("python", sys.version.split()[0], *(f"{name} {version(name)}" for name in PACKAGES), flush=True)
    failures = 0
    for check in CHECKS:
        try:
            check(fixtures)
            print(f"ok      {check.__doc__}", flush=True)
        except Exception as error:
            failures += 1
            print(f"FAILED  {check.__doc__} {type(error).__name__}: {error}", flush=True)
    raise SystemExit(failures)


if __name__ == "__main__":
    main()
