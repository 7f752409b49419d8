"""A short form of the fault suite: a few inputs through every door; `make faults` sends hundreds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the harness forks")
def test_no_door_fails_on_a_few_malformed_inputs() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"}
    command = [sys.executable, "-m", "tests.faults", "--inputs", "3"]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
