"""Table 2: candidate sets drawn uniformly."""

from propall.data.corruption import PRODENBinomialMin2
from propall.methods.valen import VALEN_SETTINGS
from propall.paper.specs import TIMED, Spec
from propall.paper.tables.baselines import IMAGES, ROWS, SGD, at, setting
from propall.paper.tables.paper_table import SAME_RATES, SHORT, MethodSetting, PaperCell, PaperRow, PaperTable

SEEDS = 5
# Appendix C: weight decay 1e-6 on the MNIST family, none on CIFAR-10.
_WEIGHT_DECAY = {"cifar10": 0.0}
_Q = {"q0.5": 0.5, "q0.1": 0.1, TIMED: 0.5, SHORT: 0.5}

#: The paper does not state q; its numbers fit no single value.
PROTOCOLS = {
    "q0.5": "wrong labels with probability 0.5, at least two candidates; each method with its own settings",
    "q0.1": "wrong labels with probability 0.1, at least two candidates; each method with its own settings",
    "q0.5" + SAME_RATES: "as q0.5, every method trained like ProPaLL",
    "q0.1" + SAME_RATES: "as q0.1, every method trained like ProPaLL",
    TIMED: "as q0.5, one seed; ProPaLL, PRODEN and VALEN, each run alone on its device",
    SHORT: "a smoke run: 2 epochs on 50 images per class, one seed; vectors only",
}


def settings(data: str, row: str) -> MethodSetting:
    """Return the setting of a row."""
    valen = VALEN_SETTINGS["cifar_uniform" if data == "cifar10" else "uniform"]
    return setting(data, row, at(SGD, 0.05, _WEIGHT_DECAY.get(data, 1e-6)), valen)


def runs(cell: PaperCell, setting: MethodSetting, protocol: str) -> list[Spec]:
    """Return five seeds on the official split; one if the run is timed."""
    seeds = 1 if protocol == TIMED else SEEDS
    return setting.specs(cell.data, seeds=seeds, corruption=PRODENBinomialMin2(_Q[protocol]))


TABLE = PaperTable(
    name="uniform",
    title="Table 2: uniform candidate sets",
    data=IMAGES,
    rows=(*ROWS, PaperRow("valen-own-net", "VALEN, its own network", "valen")),
    protocols=PROTOCOLS,
    settings=settings,
    runs=runs,
    remark="The paper does not state q, the probability that a wrong label is a candidate.",
    judged=("q0.5", "q0.1"),
)
