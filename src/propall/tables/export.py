"""A model's network as ONNX: for programs that have neither Python nor torch."""

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

#: Version of the operators that are written; onnxruntime has had them since 2023.
OPSET = 18


class _Probabilities(nn.Module):
    """Features to probabilities."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits.softmax(-1)


def export_onnx(model: TableModel, path: str | Path) -> Path:
    """Write the network of a model, features in and probabilities out, and what the features are as JSON.

    Args:
        model: one whose method trains a network.
        path: the .onnx file; the JSON is put beside it, under the same name with .json behind.

    Returns:
        The path of the JSON.
    """
    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        raise ValueError("onnx: writing it needs onnx and onnxscript; pip install 'propall[export]'.")
    path = Path(path)
    network = _Probabilities(model.classifier.to_torch()).cpu().eval()
    images = model.features.images
    shape = (model.classifier.n_features_in_,) if images is None else (3, images.size, images.size)
    example = torch.zeros(2, *shape, dtype=next(network.parameters()).dtype)
    rows = torch.export.Dim("rows")
    with _without_chatter():
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
    # Not model.json for model.onnx: in a model's own folder that would overwrite the model.
    described = path.with_name(path.name + ".json")
    contents = {
        "input": {"name": "features", "shape": ["rows", *shape], "dtype": str(np.dtype(np.float32))},
        "output": {"name": "probabilities", "shape": ["rows", len(model.classes)]},
        "classes": model.classes.tolist(),
        "features": model.features.as_dict(),
    }
    atomic_files.write_text(described, json.dumps(contents, indent=1, ensure_ascii=False) + "\n")
    return described


@contextmanager
def _without_chatter() -> Iterator[None]:
    """The exporter warns of libraries it does not find and of its own future; neither concerns a user."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
