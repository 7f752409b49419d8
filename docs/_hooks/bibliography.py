"""Reads `references.bib` and writes the page of references."""

import functools
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

BIB = Path(__file__).resolve().parents[2] / "src" / "propall" / "methods" / "references.bib"

_ENTRY = re.compile(r"^@(\w+)\{(\w+),\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^ *(\w+) = \{(.*?)\},?$", re.MULTILINE | re.DOTALL)
_ACCENTS = {"'": "\u0301", '"': "\u0308", "`": "\u0300", "^": "\u0302", "~": "\u0303", "c": "\u0327"}
_LETTERS = {r"{\L}": "Ł", r"{\l}": "ł", r"{\o}": "ø", r"{\ss}": "ß", r"{\i}": "ı"}


def plain_text(latex: str) -> str:
    """A field as text: accents as letters, without braces, on one line."""
    for command, letter in _LETTERS.items():
        latex = latex.replace(command, letter)
    latex = re.sub(
        r"""\\(['"`^~]|c(?=[ {]))\s*\{?(\w)\}?""",
        lambda m: unicodedata.normalize("NFC", m[2] + _ACCENTS[m[1]]),
        latex,
    )
    return " ".join(latex.replace("{", "").replace("}", "").replace("--", "–").split())


_CITATION = re.compile(r"(?<![\w`\]])\[(\w+\d{4}\w+)\](?![\[(])")


@dataclass(frozen=True)
class Reference:
    """A publication."""

    key: str
    fields: dict[str, str]

    @property
    def authors(self) -> list[str]:
        """Family names."""
        return [name.split(",")[0].strip() for name in self.fields["author"].split(" and ")]

    @property
    def short(self) -> str:
        """As cited in a text: names and year."""
        names = self.authors
        who = f"{names[0]} et al." if len(names) > 2 else " and ".join(names)
        return f"{who} {self.fields['year']}"

    @property
    def link(self) -> str:
        """A Markdown link to the entry on the page of references."""
        return f"[{self.short}][ref-{self.key}]"

    @property
    def markdown(self) -> str:
        """The full entry."""
        names = [" ".join(reversed([part.strip() for part in name.split(",")])) for name in self.names]
        venues = [self.fields[name] for name in ("booktitle", "journal", "school") if name in self.fields]
        venue = next(iter(venues), "")
        where = f"*{venue}*, {self.fields['year']}" if venue else self.fields["year"]
        if "eprint" in self.fields:
            where += f", [arXiv:{self.fields['eprint']}](https://arxiv.org/abs/{self.fields['eprint']})"
        return f"{', '.join(names)}. {self.fields['title']}. {where}."

    @property
    def names(self) -> list[str]:
        """Full names, family name first."""
        return self.fields["author"].split(" and ")


@functools.cache
def references() -> dict[str, Reference]:
    """All publications by key."""
    text = BIB.read_text(encoding="utf-8")
    return {
        key: Reference(key, {name.lower(): plain_text(value) for name, value in _FIELD.findall(body)})
        for _, key, body in _ENTRY.findall(text)
    }


def with_citations(text: str) -> str:
    """The text with links in place of citation keys such as `[lv2020progressive]`."""

    def cite(match: re.Match[str]) -> str:
        entry = references().get(match[1])
        return match[0] if entry is None else entry.link

    return _CITATION.sub(cite, text)


def references_page() -> str:
    """The page of all references, by first author and year."""
    entries = sorted(references().values(), key=lambda entry: (entry.authors[0], entry.fields["year"]))
    parts = [
        "# References",
        "The publications behind the methods, generated from "
        "[references.bib](../src/propall/methods/references.bib). The keys are those of docstrings and of "
        "`propall methods`.",
    ]
    for entry in entries:
        parts += [f"### {entry.short} {{ #ref-{entry.key} }}", f"{entry.markdown} `{entry.key}`"]
    return "\n\n".join(parts) + "\n"
