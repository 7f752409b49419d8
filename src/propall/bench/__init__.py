"""Speed and memory benchmarks, each with a baseline measured in the same run; see the folder `benchmarks`.

Every benchmark is a function `benchmark_*(device, *, quick, report)` that returns a `BenchmarkResult`, which
`propall bench` prints. `quick` uses small sizes and few repeats; `report` is called with progress messages.
"""
