"""Export of a model's network to ONNX, for programs without Python or torch."""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from propall import atomic_files
from propall.tables.model import TableModel

#: ONNX operator set; supported by onnxruntime since 2023.
OPSET = 18


class _Probabilities(nn.Module):
    """A network followed by a softmax."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits.softmax(-1)


def export_onnx(model: TableModel, path: str | Path) -> Path:
    """Write a model's network, which maps features to probabilities, to an .onnx file.

    Returns the path of a description of the features, written under the same name with `.json` appended.

    Examples:
        >>> import pandas as pd
        >>> from propall.tables.fitting import FitOptions, fit_table
        >>> from propall.tables.label_columns import open_table
        >>> from propall.tables.label_source import LabelSource
        >>> labels = ["cat", "cat|dog", "dog", "dog|cat"]
        >>> frame = pd.DataFrame({"size": [1.0, 1.2, 3.0, 3.1] * 10, "label": labels * 10})
        >>> table = open_table(frame, LabelSource(label="label"))
        >>> options = FitOptions(methods=("cc",), nets=("linear",), epochs=100, members=1, search=False)
        >>> model = fit_table(table, options).model
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> export_onnx(model, folder.name + "/model.onnx").name
        'model.onnx.json'
        >>> folder.cleanup()
    """
    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        raise ValueError("onnx: the export requires onnx and onnxscript; pip install 'propall[export]'.")
    path = Path(path)
    if path.suffix.lower() != ".onnx":
        raise ValueError(f"onnx: {path.name} is not an ONNX file; expected a name such as model.onnx.")
    try:
        network = _Probabilities(model.classifier.to_torch()).cpu().eval()
    except ValueError as error:
        raise ValueError(
            "onnx: a part of the model is not a network and cannot be exported. Fit a network alone: propall "
            "fit ... --method propall."
        ) from error
    images = model.features.images
    shape = (model.classifier.n_features_in_,) if images is None else (3, images.size, images.size)
    example = torch.zeros(2, *shape, dtype=next(network.parameters()).dtype)
    rows = torch.export.Dim("rows")
    with _quiet_exporter():
        program = torch.onnx.export(
            network,
            (example,),
            input_names=["features"],
            output_names=["probabilities"],
            dynamic_shapes={"x": {0: rows}},
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    with atomic_files.replacing(path) as part:
        program.save(part, external_data=False)
    # Not model.json for model.onnx: in a model folder that would overwrite the model.
    description = path.with_name(path.name + ".json")
    contents = {
        "input": {"name": "features", "shape": ["rows", *shape], "dtype": str(np.dtype(np.float32))},
        "output": {"name": "probabilities", "shape": ["rows", len(model.classes)]},
        "classes": model.classes.tolist(),
        "features": model.features.as_dict(),
    }
    atomic_files.write_text(description, json.dumps(contents, indent=1, ensure_ascii=False) + "\n")
    return description


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silence the exporter's warnings about optional libraries and its own deprecations."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
