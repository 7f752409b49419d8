"""A short form of the interruptions: two commands and two kinds; `make interruptions` runs all of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PRELOADED = sys.platform == "linux" and shutil.which(os.environ.get("CC", "cc")) is not None


@pytest.mark.skipif(not PRELOADED, reason="needs Linux and a C compiler")
def test_a_killed_command_or_a_full_disk_leaves_whole_files() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"}
    commands = ("fit over an older model", "results import")
    words = ["-m", "tests.faults.interruptions", *commands, "--moments", "2", "--kinds", "kill", "disk full"]
    done = subprocess.run(
        [sys.executable, *words], cwd=REPOSITORY, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n| ") >= 5
