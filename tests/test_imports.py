"""What is loaded, and when: a loss in a training loop needs torch and nothing heavy besides."""

import subprocess
import sys

import pytest

HEAVY = ("sklearn", "pandas", "scipy", "matplotlib", "rich", "typer", "lightning")


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import propall", ("torch", "numpy", *HEAVY)),
        ("import propall; propall.ProPaLLLoss()", HEAVY),
        ("import propall; propall.propall_loss", HEAVY),
        ("import propall; propall.CandidateLabels.from_strings(['a|b', 'c'])", HEAVY),
    ],
)
def test_nothing_heavy_is_loaded(code, absent):
    look = f"{code}\nimport sys; found = set({absent!r}) & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", look], check=True, capture_output=True)
