"""The examples in docstrings run, and every name of the API reference has one."""

import doctest
import importlib
import warnings
from pathlib import Path

import pytest

from docs._hooks.api import api_names, docstring_examples

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "propall"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

#: Modules with examples.
MODULES = [
    "propall." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]
#: Modules that need an optional package.
NEEDS = {"propall.lightning": "lightning", "propall.tables.export": "onnxscript"}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:.*isinstance.*treespec.*:FutureWarning")
@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name, tmp_path, monkeypatch):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROPALL_DATA", str(tmp_path))
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for owner, line, text in docstring_examples(Path(str(module.__file__))):
        test = doctest.DocTestParser().get_doctest(text, dict(vars(module)), owner, module.__file__, line)
        with warnings.catch_warnings():
            if name == "propall.lightning":
                warnings.simplefilter("ignore")  # Lightning has several of its own
            runner.run(test)
    assert not runner.failures
    assert runner.tries


def test_every_name_of_the_api_has_an_example():
    with_examples = {owner for path in PACKAGE.rglob("*.py") for owner, _, _ in docstring_examples(path)}
    names = api_names()
    assert len(names) > 80
    assert not [f"{module}.{name}" for module, name in names if name not in with_examples]


def test_the_api_has_every_public_name():
    import propall

    documented = {name for _, name in api_names()}
    assert not [name for name in propall.__all__ if not name.startswith("_") and name not in documented]
