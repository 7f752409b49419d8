"""Values of the baselines on the image benchmarks, from their own articles and code."""

from dataclasses import replace

from propall.methods.cc import CC
from propall.methods.d2cnn import D2CNN
from propall.methods.ga import GA
from propall.methods.proden import PRODEN
from propall.methods.propall import ProPaLL
from propall.methods.rc import RC
from propall.methods.valen import VALEN
from propall.paper.tables.paper_table import MethodSetting, PaperRow
from propall.training.recipe import Recipe

#: The image benchmarks, in the paper's order.
IMAGES = ("mnist", "kmnist", "fashion_mnist", "cifar10")

PROPALL = PaperRow("propall", "ProPaLL", "propall")
NO_NOISE = PaperRow("propall-no-noise", "ProPaLL without noise", "propall-no-noise")
#: The lines of the two tables with artificial candidate sets.
ROWS = (
    PROPALL,
    PaperRow("valen", "VALEN", "valen"),
    PaperRow("proden", "PRODEN", "proden"),
    PaperRow("rc", "RC", "rc"),
    PaperRow("cc", "CC", "cc"),
    PaperRow("d2cnn", "D2CNN", "d2cnn"),
    PaperRow("ga", "GA", "ga"),
)
#: The lines of the tables with and without noise.
NOISE_ROWS = (NO_NOISE, PROPALL)

#: What the PLL experiments share: SGD with momentum, constant rate, 500 epochs.
SGD = Recipe(epochs=500, batch_size=256)

# PRODEN's code: learning rate and weight decay for the 5-layer MLP, and for ResNet-32 on CIFAR-10.
_PRODEN = {
    "mnist": (1e-2, 1e-3),
    "kmnist": (1e-2, 1e-4),
    "fashion_mnist": (1e-2, 1e-5),
    "cifar10": (5e-2, 1e-3),
}
# The code of RC and CC: Adam, 250 epochs.
_RC_CC = Recipe(epochs=250, batch_size=256, optimizer="adam", learning_rate=1e-3, weight_decay=1e-5)
# GA's code; the same everywhere.
GA_RECIPE = Recipe(epochs=300, batch_size=256, optimizer="adam", learning_rate=5e-5, weight_decay=1e-4)
# D2CNN's optimiser is not known. Its tabled numbers come from VALEN's authors, so theirs stand in.
_D2CNN = {"cifar10": (5e-2, 1e-3)}


def network(data: str) -> str:
    """The network of the tables with artificial candidate sets."""
    return "resnet32" if data == "cifar10" else "mlp5"


def at(recipe: Recipe, learning_rate: float, weight_decay: float) -> Recipe:
    """A recipe at other rates."""
    return replace(recipe, learning_rate=learning_rate, weight_decay=weight_decay)


def valen_setting(valen: VALEN, net: str) -> MethodSetting:
    """VALEN with the recipe it came with, which a spec holds beside the method."""
    assert valen.recipe is not None
    return MethodSetting(replace(valen, recipe=None), net, valen.recipe)


def setting(data: str, row: str, ours: Recipe, valen: VALEN) -> MethodSetting:
    """A line's values on an image benchmark.

    Args:
        data: name of the data set.
        row: name of the line.
        ours: ProPaLL's recipe.
        valen: VALEN with its own recipe.
    """
    net = network(data)
    if row in ("valen", "valen-own-net"):
        own_net = row == "valen-own-net" and data != "cifar10"
        return valen_setting(valen, "valen_mlp4" if own_net else net)
    if row in ("rc", "cc"):
        recipe = replace(_RC_CC, weight_decay=1e-3) if data == "cifar10" else _RC_CC
        return MethodSetting(RC() if row == "rc" else CC(), net, recipe)
    return {
        "propall": MethodSetting(ProPaLL(), net, ours),
        "propall-no-noise": MethodSetting(ProPaLL(noise=0.0), net, ours),
        "proden": MethodSetting(PRODEN(), net, at(SGD, *_PRODEN[data])),
        "d2cnn": MethodSetting(D2CNN(), net, at(SGD, *_D2CNN.get(data, (1e-2, 1e-4)))),
        "ga": MethodSetting(GA(), net, GA_RECIPE),
    }[row]
