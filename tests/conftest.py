"""Test configuration: optional shape checks, one thread, fixed seeds, skips that say how to run a test.

PROPALL_CHECK_SHAPES=1  checks annotated shapes at run time (needs beartype; slower).
PROPALL_DATA=DIR        runs the tests marked `realdata` on the published files under DIR.
"""

import os
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

SHAPES_ASKED = os.environ.get("PROPALL_CHECK_SHAPES", "") not in ("", "0")
SHAPES_CHECKED = SHAPES_ASKED and find_spec("beartype") is not None
if SHAPES_CHECKED:
    # Before the first import of propall: the hook instruments modules as they are loaded.
    from jaxtyping import install_import_hook

    import tests.shape_checking  # noqa: F401 - the hook finds it by name, but does not import it

    # Only the modules that compute with tensors. The interfaces above them (estimators, losses, command line)
    # raise their own errors for wrong types, and the hook would raise first.
    rooms = ("counter_rng", "numerics", "labels", "kernels", "data", "nets", "methods")
    training = ("contract", "networks", "sections", "stack", "single", "trainer")
    training += ("stream", "optim", "metrics")
    names = [f"propall.{room}" for room in rooms] + [f"propall.training.{name}" for name in training]
    install_import_hook(names, "tests.shape_checking.check")

# Most tests read small files under the names of the published ones.
os.environ["PROPALL_VERIFY_DATA"] = "0"

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

# Two xdist workers on two cores are faster with one thread each, and sums are then always in the same order.
torch.set_num_threads(1)

# Tests that need only pytest also run without the development extras.
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

#: Fixtures shared by several test folders.
pytest_plugins = ["tests.fixtures.pages", "tests.fixtures.runs", "tests.fixtures.tables"]

#: Marker -> reason to skip its tests, or None to run them.
SKIPS = {
    "gpu": None if torch.cuda.is_available() else "needs a CUDA device",
    "realdata": None
    if os.environ.get("PROPALL_DATA")
    else "needs the published data sets: PROPALL_DATA=DIR pytest -m realdata",
    "compiled": "shapes are being checked: run without PROPALL_CHECK_SHAPES" if SHAPES_CHECKED else None,
}


#: Warnings that torch raises about its own code when its compiler is loaded.
TORCH_INTERNAL_WARNINGS = ("ignore:`torch.jit:DeprecationWarning", r"ignore:\s*Online softmax:UserWarning")


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
            item.add_marker(pytest.mark.filterwarnings(*TORCH_INTERNAL_WARNINGS))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line per reason for skipped and expected failures instead of one line per test."""
    for outcome in ("skipped", "xfailed"):
        reasons = Counter(map(_reason, terminalreporter.stats.get(outcome, [])))
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{outcome}: {count:>4}  {reason}")


def _reason(report: Any) -> str:
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail).removeprefix("reason: ")
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    return str(reason).removeprefix("Skipped: ")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Reset the global generators, so that no test depends on the tests that ran before it."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - some libraries read the global generator


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run Triton kernels in Triton's interpreter, where it is enabled.

    The interpreter converts one-element arrays to int, which NumPy 2.4 and later refuse.
    """
    if os.environ.get("TRITON_INTERPRET") != "1" or find_spec("triton") is None:
        pytest.skip("needs Triton and its interpreter: TRITON_INTERPRET=1")
    from triton.runtime import interpreter

    original = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch)
