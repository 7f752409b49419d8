"""Makes files of the repository outside `docs/` part of the site.

Some become pages. Others that a page links to, such as a CSV file of results, are copied next to the pages,
so that every link works without a network.
"""

import posixpath
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]

#: File of the repository -> page of the site.
PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
}
#: Folder of the site that holds copies of linked files.
COPIES = "files"

_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_CODE = re.compile(r"^(```+|~~~+).*?^\1", re.MULTILINE | re.DOTALL)


def repository_path(link: str, source: str) -> str | None:
    """Path in the repository that a relative link from the file `source` means; None for any other link."""
    target = link.partition("#")[0]
    if not target or "://" in link or link.startswith(("/", "mailto:")):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def site_link(link: str, source: str, page: str) -> str:
    """The link as it must read on a page of the site.

    Args:
        link: as written in the repository's file `source`.
        source: path of the file in the repository, such as `docs/crowds.md`.
        page: path of the page in the site, such as `crowds.md`.
    """
    path = repository_path(link, source)
    if path is None:
        return link
    if path in PAGES:
        target = PAGES[path]
    elif path.startswith("docs/"):
        target = path.removeprefix("docs/")
    elif (ROOT / path).is_file():
        target = f"{COPIES}/{path}"
    else:
        return link
    _, mark, anchor = link.partition("#")
    return posixpath.relpath(target, posixpath.dirname(page) or ".") + mark + anchor


def rewrite_links(text: str, source: str, page: str) -> str:
    """Rewrite the links of a Markdown text; code blocks stay as they are."""

    def rewrite(part: str) -> str:
        return _LINK.sub(lambda m: m[1] + site_link(m[2], source, page) + m[3], part)

    parts, end = [], 0
    for block in _CODE.finditer(text):
        parts += [rewrite(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, rewrite(text[end:])])


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and copies of the files that pages link to."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    sources = {page: source for source, page in PAGES.items()}
    for file in list(files.documentation_pages()):
        source = sources.get(file.src_uri, f"docs/{file.src_uri}")
        for _, link, _ in _LINK.findall(_CODE.sub("", file.content_string)):
            path = repository_path(link, source)
            if path is None or path in PAGES or path.startswith(("docs/", "..")):
                continue
            copy = f"{COPIES}/{path}"
            if (ROOT / path).is_file() and files.get_file_from_path(copy) is None:
                files.append(File.generated(config, copy, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links out of `docs/`."""
    sources = {target: source for source, target in PAGES.items()}
    uri = str(PurePosixPath(page.file.src_uri))
    return rewrite_links(markdown, sources.get(uri, f"docs/{uri}"), uri)
