"""Table 4: real-world candidate sets with a linear model."""

from dataclasses import replace

from propall.data import DATASETS
from propall.data.dataset import SINGLE_80
from propall.methods import METHODS
from propall.methods.pl_svm import PLSVM
from propall.methods.plle import PLLE, PLLE_EXPLORED
from propall.methods.propall import ProPaLL
from propall.methods.valen import VALEN_SETTINGS
from propall.paper.specs import Spec, Split
from propall.paper.tables.baselines import GA_RECIPE, SGD, at, valen_setting
from propall.paper.tables.baselines import ROWS as DEEP_ROWS
from propall.paper.tables.paper_table import SAME_RATES, SHORT, MethodSetting, PaperCell, PaperRow, PaperTable
from propall.training.contract import Algorithm, Objective
from propall.training.recipe import Recipe

DATA = ("lost", "msrcv2", "birdsong", "soccer_player", "yahoo_news")
FOLDS, SEEDS = 5, 5

#: PL-SVM and PLLE have one row in the paper; we run two sensible settings of each.
ROWS = (
    *DEEP_ROWS,
    PaperRow("clpl", "CLPL", "clpl"),
    PaperRow("pl_svm", "PL-SVM, lambda 0.01", "pl_svm"),
    PaperRow("pl_svm-auto", "PL-SVM, lambda selected", "pl_svm"),
    PaperRow("pl_knn", "PL-KNN", "pl_knn"),
    PaperRow("ipal", "IPAL", "ipal"),
    PaperRow("plle", "PLLE, first defaults", "plle"),
    PaperRow("plle-explored", "PLLE, explored", "plle"),
)
PROTOCOLS = {
    "folds5": "5 folds, one seed; each method with its own settings; deviation over folds",
    "single80": "one 80/20 split, 5 seeds; each method with its own settings; deviation over seeds",
    "folds5" + SAME_RATES: "as folds5, every network trained like ProPaLL's",
    "single80" + SAME_RATES: "as single80, every network trained like ProPaLL's",
    SHORT: "a smoke run: 2 epochs on one 80/20 split, one seed",
}

# Appendix C: batch size, learning rate and weight decay of ProPaLL.
_PROPALL = {
    "lost": (100, 0.01, 1e-4),
    "msrcv2": (100, 0.05, 1e-4),
    "birdsong": (100, 0.1, 0.0),
    "soccer_player": (256, 0.5, 0.0),
    "yahoo_news": (256, 0.5, 0.0),
}
# From PRODEN's code, for the linear model with batches of 100.
_PRODEN = {
    "lost": (1e-2, 1e-2),
    "msrcv2": (1e-1, 1e-3),
    "birdsong": (1e-2, 1e-4),
    "soccer_player": (1e-1, 1e-4),
    "yahoo_news": (1e-2, 1e-4),
}
#: Number of rows above which VALEN's third phase uses full batches.
_LARGE = 10_000


def propall_recipe(data: str) -> Recipe:
    """Return ProPaLL's recipe; on data sets outside the paper, one in the middle of the paper's."""
    size, rate, decay = _PROPALL.get(data, (256 if DATASETS[data].n > _LARGE else 100, 0.05, 1e-4))
    return replace(SGD, batch_size=size, learning_rate=rate, weight_decay=decay)


def settings(data: str, row: str) -> MethodSetting:
    """Return the setting of a row; methods outside the paper are trained like ProPaLL."""
    ours = propall_recipe(data)
    if row == "propall-no-noise":
        return MethodSetting(ProPaLL(noise=0.0), "linear", ours)
    if row == "valen":
        valen = VALEN_SETTINGS["real_large" if DATASETS[data].n > _LARGE else "real"]
        return valen_setting(valen, "linear")
    method = _variant(row)
    # No settings of RC, CC and D2CNN were published for these data sets. RC and CC use PRODEN's, whose loss
    # is the same or close; D2CNN uses VALEN's, whose authors reported its numbers.
    if row in ("proden", "rc", "cc") and data in _PRODEN:
        return MethodSetting(method, "linear", at(replace(SGD, batch_size=100), *_PRODEN[data]))
    if row == "d2cnn":
        return MethodSetting(method, "linear", at(replace(SGD, batch_size=100), 1e-2, 1e-4))
    return MethodSetting(method, "linear", GA_RECIPE if row == "ga" else ours)


def _variant(row: str) -> Objective | Algorithm:
    """Return the method of a row: from the registry, or one of the settings with a row of their own."""
    variants: dict[str, Algorithm] = {
        "pl_svm-auto": PLSVM(lam="auto"),
        "plle": PLLE(),
        "plle-explored": PLLE_EXPLORED,
    }
    return variants[row] if row in variants else METHODS[row]()


def splits(folds: int) -> list[Split]:
    """Return every fold of the fixed split once as the test set."""
    return [Split(fold=fold, folds=folds) for fold in range(folds)]


def caveat(row: str, protocol: str) -> str:
    """Return why a published row differs in kind; the size of its deviation tells."""
    ours = row in ("propall", "propall-no-noise")
    if protocol == "folds5" and ours:
        return "the paper's standard deviation is too small for folds and looks like seeds on one split"
    if protocol == "single80" and not ours:
        return "the paper's standard deviation looks like that of folds, not of seeds on one split"
    return ""


def runs(cell: PaperCell, setting: MethodSetting, protocol: str) -> list[Spec]:
    """Return five folds, or five seeds on one of them."""
    if protocol == "folds5":
        return [spec for split in splits(FOLDS) for spec in setting.specs(cell.data, seeds=1, split=split)]
    return setting.specs(cell.data, seeds=SEEDS, split=Split(fold=SINGLE_80, folds=FOLDS))


SPLIT_UNKNOWN = "The paper does not say how it splits the rows."
TABLE = PaperTable(
    name="real",
    title="Table 4: real-world candidate sets",
    data=DATA,
    rows=ROWS,
    protocols=PROTOCOLS,
    settings=settings,
    runs=runs,
    remark=f"{SPLIT_UNKNOWN} GA stays below chance: with so many classes some estimated risk is negative in "
    "every batch, so its algorithm always ascends.",
    caveat=caveat,
)
