"""A training killed at any moment and resumed ends with the same weights, bit for bit."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from propall.data.dataset import PartialDataset
from propall.methods.proden import PRODEN
from propall.nets import NETS
from propall.training.checkpoint import Checkpoint, write_tensors
from propall.training.contract import Run
from propall.training.metrics import History
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer

SCRIPT = """
import sys, torch
from functools import partial
from pathlib import Path
from safetensors.torch import save_file
from propall.data.dataset import PartialDataset
from propall.methods.proden import PRODEN
from propall.methods.propall import ProPaLL
from propall.nets import NETS
from propall.training.checkpoint import Checkpoint, write_tensors
from propall.training.contract import Run
from propall.training.trainer import Trainer
from propall.training.recipe import Recipe

torch.set_num_threads(1)
g = torch.Generator().manual_seed(0)
x = torch.randn(64, 5, generator=g)
candidates = torch.rand(64, 3, generator=g) < 0.6
candidates[:, 0] = True
runs = [Run(PartialDataset(x, candidates), s, objective=o) for s, o in enumerate([ProPaLL(), PRODEN()])]
net = partial(NETS["mlp"], widths=(7,), batch_norm=True)
recipe = Recipe(epochs=120, batch_size=16, optimizer="adam", learning_rate=0.01)
print("ready", flush=True)
fitted = Trainer(PRODEN(), net, recipe, Checkpoint(Path(sys.argv[1]), seconds=0)).fit(runs)
tensors = {f"{i}/{k}": v for i, f in enumerate(fitted) for k, v in f.net.state_dict().items()}
tensors["memory"] = fitted[1].state.rows["weights"]
save_file({k: v.contiguous() for k, v in tensors.items()}, sys.argv[2])
"""


def start(folder: Path, out: Path) -> subprocess.Popen:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), str(out)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_killed_and_resumed_equals_uninterrupted(tmp_path):
    whole = start(tmp_path / "whole", tmp_path / "whole.safetensors")
    chance = random.Random(0)
    kills = 0
    for _ in range(4):
        process = start(tmp_path / "cut", tmp_path / "cut.safetensors")
        assert process.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.1, 0.6))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        process.stdout.close()
    last = start(tmp_path / "cut", tmp_path / "cut.safetensors")
    for process in (last, whole):
        process.communicate()
        assert process.returncode == 0
    assert kills
    expected, resumed = (load_file(tmp_path / f"{name}.safetensors") for name in ("whole", "cut"))
    assert expected.keys() == resumed.keys()
    for name, tensor in expected.items():
        assert torch.equal(resumed[name], tensor), name


def problem():
    g = torch.Generator().manual_seed(0)
    candidates = torch.rand(30, 3, generator=g) < 0.5
    candidates[:, 1] = True
    return PartialDataset(torch.randn(30, 4, generator=g), candidates)


def trainer(folder, epochs=6):
    return Trainer(PRODEN(), NETS["linear"], Recipe(epochs=epochs, batch_size=10), Checkpoint(folder, 0))


def test_measurements_survive_an_interruption(tmp_path):
    train, truth = problem(), torch.zeros(30, dtype=torch.int64)
    whole, before, after = (History(train.x, truth) for _ in range(3))
    Trainer(PRODEN(), NETS["linear"], Recipe(epochs=6, batch_size=10)).fit([Run(train, 0)], monitor=whole)
    trainer(tmp_path, 6).fit([Run(train, 0)], monitor=before)
    trainer(tmp_path, 6).fit([Run(train, 0)], monitor=after)  # complete: only reads the checkpoint
    assert after.accuracies(0) == whole.accuracies(0)
    assert list(after.accuracies(0)) == [1, 2, 3, 4, 5, 6]


def test_other_data_or_settings_do_not_use_a_checkpoint(tmp_path):
    train = problem()
    trainer(tmp_path).fit([Run(train, 0)])
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    moved = PartialDataset(train.x + 1, train.candidates)
    trainer(tmp_path).fit([Run(moved, 0)])
    trainer(tmp_path).fit([Run(train, 1)])
    trainer(tmp_path, epochs=7).fit([Run(train, 0)])
    assert len(list(tmp_path.glob("*.safetensors"))) == 4


def test_other_starting_weights_do_not_use_a_checkpoint(tmp_path):
    g = torch.Generator().manual_seed(0)
    train = PartialDataset(torch.randn(40, 3, generator=g), torch.tensor([1, 1, 1, 0]).bool().repeat(40, 1))
    recipe = Recipe(epochs=2, batch_size=16)
    nets = [NETS["linear"]((3,), 4) for _ in range(2)]
    first, second = (
        Trainer(PRODEN(), net, recipe, checkpoint=Checkpoint(tmp_path)).fit([Run(train, 0)])[0]
        for net in nets
    )
    assert not torch.equal(first.scores(train.x), second.scores(train.x))


def test_a_damaged_checkpoint_raises_and_is_kept(tmp_path):
    trainer(tmp_path).fit([Run(problem(), 0)])
    (file,) = tmp_path.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"checkpoint.*Delete it"):
        trainer(tmp_path).fit([Run(problem(), 0)])
    assert file.exists()


def test_tensor_files_have_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    write_tensors(tmp_path / "a.safetensors", {"x": torch.ones(2)}, {"by": "us"})
    assert (tmp_path / "a.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert load_file(tmp_path / "a.safetensors")["x"].tolist() == [1, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.safetensors", "plain"]
