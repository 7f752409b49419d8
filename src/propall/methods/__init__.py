"""One file per method, named after it; `METHODS` is the registry."""

from propall.methods.cc import CC
from propall.methods.proden import PRODEN
from propall.methods.propall import ProPaLL
from propall.training.contract import Algorithm, Objective, Registry, by_name

METHODS: Registry[type[Objective] | type[Algorithm]] = by_name("method", ProPaLL, CC, PRODEN)
