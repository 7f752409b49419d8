"""What every test runs under: shapes checked on request, one thread, fixed seeds, skips that say how to run.

PROPALL_CHECK_SHAPES=1  checks every annotated shape at run time (needs beartype; slower).
PROPALL_DATA=DIR        runs the tests marked `realdata` on the published files under DIR.
"""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

SHAPES_ASKED = os.environ.get("PROPALL_CHECK_SHAPES", "") not in ("", "0")
SHAPES_CHECKED = SHAPES_ASKED and find_spec("beartype") is not None
if SHAPES_CHECKED:
    # Before the first import of propall: the hook instruments modules as they are loaded.
    from jaxtyping import install_import_hook

    import tests.shape_checking  # noqa: F401 - the hook finds it by name, but does not import it

    # Where tensors are computed with. The doors above (estimators, losses, command line) answer wrong types
    # with messages of their own, which such a check would forestall.
    computing = ("draws", "labels", "kernels", "data", "nets", "methods")
    training = ("contract", "engine", "stream", "optim", "risks", "neighbours", "classifiers", "metrics")
    names = [f"propall.{name}" for name in computing] + [f"propall.training.{name}" for name in training]
    install_import_hook(names, "tests.shape_checking.check")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

# Two xdist workers on two cores are quicker with one thread each, and sums then have one order everywhere.
torch.set_num_threads(1)

# Without the development extras the tests that need nothing beyond pytest still run.
if find_spec("hypothesis") is not None:
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "propall",
        derandomize=True,
        deadline=None,
        max_examples=50,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("propall")

#: Fixtures that several rooms share.
pytest_plugins = ["tests.fixtures.pages", "tests.fixtures.runs", "tests.fixtures.tables"]

#: Marker -> why its tests cannot run here, or None where they can.
SKIPS = {
    "gpu": None if torch.cuda.is_available() else "needs a CUDA device",
    "realdata": None
    if os.environ.get("PROPALL_DATA")
    else "needs the published data sets: PROPALL_DATA=DIR pytest -m realdata",
    "compiled": "shapes are being checked: run without PROPALL_CHECK_SHAPES" if SHAPES_CHECKED else None,
}


#: Warnings of torch about itself, met where its compiler is loaded.
TORCH_ABOUT_ITSELF = ("ignore:`torch.jit:DeprecationWarning", r"ignore:\s*Online softmax:UserWarning")


def pytest_report_header() -> str:
    if SHAPES_ASKED and not SHAPES_CHECKED:
        return "shapes: not checked although PROPALL_CHECK_SHAPES is set: beartype is not installed"
    return (
        f"shapes: {'checked at run time' if SHAPES_CHECKED else 'not checked (PROPALL_CHECK_SHAPES=1 does)'}"
    )


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        for marker, reason in SKIPS.items():
            if reason is not None and item.get_closest_marker(marker) is not None:
                item.add_marker(pytest.mark.skip(reason=reason))
        if any(item.get_closest_marker(marker) is not None for marker in ("compiled", "gpu")):
            item.add_marker(pytest.mark.filterwarnings(*TORCH_ABOUT_ITSELF))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Tests draw what they draw alone, in any order: nothing depends on the tests that ran before."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - for libraries that read the global generator


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's interpreter, where it is on.

    It makes an int of an array of one number, which NumPy refuses from 2.4 on.
    """
    if os.environ.get("TRITON_INTERPRET") != "1" or find_spec("triton") is None:
        pytest.skip("needs Triton and its interpreter: TRITON_INTERPRET=1")
    from triton.runtime import interpreter

    original = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch)
