"""The command that shows what an installation has and what is missing for what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from propall.cli.app import FIRST_STEPS, app
from propall.cli.terminal import AsJson, print_json, print_line, print_table
from propall.wording import plural

if TYPE_CHECKING:
    from propall.diagnostics import Diagnosis


@app.command(rich_help_panel=FIRST_STEPS)
def doctor(
    store: Annotated[Path, typer.Option(help="File of results to look for.")] = Path("runs/results.sqlite"),
    json_output: AsJson = False,
) -> None:
    """Show versions, devices, data and free space, and what is missing for what.

    The exit status is 1 if something required does not work.

    Example: propall doctor
    """
    from propall.diagnostics import diagnose

    diagnosis = diagnose(store)
    if json_output:
        print_json(diagnosis.as_dict())
    else:
        _print_diagnosis(diagnosis)
    if diagnosis.problems:
        raise typer.Exit(1)


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    print_line(f"propall {diagnosis.propall}, Python {diagnosis.python}, {diagnosis.system}\n")
    required = [(row.name, row.version or "none", row.problem or "ok") for row in diagnosis.packages]
    print_table(("required", "version", "state"), required)
    print_line()
    extras = [
        (
            row.purpose,
            ", ".join(f"{name} {version}" for name, version in row.installed.items()) or "none",
            row.install if row.missing else "ok",
        )
        for row in diagnosis.extras
    ]
    print_table(("optional", "version", "state"), extras)
    if diagnosis.devices:
        print_line()
        devices = [
            (
                device.name,
                device.description,
                _format_bytes(device.memory),
                "; ".join(f"{what}: {answer}" for what, answer in device.abilities.items()),
            )
            for device in diagnosis.devices
        ]
        print_table(("device", "description", "free memory", "abilities"), devices)
    if diagnosis.data:
        print_line()
        data = [(row.name, row.where, "ok" if row.present else row.get) for row in diagnosis.data]
        print_table(("data set", "looked for in", "state"), data)
        print_line(f"\nData folder: {diagnosis.data_folder} (set PROPALL_DATA to change it)")
        print_line(f"Results: {diagnosis.store}")
    free = "; ".join(f"{_format_bytes(free)} in {folder}" for folder, free in diagnosis.free_disk.items())
    print_line(f"Free disk space: {free}\n")
    for problem in diagnosis.problems:
        print_line(problem, style="bold red")
    if diagnosis.problems:
        print_line(f"{plural(len(diagnosis.problems), 'problem')}: propall does not work completely.")
        return
    absent = [row.name for row in diagnosis.extras if row.missing]
    without_data = sum(not row.present for row in diagnosis.data)
    lacking = f" Not installed: {', '.join(absent)}." if absent else ""
    lacking += f" {plural(without_data, 'data set')} not downloaded." if without_data else ""
    print_line(f"Everything that is required works.{lacking}")


def _format_bytes(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 1e9:.1f} GB"
