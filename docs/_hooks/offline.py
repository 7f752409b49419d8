"""Refuses a site that would fetch something: every script, style, font and picture is a file of the site."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["']?(?P<source>(?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|preload|icon|preconnect))[^>]*\bhref=["']?"""
    r"""(?P<link>(?:https?:)?//[^"'\s>]+)"""
)
_CSS = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")


def fetched_addresses(text: str, suffix: str) -> list[str]:
    """Addresses that a browser would fetch for a page or style sheet."""
    if suffix == ".css":
        return _CSS.findall(text)
    return [match["source"] or match["link"] for match in _FETCHED.finditer(text)]


def on_post_build(config: MkDocsConfig) -> None:
    """Check every page and style sheet."""
    for path in sorted(Path(config.site_dir).rglob("*")):
        if path.suffix in (".html", ".css"):
            addresses = fetched_addresses(path.read_text(encoding="utf-8"), path.suffix)
            if addresses:
                names = ", ".join(sorted(set(addresses)))
                raise PluginError(f"{path.name} fetches {names}; use a local file.")
