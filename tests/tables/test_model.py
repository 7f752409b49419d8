"""Models on disk: unchanged by saving and loading, and refused if damaged."""

import json
import pickle
import shutil
import sys

import numpy as np
import pytest

from propall import counter_rng
from propall.tables.label_columns import open_table
from propall.tables.model import CONTENTS, TableModel


@pytest.fixture
def saved(fitted, tmp_path):
    return fitted.model.save(tmp_path / "model")


def test_the_same_after_loading(fitted, saved, birds_file) -> None:
    model = TableModel.load(saved)
    frame = open_table(birds_file).frame
    np.testing.assert_array_equal(model.log_probabilities(frame), fitted.model.log_probabilities(frame))
    assert model.account == json.loads(json.dumps(fitted.model.account))
    assert model.labels == fitted.model.labels
    labels = fitted.table.labeled.labels
    one, rows = model.resolve(fitted.table.frame, labels)
    np.testing.assert_array_equal(rows, np.arange(len(labels)))
    np.testing.assert_allclose(
        one.log_probabilities, fitted.consensus.resolution.log_probabilities, rtol=1e-5, atol=1e-6
    )
    assert (one.label == fitted.consensus.resolution.label).all()


def test_new_rows_are_predicted_by_the_final_model(fitted, saved) -> None:
    model = TableModel.load(saved)
    frame = fitted.table.frame.head(6).copy()
    frame.loc[frame.index[:2], "wing_mm"] = "333"
    everything = np.ones((6, len(model.classes)), dtype=bool)
    resolution, rows = model.resolve(frame, everything)
    assert rows.tolist() == [-1, -1, 2, 3, 4, 5]
    np.testing.assert_allclose(
        resolution.log_probabilities[:2], model.log_probabilities(frame)[:2], rtol=1e-12
    )


def test_all_files_have_the_same_permissions(saved) -> None:
    assert len({path.stat().st_mode for path in saved.iterdir()}) == 1


def test_saving_again_replaces_the_folder(fitted, saved) -> None:
    (saved / "report.html").write_text("old")
    fitted.model.save(saved)
    assert not (saved / "report.html").exists()
    assert [path.name for path in saved.parent.iterdir()] == ["model"]
    TableModel.load(saved)


def test_other_folders_are_not_overwritten(fitted, tmp_path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match=r"contains 'thesis.tex', which is not part of a model"):
        fitted.model.save(tmp_path / "precious")
    (tmp_path / "precious" / CONTENTS).write_text("{}")  # a common name
    with pytest.raises(ValueError, match=r"contains 'thesis.tex'"):
        fitted.model.save(tmp_path / "precious")
    assert (tmp_path / "precious" / "thesis.tex").read_text() == "x"
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is a file; expected a folder"):
        fitted.model.save(tmp_path / "file")


@pytest.mark.parametrize("name", ["classifier.safetensors", "held_out.safetensors", CONTENTS])
@pytest.mark.parametrize("how", ["cut", "edited", "gone", "empty"])
def test_damage_is_refused(saved, name, how) -> None:
    path = saved / name
    whole = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        path.write_bytes({"cut": whole[:-20], "edited": flipped, "empty": b""}[how])
    with pytest.raises(ValueError, match="model: "):
        TableModel.load(saved)


def rewritten(folder, **changes):
    _, _, text = (folder / CONTENTS).read_text(encoding="utf-8").partition("\n")
    contents = {**json.loads(text), **changes}
    text = json.dumps(contents)
    (folder / CONTENTS).write_text(
        json.dumps({"digest": counter_rng.digest(text)}) + "\n" + text + "\n", encoding="utf-8"
    )


def test_newer_models_are_refused(saved) -> None:
    rewritten(saved, layout=2, version="9.9")
    with pytest.raises(ValueError, match=r"written by propall 9.9 in layout 2; .*Upgrade propall"):
        TableModel.load(saved)


def test_files_outside_the_folder_are_not_read(saved) -> None:
    rewritten(saved, files={"../model/classifier.safetensors": "0"})
    with pytest.raises(ValueError, match="is missing"):
        TableModel.load(saved)


def test_other_folders_are_not_models(tmp_path) -> None:
    with pytest.raises(ValueError, match="it does not exist"):
        TableModel.load(tmp_path / "none")
    with pytest.raises(ValueError, match=r"it has no model.json"):
        TableModel.load(tmp_path)


class Bomb:
    def __reduce__(self):
        return (sys.exit, ("executed",))


def test_loading_executes_nothing(saved, tmp_path) -> None:
    """Pickles in place of the files are refused, not loaded."""
    bomb = pickle.dumps(Bomb())
    for name in ("classifier.safetensors", CONTENTS):
        copy = tmp_path / f"bomb {name}"
        shutil.copytree(saved, copy)
        (copy / name).write_bytes(bomb)
        with pytest.raises(ValueError, match="model: "):
            TableModel.load(copy)
