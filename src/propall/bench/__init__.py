"""Speed and memory, measured beside a peer or a floor in the same run; see the folder `benchmarks`.

A benchmark is a module with `run(device, *, quick, note)` that returns a `Sheet`; `propall bench` prints it.
"""

from propall.bench import cpu, loss, resnet, scale, train
from propall.bench.sheet import Line, Sheet, Spread, Target

__all__ = ["Line", "Sheet", "Spread", "Target", "cpu", "loss", "resnet", "scale", "train"]
