"""`python -m tests.faults.interruptions [COMMAND ...] [--moments N] [--out FILE]`: the table of faults."""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("interposer.c")


def main() -> None:
    """Interrupt the commands at their changes of files and print the table, then every fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commands", nargs="*", help="Names of commands; all by default.")
    parser.add_argument("--moments", type=int, default=30, help="Moments per command and interruption.")
    parser.add_argument("--kinds", nargs="*", help="Kinds of interruption; all by default.")
    parser.add_argument("--out", type=Path, help="Write the table as Markdown.")
    arguments = parser.parse_args()
    if "PROPALL_INTERPOSER" not in os.environ:
        with tempfile.TemporaryDirectory(prefix="interposer") as folder:
            library = Path(folder) / "interposer.so"
            compiler = os.environ.get("CC", "cc")
            subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
            environment = {**os.environ, "LD_PRELOAD": str(library), "PROPALL_INTERPOSER": "1"}
            words = [sys.executable, "-m", "tests.faults.interruptions", *sys.argv[1:]]
            raise SystemExit(subprocess.run(words, env=environment).returncode)

    import torch

    torch.set_num_threads(1)  # this process forks: no other thread may hold a lock
    import propall.cli
    import propall.paper.pages
    import propall.report.annotator_pages
    import propall.report.model_pages
    import propall.tables.fitting
    import propall.tables.streaming  # noqa: F401
    from tests.faults.interruptions.harness import KINDS, examine, table
    from tests.faults.interruptions.scenarios import SCENARIOS

    chosen = [scenario for scenario in SCENARIOS if scenario.name in (arguments.commands or [scenario.name])]
    rows = []
    for scenario in chosen:
        for row in examine(scenario, arguments.moments, arguments.kinds or KINDS):
            rows.append(row)
            print(" | ".join(row.cells()), flush=True)
            for fault in row.faults:
                print(f"    {fault}", flush=True)
    text = table(rows)
    print(f"\n{text}")
    if arguments.out is not None:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    raise SystemExit(any(row.faults for row in rows))


if __name__ == "__main__":
    main()
