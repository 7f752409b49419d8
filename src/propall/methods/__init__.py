"""Learning methods, one file each; `METHODS` maps their names to their classes."""

from propall.methods._classical import LinearClassifier as LinearClassifier
from propall.methods._pruning import prune_candidates as prune_candidates
from propall.methods.able import ABLE
from propall.methods.abs import ABS
from propall.methods.boosting import Boosting
from propall.methods.cavl import CAVL
from propall.methods.cc import CC
from propall.methods.clpl import CLPL
from propall.methods.cpe import CPE
from propall.methods.crosel import CroSel
from propall.methods.d2cnn import D2CNN
from propall.methods.forest import Forest
from propall.methods.forward import Forward
from propall.methods.free import Free
from propall.methods.ga import GA
from propall.methods.ipal import IPAL
from propall.methods.katsura_ce import KatsuraCE
from propall.methods.l_uw import LUW
from propall.methods.l_w import LW
from propall.methods.lwc import LWC
from propall.methods.lws import LWS
from propall.methods.mcl_exp import MCLExp
from propall.methods.mcl_gce import MCLGCE
from propall.methods.mcl_log import MCLLog
from propall.methods.mcl_mae import MCLMAE
from propall.methods.mcl_mse import MCLMSE
from propall.methods.nn import NN
from propall.methods.non_candidates import NonCandidates
from propall.methods.op import OP
from propall.methods.op_w import OPW
from propall.methods.ova import OVA
from propall.methods.papi import PaPi
from propall.methods.pc import PC
from propall.methods.pc_ishida import PCIshida
from propall.methods.pico import PiCO
from propall.methods.pl_knn import PLKNN
from propall.methods.pl_svm import PLSVM
from propall.methods.plle import PLLE
from propall.methods.proden import PRODEN
from propall.methods.propall import ProPaLL
from propall.methods.rc import RC
from propall.methods.scarce import SCARCE
from propall.methods.scl_exp import SCLEXP
from propall.methods.scl_nl import SCLNL
from propall.methods.valen import VALEN
from propall.registry import Registry, by_name
from propall.training.contract import Algorithm, Objective

_PARTIAL_LABELS = (ProPaLL, CC, PRODEN, RC, D2CNN, VALEN, LWS, LWC, CAVL, ABS, NonCandidates)
_TWO_VIEWS = (PiCO, PaPi, CroSel, ABLE)
_COMPLEMENTARY_LABELS = (PC, OVA, PCIshida, Forward, Free, NN, GA, LW, LUW, KatsuraCE)
_MORE_COMPLEMENTARY = (SCLNL, SCLEXP, MCLLog, MCLExp, MCLMAE, MCLMSE, MCLGCE, OP, OPW, SCARCE, CPE)
_CLASSICAL = (CLPL, PLSVM, PLKNN, IPAL, PLLE, Forest, Boosting)

METHODS: Registry[type[Objective] | type[Algorithm]] = by_name(
    "method", *_PARTIAL_LABELS, *_TWO_VIEWS, *_COMPLEMENTARY_LABELS, *_MORE_COMPLEMENTARY, *_CLASSICAL
)
"""Methods by name.

Examples:
    >>> METHODS["proden"](log_floor=1e-12).title
    'PRODEN'
"""


def catalog() -> list[dict[str, str]]:
    """Describe every method: name, title, kind, memory per instance, cost per step, reference.

    Examples:
        >>> catalog()[0]["title"], catalog()[0]["cost"]
        ('ProPaLL', '1 forward + 1 backward')
    """
    columns = ("name", "title", "kind", "memory", "cost", "reference")
    return [{column: getattr(method, column) for column in columns} for method in METHODS.values()]
