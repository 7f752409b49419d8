"""Candidate sets, built from labels in any form."""

from propall.labels.candidates import CandidateLabels, UninformativeRowsWarning, check

__all__ = ["CandidateLabels", "UninformativeRowsWarning", "check"]
