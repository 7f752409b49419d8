"""Settings of the baselines on the image benchmarks, from their articles and code."""

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
#: Rows of the two tables with drawn candidate sets.
ROWS = (
    PROPALL,
    PaperRow("valen", "VALEN", "valen"),
    PaperRow("proden", "PRODEN", "proden"),
    PaperRow("rc", "RC", "rc"),
    PaperRow("cc", "CC", "cc"),
    PaperRow("d2cnn", "D2CNN", "d2cnn"),
    PaperRow("ga", "GA", "ga"),
)
#: Rows of the tables with and without noise.
NOISE_ROWS = (NO_NOISE, PROPALL)

#: Recipe of the PLL experiments: SGD with momentum, constant learning rate, 500 epochs.
SGD = Recipe(epochs=500, batch_size=256)

# From PRODEN's code: learning rate and weight decay for the 5-layer MLP, and for ResNet-32 on CIFAR-10.
_PRODEN = {
    "mnist": (1e-2, 1e-3),
    "kmnist": (1e-2, 1e-4),
    "fashion_mnist": (1e-2, 1e-5),
    "cifar10": (5e-2, 1e-3),
}
# From the code of RC and CC: Adam, 250 epochs.
_RC_CC = Recipe(epochs=250, batch_size=256, optimizer="adam", learning_rate=1e-3, weight_decay=1e-5)
# From GA's code; the same on all data sets.
GA_RECIPE = Recipe(epochs=300, batch_size=256, optimizer="adam", learning_rate=5e-5, weight_decay=1e-4)
# D2CNN's optimizer is not published. Its reported numbers come from VALEN's authors, so we use VALEN's.
_D2CNN = {"cifar10": (5e-2, 1e-3)}


def network(data: str) -> str:
    """Return the network of the tables with drawn candidate sets."""
    return "resnet32" if data == "cifar10" else "mlp5"


def at(recipe: Recipe, learning_rate: float, weight_decay: float) -> Recipe:
    """Return a recipe with another learning rate and weight decay."""
    return replace(recipe, learning_rate=learning_rate, weight_decay=weight_decay)


def valen_setting(valen: VALEN, net: str) -> MethodSetting:
    """Move the recipe of a VALEN setting out of the method, where a spec expects it."""
    assert valen.recipe is not None
    return MethodSetting(replace(valen, recipe=None), net, valen.recipe)


def setting(data: str, row: str, ours: Recipe, valen: VALEN) -> MethodSetting:
    """Return the setting of a row on an image benchmark.

    Args:
        data: name of the data set.
        row: name of the row.
        ours: ProPaLL's recipe.
        valen: VALEN with its recipe.
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
