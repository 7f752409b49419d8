"""Imports of commands without garbage collection."""

import gc
from types import SimpleNamespace

import pytest

from propall.cli import imports


def test_the_first_import_is_not_searched_for_garbage(monkeypatch) -> None:
    monkeypatch.setattr(imports, "sys", SimpleNamespace(modules={}))
    try:
        before = gc.get_freeze_count()
        with imports.without_garbage_collection():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() > before
        with pytest.raises(ImportError), imports.without_garbage_collection():
            raise ImportError
        assert gc.isenabled()
    finally:
        gc.unfreeze()


def test_later_imports_leave_garbage_collection_alone(monkeypatch) -> None:
    monkeypatch.setattr(imports, "sys", SimpleNamespace(modules={"torch": None}))
    before = gc.get_freeze_count()
    with imports.without_garbage_collection():
        assert gc.isenabled()
    gc.disable()
    try:
        monkeypatch.setattr(imports, "sys", SimpleNamespace(modules={}))
        with imports.without_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert gc.get_freeze_count() == before
