"""The report on the paper: every table and figure from stored results, as a page and as Markdown."""

from propall.paper.pages.markdown import describe_costs, reproduction_markdown
from propall.paper.pages.page import report_page

__all__ = ["describe_costs", "report_page", "reproduction_markdown"]
