"""A short form of the fault suite: an input or two through every door; `make faults` sends hundreds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.doors import DOORS

REPOSITORY = Path(__file__).parents[2]
#: Doors with known faults, and why.
KNOWN_FAULTS: dict[str, str] = {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the harness forks")
def test_no_door_fails_on_a_few_malformed_inputs() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"}
    doors = [name for name in DOORS if name not in KNOWN_FAULTS]
    command = [sys.executable, "-m", "tests.faults", *doors, "--inputs", "1"]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
