"""What an import loads: a loss in a training loop needs torch and nothing else heavy."""

import subprocess
import sys

import pytest

import propall

HEAVY = ("sklearn", "pandas", "scipy", "matplotlib", "rich", "typer", "lightning")


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import propall", ("torch", "numpy", *HEAVY)),
        ("import propall; propall.ProPaLLLoss()", HEAVY),
        ("import propall; propall.propall_loss", HEAVY),
        ("import propall; propall.CandidateLabels.from_strings(['a|b', 'c'])", HEAVY),
        ("import propall.training.stream", HEAVY),  # what `propall.lightning` imports first
    ],
)
def test_nothing_heavy_is_loaded(code, absent):
    check = f"{code}\nimport sys; loaded = set({absent!r}) & set(sys.modules); assert not loaded, loaded"
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True)


@pytest.mark.parametrize("name", propall.__all__)
def test_public_names_exist(name):
    assert getattr(propall, name) is not None


def test_unknown_names_are_answered_with_the_public_ones():
    with pytest.raises(AttributeError, match=r"no attribute 'Loss'; it has .*ProPaLLLoss"):
        _ = propall.Loss
