"""The report on the paper: every table and figure from a store of results, as a page, as files, as text."""

from propall.report.reproduction.files import export
from propall.report.reproduction.page import report_page
from propall.report.reproduction.text import cost_sentences, reproduction_text

__all__ = ["cost_sentences", "export", "report_page", "reproduction_text"]
