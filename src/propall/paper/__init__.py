"""The experiments of the ProPaLL paper, as an application of the library.

`propall reproduce uniform` goes through these modules in order:

- `tables`: the paper's tables, their cells, and the runs behind each cell.
- `reproduction`: selects cells, and compares their results with the published numbers.
- `specs`: the description of one run.
- `scheduler`: runs the specs that have no result in the store yet.
- `workers`: where groups of runs execute: this process, one process per device, or a Ray cluster.
- `runner`: trains one group of runs; `monitors` measures accuracy while it does.
- `results`, `store`, `results_io`: the result of a run, the SQLite store, and files to publish.
- `evidence`, `verdicts`, `stats`, `pages`: what the results say about the paper's claims, as a report.

`comparison` and `custom_runs` are behind `propall compare` and `propall train`, `studies` behind
`propall demo`, `propall annotators` and `propall base-losses`; `modern` is behind `propall reproduce modern`.
"""
