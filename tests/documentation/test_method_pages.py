"""The pages of the methods: their code runs, and they say what they should."""

import re

import pytest

from propall.methods import METHODS
from tests.documentation.pages import ROOT, read_blocks


@pytest.fixture(scope="module")
def pages():
    """The module that writes the pages; its neighbors are imported by their bare names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs" / "_hooks"))
        import methods

        yield methods


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", METHODS)
def test_the_code_of_a_page_runs(name, pages, capsys):
    names: dict[str, object] = {}
    for block in read_blocks(pages.usage(name)):
        exec(compile(block.code, f"methods/{name}.md", "exec"), names)
    assert 0.3 < float(capsys.readouterr().out) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["propall", "ipal"])
def test_a_page_has_its_parts(name, pages):
    text = pages.method_page(name)
    for heading in ("Formula and settings", "Use", "Results", "Source"):
        assert f"\n## {heading}\n" in text
    assert METHODS[name].assumes[1:] in text  # the first letter is a capital there
    assert re.search(r"\| \d\d\.\d\d", text)


def test_every_method_is_in_the_index(pages):
    text = pages.index_page()
    assert not [name for name in METHODS if f"({name}.md)" not in text]


def test_every_reference_is_complete(pages):
    from bibliography import references, references_page

    text = (ROOT / "src" / "propall" / "methods" / "references.bib").read_text(encoding="utf-8")
    assert len(references()) == text.count("\n@")
    assert "{" not in re.sub(r"\{ #[\w-]+ \}", "", references_page())
