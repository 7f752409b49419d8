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


def test_every_module_can_be_imported_with_the_array_alias_of_numpy_2_5():
    # There, NDArray is an alias that jaxtyping takes for no class: annotations with shapes need np.ndarray.
    check = """
import contextlib, importlib, pkgutil, typing
import numpy as np, numpy.typing
from typing_extensions import TypeAliasType
Number = typing.TypeVar("Number", bound=np.generic)
alias = np.ndarray[typing.Any, np.dtype[Number]]
numpy.typing.NDArray = TypeAliasType("NDArray", alias, type_params=(Number,))
import propall
for module in pkgutil.walk_packages(propall.__path__, "propall."):
    if not module.name.endswith("__main__"):
        with contextlib.suppress(ModuleNotFoundError):  # of an extra that is not installed
            importlib.import_module(module.name)
"""
    done = subprocess.run([sys.executable, "-c", check], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", propall.__all__)
def test_public_names_exist(name):
    assert getattr(propall, name) is not None


def test_unknown_names_are_answered_with_the_public_ones():
    with pytest.raises(AttributeError, match=r"no attribute 'Loss'; it has .*ProPaLLLoss"):
        _ = propall.Loss
