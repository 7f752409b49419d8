"""Figures drawn from plain data: inline SVG for pages, matplotlib for files."""

from propall.report.charts.bars import BarChart, DotChart
from propall.report.charts.examples import ExampleSheet
from propall.report.charts.figure import Figure, Reference
from propall.report.charts.heat import FilmStrip, Grid, HeatMap
from propall.report.charts.lines import Line, LineChart
from propall.report.charts.log_lines import Curve, LogLineChart
from propall.report.charts.ranks import CDDiagram

__all__ = [
    "BarChart",
    "CDDiagram",
    "Curve",
    "DotChart",
    "ExampleSheet",
    "Figure",
    "FilmStrip",
    "Grid",
    "HeatMap",
    "Line",
    "LineChart",
    "LogLineChart",
    "Reference",
]
