"""Turns the library's docstrings into Markdown: formulas, citations and examples."""

import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import griffe

sys.path.append(str(Path(__file__).parent))  # griffe loads this file without its neighbors

from api import attribute_comment
from bibliography import with_citations

_MATH = re.compile(r"^(?P<indent> *)\.\. math::(?P<first>.*)\n(?P<rest>(?:(?P=indent) +.*\n)*)", re.MULTILINE)
_INLINE = re.compile(r":math:`([^`]+)`")
_EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)


def to_markdown(docstring: str) -> str:
    """The docstring with formulas, citations and examples as Markdown knows them."""

    def display(match: re.Match[str]) -> str:
        latex = " ".join((match["first"] + "\n" + textwrap.dedent(match["rest"])).split())
        return f"{match['indent']}$$\n{match['indent']}{latex}\n{match['indent']}$$\n"

    text = _MATH.sub(display, docstring + "\n")
    text = _INLINE.sub(r"$\1$", text)
    return _EXAMPLE.sub(r"\1Examples:", with_citations(text)).rstrip("\n")


class Docstrings(griffe.Extension):
    """Applies `to_markdown` to every docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is None and obj.is_attribute and isinstance(obj.filepath, Path):
            comment = attribute_comment(obj.filepath, obj.name)
            obj.docstring = griffe.Docstring(comment, parent=obj) if comment else None
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
