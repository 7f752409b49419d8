"""Registry and bibliography: nothing is missing or duplicated, and every citation resolves."""

import pkgutil
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

import pytest
from jaxtyping import TypeCheckError

import propall
import propall.methods
from propall.methods import METHODS
from propall.registry import check_choices
from propall.training.contract import Algorithm, Objective

each_method = pytest.mark.parametrize("method", [pytest.param(m, id=n) for n, m in METHODS.items()])

BIBLIOGRAPHY = files("propall.methods").joinpath("references.bib").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^@(\w+)\{([^,\s]+),\n(.*?)^\}$", BIBLIOGRAPHY, flags=re.MULTILINE | re.DOTALL)
KEYS = [key for _, key, _ in ENTRIES]

#: Citations in docstrings and comments: name, year and perhaps a word, in brackets.
CITATION = re.compile(r"\[([a-z]+\d{4}[a-z0-9]*)\]")


def test_every_file_is_registered_under_its_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(propall.methods.__path__)}
    modules = {name for name in modules if not name.startswith("_")}  # shared by families of methods
    assert modules == set(METHODS), (
        f"files without an entry: {sorted(modules - set(METHODS))}, "
        f"entries without a file: {sorted(set(METHODS) - modules)}"
    )


@each_method
def test_a_method_describes_itself(method: type[Objective] | type[Algorithm]) -> None:
    assert issubclass(method, Objective | Algorithm)
    assert method.__module__ == f"propall.methods.{method.name}"
    assert METHODS[method.name] is method
    assert method.title
    assert method.memory
    assert method.kind in ("partial labels", "complementary labels", "classical")
    assert method.__doc__
    assert method.assumes, f"{method.name} does not say what it assumes"
    assert method.use_when.endswith("."), f"{method.name} does not say when to use it"
    assert len(method.use_when) < 150
    assert method.reference in KEYS, (
        f"{method.name} cites {method.reference}, which references.bib does not have"
    )


def test_titles_are_unique() -> None:
    titles = [method.title for method in METHODS.values()]
    assert len(titles) == len(set(titles))


def test_bibliography_is_well_formed() -> None:
    assert len(ENTRIES) == BIBLIOGRAPHY.count("\n@") + BIBLIOGRAPHY.startswith("@")
    assert len(KEYS) == len(set(KEYS)), "a key is used twice"
    assert BIBLIOGRAPHY.count("{") == BIBLIOGRAPHY.count("}")


@pytest.mark.parametrize(("kind", "fields"), [pytest.param(k, f, id=key) for k, key, f in ENTRIES])
def test_bibliography_entry_is_complete(kind: str, fields: str) -> None:
    needed = {
        "article": {"author", "title", "journal", "year"},
        "inproceedings": {"author", "title", "booktitle", "year"},
        "misc": {"author", "title", "year", "eprint" if "eprint" in fields else "howpublished"},
        "techreport": {"author", "title", "institution", "year"},
        "phdthesis": {"author", "title", "school", "year"},
    }
    present = set(re.findall(r"^  (\w+) = \{", fields, flags=re.MULTILINE))
    assert needed[kind] <= present, f"missing: {needed[kind] - present}"


def test_citations_resolve() -> None:
    unknown = {
        f"{path.name}: {key}"
        for path in Path(propall.__file__).parent.rglob("*.py")
        for key in CITATION.findall(path.read_text(encoding="utf-8"))
        if key not in KEYS
    }
    assert not unknown, f"cited but not in references.bib: {sorted(unknown)}"


def test_an_unknown_name_suggests_similar_ones() -> None:
    with pytest.raises(KeyError, match="propall"):
        METHODS["propal"]


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("ga", "variant", "article"),
        ("abs", "bounded", "MAE"),
        ("propall", "mode", "Exact"),
        ("pc", "scale", "None"),
        ("plle", "scaling", "Unit"),
        ("pl_svm", "start", "Random"),
        ("cpe", "variant", "t"),
        ("valen", "optimizer", "lbfgs"),
    ],
)
def test_misspelled_choices_are_refused(name: str, field: str, value: str) -> None:
    # With checked annotations, the type checker refuses the value first.
    with pytest.raises((ValueError, TypeCheckError), match=field):
        METHODS[name](**{field: value})


@dataclass
class Settings:
    """Annotations with and without choices."""

    mode: Literal["a", "b"] = "a"
    kind: Literal[1, 2] | None = None
    number: float | None = None
    several: Sequence[Literal["x"]] = ()


def test_choices_are_those_of_the_annotations() -> None:
    check_choices(Settings("b", 2, 0.5, "x"))
    for invalid, message in (
        ({"mode": "c"}, "mode: got 'c'; expected 'a' or 'b'"),
        ({"kind": 3}, "1 or 2 or None"),
    ):
        with pytest.raises(ValueError, match=message):
            check_choices(Settings(**invalid))  # type: ignore[arg-type]
