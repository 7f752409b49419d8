"""Makes the navigation from the folders, so that a page is added without editing a list.

The pages of a folder come in the order in which its `index.md` links to them; a page that is not linked there
is a warning, which `make docs` treats as an error. Pages directly in `docs/` that no section names are listed
under "Guides", in depth.
"""

import logging
import re
from pathlib import PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

#: Title of a section -> its pages and folders, in order. What does not exist is left out.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Home": ("index.md",),
    "Start": ("start.md", "installation.md"),
    "Guides": ("guides/",),
    "Concepts": ("concepts/",),
    "Gallery": ("gallery/",),
    "Methods": ("methods.md", "methods/", "references.md"),
    "Results": (
        "reproduction.md",
        "state_of_the_art.md",
        "why_base_losses.md",
        "benchmarks.md",
        "repeatability.md",
    ),
    "Reference": ("commands.md", "api/"),
    "Contributing": (
        "contributing.md",
        "adding_a_method.md",
        "executed_blocks.md",
        "interruptions.md",
        "versions.md",
        "changelog.md",
        "security.md",
    ),
}
#: Folders that are a group of their own within a section, with its title.
GROUPS = {"api/": "API"}
#: Where the remaining pages of `docs/` go, and under which title.
REST = ("Guides", "In depth")

_LINK = re.compile(r"\]\(([^)\s#]+\.md)(?:#[^)]*)?\)")
_log = logging.getLogger("mkdocs.hooks.navigation")


def linked_pages(index: File) -> list[str]:
    """Paths of the pages that an index links to, in order and without repeats."""
    folder = PurePosixPath(index.src_uri).parent
    return list(dict.fromkeys(str(folder / link) for link in _LINK.findall(index.content_string)))


def folder_pages(files: Files, folder: str) -> list[str]:
    """Pages of a folder: its index, then the others in the order of the index's links."""
    pages = sorted(file.src_uri for file in files.documentation_pages() if file.src_uri.startswith(folder))
    index = files.get_file_from_path(f"{folder}index.md")
    if index is None:
        return pages
    order = [page for page in linked_pages(index) if page in pages and page != index.src_uri]
    missing = [page for page in pages if page not in order and page != index.src_uri]
    if missing:
        _log.warning("%sindex.md has no link to %s", folder, ", ".join(missing))
    return [index.src_uri, *order, *missing]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Set `nav` from the pages there are."""
    named = {entry for entries in SECTIONS.values() for entry in entries}
    rest = [
        file.src_uri
        for file in files.documentation_pages()
        if "/" not in file.src_uri and file.src_uri not in named
    ]
    nav: list[dict[str, Any]] = []
    for title, entries in SECTIONS.items():
        pages: list[Any] = []
        for entry in entries:
            if entry in GROUPS:
                pages.append({GROUPS[entry]: folder_pages(files, entry)})
            elif entry.endswith("/"):
                pages += folder_pages(files, entry)
            elif files.get_file_from_path(entry) is not None:
                pages.append(entry)
        if title == REST[0] and rest:
            pages.append({REST[1]: sorted(rest)})
        if pages:
            nav.append({title: pages[0] if pages[0] == entries[0] and len(pages) == 1 else pages})
    config.nav = nav
    return files
