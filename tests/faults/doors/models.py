"""Models: the folder of `propall fit` with edited contents, sealed again, and the file of an estimator."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save

from propall import counter_rng
from tests.faults.harness import Case, Door, run_command
from tests.faults.mutations import byte_mutations, json_mutations

MODEL = Path(__file__).parents[2] / "compatibility" / "models" / "sets"
ESTIMATORS = Path(__file__).parents[2] / "compatibility" / "estimators"
TABLE = MODEL.with_name("sets.csv")


def _predict(path: Path) -> None:
    """Predict with the model folder whose model.json is the input."""
    folder = path.with_name("model")
    shutil.copytree(MODEL, folder)
    shutil.copy(path, folder / "model.json")
    run_command("predict", str(TABLE), "--model", str(folder), "--out", str(path.with_name("out.csv")))


def _model_json(count: int, seed: int) -> Iterator[Case]:
    sealed = (MODEL / "model.json").read_text(encoding="utf-8")
    contents = json.loads(sealed.partition("\n")[2])
    few = count // 5
    yield from byte_mutations("model.json", sealed.encode(), ".json", few, seed)
    for case in json_mutations("model.json", contents, ".json", count - few, seed):
        text = case.content.decode("utf-8", "surrogatepass")
        seal = json.dumps({"digest": counter_rng.digest(text)})
        yield Case(case.name, f"{seal}\n{text}\n".encode("utf-8", "surrogatepass"), ".json")


def _predict_damaged(path: Path) -> None:
    """Predict with a model folder whose classifier file is the input, its digest brought up to date."""
    folder = path.with_name("model")
    shutil.copytree(MODEL, folder)
    shutil.copy(path, folder / "classifier.safetensors")
    contents = json.loads((folder / "model.json").read_text(encoding="utf-8").partition("\n")[2])
    digest = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    contents["files"]["classifier.safetensors"] = digest
    text = json.dumps(contents)
    seal = json.dumps({"digest": counter_rng.digest(text)})
    (folder / "model.json").write_text(f"{seal}\n{text}\n", encoding="utf-8")
    run_command("predict", str(TABLE), "--model", str(folder), "--out", str(path.with_name("out.csv")))


def _classifier(count: int, seed: int) -> Iterator[Case]:
    valid = (MODEL / "classifier.safetensors").read_bytes()
    yield from byte_mutations("classifier", valid, ".safetensors", count, seed)


def _load(path: Path) -> None:
    from propall import PartialLabelClassifier

    PartialLabelClassifier.load(path)


def _estimators(count: int, seed: int) -> Iterator[Case]:
    files = sorted(ESTIMATORS.glob("*.safetensors"))
    few = count // 4
    yield from byte_mutations("estimator", files[0].read_bytes(), ".safetensors", few, seed)
    each = -(-(count - few) // len(files))
    made = 0
    for number, file in enumerate(files):
        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata()
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        header = json.loads(metadata["propall"])
        for case in json_mutations(file.name, header, ".safetensors", each, 1000 * seed + number):
            if made == count - few:
                return
            made += 1
            text = case.content.decode("utf-8", "replace")
            parts = (part for name in sorted(tensors) for part in (name, tensors[name]))
            sealed = {"propall": text, "digest": counter_rng.digest(text, *parts)}
            yield Case(case.name, save(tensors, sealed), ".safetensors")


DOORS = [
    Door("model folder", _predict, _model_json, names=("model",)),
    Door("model tensors", _predict_damaged, _classifier, names=("model",)),
    Door("estimator file", _load, _estimators),
]
