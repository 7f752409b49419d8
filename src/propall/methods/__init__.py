"""One file per method, named after it; `METHODS` is the registry."""

from propall.methods.cc import CC
from propall.methods.proden import PRODEN
from propall.methods.propall import ProPaLL
from propall.registry import Registry, by_name
from propall.training.contract import Algorithm, Objective

METHODS: Registry[type[Objective] | type[Algorithm]] = by_name("method", ProPaLL, CC, PRODEN)
