"""The drawings in docs/ are those that docs/_drawings makes."""

import importlib
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize(
    ("module", "path"),
    [
        ("concepts", "concepts/candidate_sets.svg"),
        ("concepts", "concepts/stacking.svg"),
        ("dropped_classes", "why_base_losses.svg"),
    ],
)
def test_drawings_are_those_of_the_script(module, path, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_drawings")
    palette, script = (importlib.import_module(name) for name in ("palette", module))
    (tmp_path / "concepts").mkdir()
    monkeypatch.setattr(palette, "DOCS", tmp_path)
    getattr(script, Path(path).stem)()
    for name in ("palette", module):
        del sys.modules[name]
    drawn = (tmp_path / path).read_text(encoding="utf-8")
    kept = (DOCS / path).read_text(encoding="utf-8")
    assert drawn == kept, f"refresh it: python docs/_drawings/{module}.py"
