"""The drawings in docs/ are those that docs/_drawings makes."""

import importlib
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("name", ["candidate_sets", "stacking"])
def test_drawings_are_those_of_the_script(name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_drawings")
    palette, concepts = (importlib.import_module(module) for module in ("palette", "concepts"))
    (tmp_path / "concepts").mkdir()
    monkeypatch.setattr(palette, "DOCS", tmp_path)
    getattr(concepts, name)()
    for module in ("palette", "concepts"):
        del sys.modules[module]
    drawn = (tmp_path / "concepts" / f"{name}.svg").read_text(encoding="utf-8")
    kept = (DOCS / "concepts" / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == kept, "refresh it: python docs/_drawings/concepts.py"
