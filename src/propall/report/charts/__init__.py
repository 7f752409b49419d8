"""Figures drawn from plain data: inline SVG for pages, matplotlib for files."""
