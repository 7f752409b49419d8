"""The report on the paper: every table and figure from a store of results, as a page, as files, as text."""

from propall.paper.pages.files import export
from propall.paper.pages.page import report_page
from propall.paper.pages.text import cost_sentences, reproduction_text

__all__ = ["cost_sentences", "export", "report_page", "reproduction_text"]
