"""The exported network has the same probabilities in onnxruntime."""

import json
from dataclasses import replace

import numpy as np
import pytest

from propall import PartialLabelClassifier
from propall.tables import export
from propall.tables.export import export_onnx
from propall.tables.features import Features


# Some of the exporter's own libraries warn when they are imported.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_onnx_says_the_same(fitted, tmp_path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    pytest.importorskip("onnxscript", reason="needs onnxscript")
    description = export_onnx(fitted.model, tmp_path / "birds.onnx")
    assert description == tmp_path / "birds.onnx.json"
    contents = json.loads(description.read_text(encoding="utf-8"))
    features = Features.from_dict(contents["features"])
    session = runtime.InferenceSession(tmp_path / "birds.onnx")
    for rows in (1, 7, 240):
        X = features.transform(fitted.table.frame.head(rows))
        (probabilities,) = session.run(["probabilities"], {"features": X})
        expected = np.exp(fitted.model.log_probabilities(fitted.table.frame.head(rows)))
        np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    assert contents["classes"] == fitted.model.classes.tolist()


def test_only_networks_in_onnx_files(fitted, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(export, "find_spec", lambda name: True)
    table = tmp_path / "birds.csv"
    table.write_text("mine")
    with pytest.raises(
        ValueError, match=r"birds\.csv is not an ONNX file; expected a name such as model\.onnx"
    ):
        export_onnx(fitted.model, table)
    assert table.read_text() == "mine"
    X, y = fitted.model.features.transform(fitted.table.frame), fitted.table.frame["truth"]
    neighbors = PartialLabelClassifier(method="pl_knn").fit(X, y)
    with pytest.raises(ValueError, match=r"not a network and cannot be exported.*--method propall"):
        export_onnx(replace(fitted.model, classifier=neighbors), tmp_path / "birds.onnx")


def test_without_onnx_it_says_what_to_install(fitted, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'propall\[export\]'"):
        export_onnx(fitted.model, tmp_path / "birds.onnx")
