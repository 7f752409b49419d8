"""Train a custom network on candidate sets with Lightning, in one process or several.

    python examples/custom_network_ddp.py
    python examples/custom_network_ddp.py --processes 2

Both give the same network: the processes share every batch, and each keeps all of PRODEN's memory.
"""

import argparse

import torch
from lightning.pytorch import Callback, Trainer
from pictures import ACCENT, MUTED, SERIES, picture
from torch import nn

from propall.data.corruption import IndependentFlip
from propall.data.synthetic import digits
from propall.lightning import PartialLabelData, PartialLabelModule
from propall.methods.proden import PRODEN
from propall.training.recipe import Recipe

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--processes", type=int, default=1)
parser.add_argument("--accelerator", default="cpu", help="cpu or gpu")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--resume", metavar="CHECKPOINT", help="resume from a checkpoint")


class TinyCNN(nn.Sequential):
    """Any module with one output per class works."""

    def __init__(self, n_classes: int) -> None:
        super().__init__(
            nn.Unflatten(1, (1, 8, 8)),
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, n_classes),
        )


class Curves(Callback):
    """Records test accuracy, and the share of training rows whose label PRODEN has decided on."""

    def __init__(self) -> None:
        self.accuracy: list[float] = []
        self.decided: list[float] = []

    def on_train_epoch_end(self, trainer: Trainer, pl_module: PartialLabelModule) -> None:
        self.accuracy.append(float(trainer.callback_metrics["val_accuracy"]))
        self.decided.append(decided(pl_module))


def decided(module: PartialLabelModule) -> float:
    """Share of training rows whose largest candidate weight is close to 1."""
    return float((module.memory.state().rows["weights"].amax(-1) > 0.9).double().mean())


def main() -> None:
    options = parser.parse_args()
    torch.manual_seed(0)
    # Every wrong label is a candidate with probability 0.3. All processes draw the same sets.
    problem = digits().problem(IndependentFlip(q=0.3), seed=0)

    recipe = Recipe(epochs=options.epochs, batch_size=100, learning_rate=0.05, last_batch="keep")
    data = PartialLabelData(problem.train, recipe, validation=(problem.test_x, problem.test_truth))
    module = PartialLabelModule(TinyCNN(problem.train.n_classes), PRODEN(), recipe)
    curves = Curves()
    trainer = Trainer(
        callbacks=[curves],
        max_epochs=recipe.epochs,
        accelerator=options.accelerator,
        devices=options.processes,
        strategy="ddp" if options.processes > 1 else "auto",
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer.fit(module, data, ckpt_path=options.resume)
    if trainer.is_global_zero:
        print(f"test accuracy {trainer.callback_metrics['val_accuracy']:.4f}")
        print(f"training rows with a decided label {decided(module):.4f}")
        draw_curves(curves)


def draw_curves(curves: Curves) -> None:
    """Both curves over the epochs."""
    epochs = range(1, len(curves.accuracy) + 1)
    with picture("custom_network_ddp", (5.2, 3.0)) as figure:
        axes = figure.subplots()
        for name, values, color, marker, place in (
            ("test accuracy", curves.accuracy, ACCENT, "o", (0, 7)),
            ("decided labels", curves.decided, SERIES[3], "s", (-12, -2)),
        ):
            axes.plot(epochs, values, marker=marker, color=color)
            axes.annotate(
                name, (epochs[-1], values[-1]), place, textcoords="offset points", ha="right", color=color
            )
        axes.set_ylim(0, 1.1)
        axes.set_xlabel("epoch")
        axes.grid(axis="y")
        axes.set_title("share of digits", loc="left", fontsize=10, color=MUTED)


if __name__ == "__main__":
    main()
