"""Speed and memory benchmarks, each with a baseline measured in the same run; see the folder `benchmarks`.

Every benchmark is a function `benchmark_*(device, *, quick, report)` that returns a `BenchmarkResult`, which
`propall bench` prints.
"""

from propall.bench.estimators import benchmark_estimators
from propall.bench.loss import benchmark_loss
from propall.bench.resnet import benchmark_resnet
from propall.bench.results import BenchmarkResult, Measurement, Spread, Target
from propall.bench.scaling import benchmark_scaling
from propall.bench.training import benchmark_training

__all__ = [
    "BenchmarkResult",
    "Measurement",
    "Spread",
    "Target",
    "benchmark_estimators",
    "benchmark_loss",
    "benchmark_resnet",
    "benchmark_scaling",
    "benchmark_training",
]
