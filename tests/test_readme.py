"""The README says what is so: its table is the registry's, its code runs."""

import re
from pathlib import Path

import pytest

from propall.cli import main

README = Path(__file__).parent.parent / "README.md"


def test_the_table_of_methods_is_the_registry_s(capsys):
    with pytest.raises(SystemExit):
        main(["methods", "--markdown"])
    table = capsys.readouterr().out.strip()
    text = README.read_text(encoding="utf-8")
    _, _, rest = text.partition("--markdown` -->\n")
    assert rest.partition("\n<!-- end of methods -->")[0] == table, "refresh it: propall methods --markdown"


def test_the_code_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "README", "exec"), {})
    assert "cat" in capsys.readouterr().out
