"""Candidate sets: what is known about each row's label, read from any form it comes in."""

from propall.labels.candidates import CandidateLabels, UninformativeRowsWarning, check

__all__ = ["CandidateLabels", "UninformativeRowsWarning", "check"]
