"""The commands that write files, each with an older output in place, and what makes its output whole."""

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.harness import run_command

COMPATIBILITY = Path(__file__).parents[2] / "compatibility"
MODEL, TABLE = COMPATIBILITY / "models" / "sets", COMPATIBILITY / "models" / "sets.csv"
ANSWERS = COMPATIBILITY / "models" / "annotators.csv"
STORE = COMPATIBILITY / "store"
#: What an output holds: one part for a file or a model, one part per result for a store.
Parts = frozenset[str]


class NotWholeError(Exception):
    """An output is neither the old nor the new one."""


@dataclass(frozen=True)
class Scenario:
    """A command whose outputs are in the folder `work` beside its inputs.

    Attributes:
        name: printed name.
        words: the command, run in the parent of `work`.
        prepare: writes the inputs and the older outputs.
        outputs: how to read each output by name; raises if it is not whole.
        grows: whether an output may be anything from the old to the new one (results added one by one).
    """

    name: str
    words: tuple[str, ...]
    prepare: Callable[[Path], None]
    outputs: dict[str, Callable[[Path], Parts]]
    grows: bool = False

    def run(self, folder: Path) -> None:
        """Run the command in a folder."""
        os.chdir(folder)
        run_command(*self.words)

    def read(self, folder: Path) -> dict[str, Parts]:
        """What the outputs hold; raise NotWholeError if one is damaged or an unexpected file is there."""
        work = folder / "work"
        present: dict[str, Parts] = {}
        for name, reader in self.outputs.items():
            try:
                present[name] = reader(work / name) if (work / name).exists() else frozenset()
            except NotWholeError:
                raise
            except Exception as error:
                raise NotWholeError(f"{name}: {error}") from error
        expected = {Path(name).parts[0] for name in self.outputs}
        for path in work.iterdir() if work.exists() else ():
            beside_store = re.fullmatch(r".*(\.sqlite-(wal|shm)|\.progress)", path.name)
            if not path.name.startswith(".") and path.name not in expected and not beside_store:
                raise NotWholeError(f"unexpected file {path.name}")
        return present

    def leftovers(self, folder: Path) -> list[str]:
        """Temporary files beside the outputs."""
        return sorted(path.name for path in (folder / "work").rglob(".*part*"))


def _read_model(folder: Path) -> Parts:
    from safetensors.torch import load_file

    from propall.tables.model import CLASSIFIER, OPTIONS, PAGE, TableModel

    model = TableModel.load(folder)
    assert model.held_out is not None
    # Not the bytes of the file: safetensors writes its metadata in any order.
    tensors = load_file(folder / CLASSIFIER)
    content = b"".join(tensors[name].numpy().tobytes() for name in sorted(tensors))
    content += model.held_out.log_probabilities.tobytes()
    if (folder / PAGE).exists():
        _read_page(folder / PAGE)
        json.loads((folder / OPTIONS).read_text(encoding="utf-8"))
    return frozenset({_hashed(content)})


def _read_page(path: Path) -> Parts:
    text = path.read_text(encoding="utf-8")
    if not text.startswith("old") and not text.rstrip().endswith("</html>"):
        raise NotWholeError(f"{path.name} ends with {text[-20:]!r}")
    return frozenset({_hashed(re.sub(r"\d", "", text).encode())})  # times differ


def _read_bytes(path: Path) -> Parts:
    return frozenset({_hashed(path.read_bytes())})


def _read_store(path: Path) -> Parts:
    from propall.paper.store import DamagedResultWarning, Store

    with warnings.catch_warnings(), Store(path, read_only=True) as store:
        warnings.simplefilter("error", DamagedResultWarning)
        results = [f"{result.spec.key} {result.accuracy:.6f}" for result in store]
    if len(results) != len(set(results)):
        raise NotWholeError("a result is in the store twice")
    return frozenset(results)


def _hashed(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _with_old_model(folder: Path) -> None:
    (folder / "work").mkdir()
    shutil.copytree(MODEL, folder / "work" / "model")


def _with_old_files(*names: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        for name in names:
            (folder / "work" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "work" / name).write_text("old\n", encoding="utf-8")

    return prepare


def _with_old_store(folder: Path) -> None:
    from propall.paper import results_io
    from propall.paper.store import Store

    (folder / "work").mkdir()
    with Store(folder / "work" / "results.sqlite") as store:
        lines = (STORE / "exported.json").read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / "some.jsonl").write_text("".join(lines[:2]), encoding="utf-8")
        results_io.import_results(store, folder / "some.jsonl")


def _with_data(folder: Path) -> None:
    from tests.fixtures.runs import write_mat

    _with_old_store(folder)
    (folder / "data").mkdir()
    write_mat(folder / "data", "lost")


QUICK = "net=linear", "epochs=4", "members=1", "folds=2", "search=false"
QUICKLY = tuple(word for setting in QUICK for word in ("--options", setting))
_CONSENSUS = ("out.csv", "out_annotators.csv", "out_confusions.csv", "out_questions.csv")
_TABLES = ("real.csv", "uniform.csv", "details.jsonl")
SCENARIOS = [
    Scenario(
        "fit over an older model",
        ("fit", str(TABLE), "--label", "animal", "--out", "work/model", *QUICKLY),
        _with_old_model,
        {"model": _read_model},
    ),
    Scenario(
        "resolve",
        ("resolve", str(TABLE), "--model", str(MODEL), "--out", "work/out.csv"),
        _with_old_files("out.csv", "out.html"),
        {"out.csv": _read_bytes, "out.html": _read_page},
    ),
    Scenario(
        "consensus",
        ("consensus", str(ANSWERS), "--annotators", "ann,bob,eve", "--out", "work/out.csv"),
        _with_old_files("out.html", *_CONSENSUS),
        {"out.html": _read_page} | dict.fromkeys(_CONSENSUS, _read_bytes),
    ),
    Scenario(
        "predict",
        ("predict", str(TABLE), "--model", str(MODEL), "--out", "work/out.csv"),
        _with_old_files("out.csv"),
        {"out.csv": _read_bytes},
    ),
    Scenario(
        "reproduce",
        (
            *("reproduce", "real", "--protocol", "short", "--methods", "pl_knn,ga", "--data", "lost"),
            *("--device", "cpu", "--store", "work/results.sqlite"),
        ),
        _with_data,
        {"results.sqlite": _read_store},
        grows=True,
    ),
    Scenario(
        "results import",
        ("results", "import", str(STORE / "exported.json"), "--store", "work/results.sqlite"),
        _with_old_store,
        {"results.sqlite": _read_store},
    ),
    Scenario(
        "results export",
        ("results", "export", "work/out", "--store", str(STORE / "results.sqlite")),
        _with_old_files(*(f"out/{name}" for name in _TABLES)),
        {f"out/{name}": _read_bytes for name in _TABLES},
    ),
    Scenario(
        "report",
        (
            *("report", "--results", str(STORE / "tables"), "--out", "work/report.html"),
            *("--markdown", "work/report.md"),
        ),
        _with_old_files("report.html", "report.md"),
        {"report.html": _read_page, "report.md": _read_bytes},
    ),
]
