"""`python -m tests.faults [DOOR ...] [--inputs N] [--seed S] [--out FILE]`: the table of faults."""

import argparse
import contextlib
import importlib
from pathlib import Path

#: Imported once, before the server forks for every input.
PRELOADED = (
    "propall.cli",
    "propall.tables.fitting",
    "propall.tables.resolution",
    "propall.tables.summary",
    "propall.data.catalog",
    "pandas.io.excel",
    "openpyxl",
    "pyarrow.feather",
    "pyarrow.parquet",
    "PIL.Image",
    "PIL.ImageOps",
    "rich.console",
    "rich.table",
    "scipy.io",
)


def main() -> None:
    """Send malformed inputs through the doors and print the table, then every fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("doors", nargs="*", help="Names of doors; all by default.")
    parser.add_argument("--inputs", type=int, default=300, help="Inputs per door.")
    parser.add_argument("--seed", type=int, default=0, help="Random seed.")
    parser.add_argument("--out", type=Path, help="Write the table and the faults as Markdown.")
    parser.add_argument("--faults", type=int, default=10, help="Faults to print per door.")
    arguments = parser.parse_args()

    import torch

    torch.set_num_threads(1)  # the server forks: no other thread may hold a lock
    for module in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    from tests.faults.doors import DOORS
    from tests.faults.harness import examine, table

    reports = []
    for name in arguments.doors or DOORS:
        report = examine(DOORS[name], arguments.inputs, arguments.seed)
        reports.append(report)
        print(" | ".join(report.row()), flush=True)
        for verdict in report.faults()[: arguments.faults]:
            print(
                f"    {verdict.outcome}: {verdict.message[:200]}\n        {verdict.case.name[:200]}",
                flush=True,
            )
    text = table(reports)
    print(f"\n{text}")
    if arguments.out is not None:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    if any(report.faults() for report in reports):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
