"""Tables of results, rendered as HTML, CSV, Markdown or LaTeX."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import groupby
from typing import Literal, Self

from propall.report.colors import method_style
from propall.report.numbers import Number, format_mean, format_number
from propall.wording import guard_formula

Format = Literal["CSV", "Markdown", "LaTeX"]
#: Longer texts below a row are folded to two lines.
FOLDED = 160


@dataclass(frozen=True)
class Column:
    """A column after the first, which holds the row titles.

    Numbers are shown as `mean (std)`, the best of them bold; differences are signed, with ▲ where better.
    """

    title: str
    group: str = ""  # heading above adjacent columns of the same group
    kind: Literal["number", "difference", "text"] = "number"
    decimals: int = 2
    best: Literal["highest", "lowest"] | None = None
    wraps: bool = False  # wrap long texts instead of widening the table

    @property
    def full_title(self) -> str:
        """Group and title."""
        return f"{self.group} {self.title}".strip()


@dataclass(frozen=True)
class TableCell:
    """A number, a text, or the reason why there is neither."""

    mean: Number | None = None
    std: Number | None = None  # over runs
    text: str = ""  # instead of a number; in an empty cell the reason, such as `not run`
    close: bool = False  # not significantly worse than the best of its column; underlined
    hatched: str = ""  # why the number cannot be compared with the others; such a cell is never the best
    remark: str = ""  # another footnote

    @property
    def footnotes(self) -> list[str]:
        """Notes on this cell below the table."""
        return [note for note in (self.hatched, self.remark) if note]


@dataclass(frozen=True)
class TableRow:
    """A titled row of cells; `method` puts that method's color before the title."""

    title: str
    cells: Sequence[TableCell]
    method: str = ""
    more: str = ""  # a longer text below the cells, of tables with `first`

    @classmethod
    def of(cls, title: str, *values: Number | str | None, method: str = "", more: str = "") -> Self:
        """Build from numbers and texts."""
        cells = [TableCell(text=value) if isinstance(value, str) else TableCell(value) for value in values]
        return cls(title, cells, method, more)


@dataclass(frozen=True)
class ReportTable:
    """A table with caption and footnotes."""

    columns: Sequence[Column]  # after the first
    rows: Sequence[TableRow]
    caption: str = ""  # what the numbers are, and over how many runs
    row_title: str = "method"  # heading of the first column
    formats: Sequence[Format] = ("CSV", "Markdown", "LaTeX")  # of the copy buttons
    best_in: Literal["columns", "rows"] = "columns"  # mark the best number of each
    #: Rows that a page shows before it is searched; None for a table without a search box. Cells of a
    #: searchable table are plain: no emphasis, no footnotes.
    first: int | None = None
    more_title: str = ""  # what the longer texts below the rows are, in a copied CSV

    def __post_init__(self) -> None:
        if self.first is None and any(row.more for row in self.rows):
            raise ValueError("rows: texts below rows need a searchable table; set `first`.")
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(
                    f"rows: {row.title!r} has {len(row.cells)} cells for {len(self.columns)} columns; "
                    "use TableCell(text=reason) where there is no number."
                )

    @cached_property
    def _best(self) -> set[tuple[int, int]]:
        groups: dict[tuple[int, str], dict[tuple[int, int], float]] = {}
        for c, column in enumerate(self.columns):
            if column.kind != "number" or column.best is None:
                continue
            for r, row in enumerate(self.rows):
                cell = row.cells[c]
                if cell.mean is not None and not cell.hatched:
                    group = groups.setdefault((c if self.best_in == "columns" else r, column.best), {})
                    # Values that round to the same text tie, so bold never depends on hidden digits.
                    group[r, c] = round(cell.mean, column.decimals)
        places = set()
        for (_, best), values in groups.items():
            top = (max if best == "highest" else min)(values.values())
            places |= {place for place, value in values.items() if value == top}
        return places

    def is_best(self, row: int, column: int) -> bool:
        """Return whether a cell is the best of its column or row, and so bold."""
        return (row, column) in self._best

    @cached_property
    def footnotes(self) -> list[str]:
        """Distinct notes of the cells, in order of their numbers."""
        return list(dict.fromkeys(note for row in self.rows for cell in row.cells for note in cell.footnotes))

    def text(self, row: int, column: int) -> str:
        """Return the text of a cell, without emphasis."""
        cell, style = self.rows[row].cells[column], self.columns[column]
        if cell.mean is None:
            return cell.text
        if style.kind == "difference":
            return f"{_arrow(cell.mean, style)}{format_number(cell.mean, style.decimals, signed=True)}"
        return format_mean(cell.mean, cell.std, style.decimals)

    def to_csv(self) -> str:
        """Return CSV with up to six decimals and a separate column for each std."""
        has_std = [any(row.cells[c].std is not None for row in self.rows) for c in range(len(self.columns))]
        header = [self.row_title]
        for column, std in zip(self.columns, has_std, strict=True):
            header += [column.full_title] + ([f"{column.full_title} std"] if std else [])
        header += [self.more_title] if self.more_title else []
        lines = [header]
        for row in self.rows:
            line = [row.title]
            for cell, std in zip(row.cells, has_std, strict=True):
                line.append(cell.text if cell.mean is None else repr(round(float(cell.mean), 6)))
                if std:
                    line.append("" if cell.std is None else repr(round(float(cell.std), 6)))
            lines.append([*line, row.more] if self.more_title else line)
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(
            [guard_formula(cell) for cell in line] for line in lines
        )
        return out.getvalue()

    def to_markdown(self) -> str:
        """Return a GitHub-flavored Markdown table, followed by the footnotes."""
        header = [self.row_title, *(column.full_title for column in self.columns)]
        align = ["---", *("---" if column.kind == "text" else "---:" for column in self.columns)]
        lines = [header, align]
        for r, row in enumerate(self.rows):
            line = [row.title]
            for c, cell in enumerate(row.cells):
                text = _pipe_safe(self.text(r, c)) + self._mark(cell, "<sup>{}</sup>")
                text = f"**{text}**" if self.is_best(r, c) else text
                line.append(f"<u>{text}</u>" if cell.close else text)
            lines.append([_pipe_safe(line[0]), *line[1:]])
        body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return body + "\n" + "".join(f"\n{note}\n" for note in self._numbered_notes("{}. {}"))

    def to_latex(self) -> str:
        """Return a LaTeX `table` with `booktabs`; the first line names the required packages."""
        spec = "l" + "".join("l" if column.kind == "text" else "r" for column in self.columns)
        lines = [r"\begin{table}", r"\centering"]
        if self.caption:
            lines.append(rf"\caption{{{_tex(self.caption)}}}")
        lines += [rf"\begin{{tabular}}{{{spec}}}", r"\toprule"]
        if any(column.group for column in self.columns):
            groups = [(g, len(list(cs))) for g, cs in groupby(self.columns, key=lambda column: column.group)]
            lines.append("".join(rf" & \multicolumn{{{n}}}{{c}}{{{_tex(g)}}}" for g, n in groups) + r" \\")
        lines.append(" & ".join(map(_tex, [self.row_title, *(c.title for c in self.columns)])) + r" \\")
        lines.append(r"\midrule")
        for r, row in enumerate(self.rows):
            cells = (self._tex_cell(r, c) for c in range(len(row.cells)))
            lines.append(" & ".join([_tex(row.title), *cells]) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\footnotesize {note}" for note in map(_tex, self._numbered_notes("({}) {}"))]
        text = "\n".join([*lines, r"\end{table}", ""])
        packages = "booktabs" + (",amssymb" if r"\blacktriangle" in text else "")
        return rf"% needs \usepackage{{{packages}}}" + f"\n{text}"

    def _tex_cell(self, r: int, c: int) -> str:
        cell, column = self.rows[r].cells[c], self.columns[c]
        if cell.mean is None or column.kind == "difference":
            text = _tex(self.text(r, c))
        else:
            text = _tex(format_number(cell.mean, column.decimals))
            text = rf"\textbf{{{text}}}" if self.is_best(r, c) else text
            text = rf"\underline{{{text}}}" if cell.close else text
            if cell.std is not None:
                text += rf" {{\scriptsize ({format_number(cell.std, column.decimals)})}}"
        return text + self._mark(cell, r"\textsuperscript{{{}}}")

    def to_html(self, anchor: str) -> str:
        """Return a `table` with id `anchor` that the page's script makes sortable and copyable."""
        anchor = escape(anchor)
        attributes = f'aria-labelledby="{anchor}-caption"'
        if self.first is not None:
            attributes += (
                f' data-first="{self.first}" data-fold="{FOLDED}" data-more="{escape(self.more_title)}"'
            )
        parts = [
            f'<div class="table" id="{anchor}">',
            # Outside the table, so that it wraps at the page width while the table scrolls.
            f'<p class="caption" id="{anchor}-caption">{escape(self.caption or self.row_title)}</p>',
            "" if self.first is None else self._search_box(anchor),
            f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{anchor}-caption">',
            f"<table {attributes}>",
        ]
        parts += [self._html_head(), "<tbody>"]
        for r, row in enumerate(self.rows[: self.first]):
            mark = _swatch(row.method) if row.method else ""
            cells = "".join(self._html_cell(r, c) for c in range(len(row.cells)))
            parts.append(f'<tr><th scope="row">{mark}{escape(row.title)}</th>{cells}</tr>')
            if row.more:
                fold = '<details class="fold"><summary>{}</summary></details>'
                fold = fold if len(row.more) > FOLDED else '<div class="fold">{}</div>'
                text = fold.format(escape(row.more))
                parts.append(f'<tr class="more"><td colspan="{1 + len(self.columns)}">{text}</td></tr>')
        parts.append("</tbody></table></div>")
        if self.first is not None:
            parts.append('<p class="rest" hidden><button type="button">Show more</button></p>')
        notes = self._numbered_notes('<p class="note"><sup>{}</sup> {}</p>', quote=escape)
        parts += ["".join(notes)] if notes else []
        return "\n".join([*(part for part in parts if part), self._copy_buttons(), "</div>"])

    def _search_box(self, anchor: str) -> str:
        """Return a search box with the texts of all rows; the page's script shows it."""
        label = f"Search all {len(self.rows)} rows"
        records = [
            [row.title, *(self.text(r, c) for c in range(len(row.cells))), row.more]
            for r, row in enumerate(self.rows)
        ]
        return (
            f'<div class="find" hidden><label for="{anchor}-find">{label}</label>'
            f'<input type="search" id="{anchor}-find" autocomplete="off" spellcheck="false">'
            f'<span role="status"></span>{json_script(records)}</div>'
        )

    def _html_head(self) -> str:
        def heading(title: str, number: bool, spans: str = "") -> str:
            side = ' class="n"' if number else ""
            button = f'<button type="button" class="sort">{escape(title)}</button>'
            return f'<th scope="col"{side}{spans} aria-sort="none">{button}</th>'

        titles = "".join(heading(column.title, column.kind != "text") for column in self.columns)
        if not any(column.group for column in self.columns):
            return f"<thead><tr>{heading(self.row_title, False)}{titles}</tr></thead>"
        groups = "".join(
            f'<th scope="colgroup" class="group" colspan="{len(list(members))}">{escape(group)}</th>'
            for group, members in groupby(self.columns, key=lambda column: column.group)
        )
        first = heading(self.row_title, False, ' rowspan="2"')
        return f"<thead><tr>{first}{groups}</tr><tr>{titles}</tr></thead>"

    def _html_cell(self, r: int, c: int) -> str:
        cell, column = self.rows[r].cells[c], self.columns[c]
        classes, extra = [] if column.kind == "text" else ["n"], ""
        classes += ["wraps"] if column.wraps else []
        if cell.mean is None:
            classes += ["empty"] if column.kind != "text" else []
            body = escape(cell.text)
        elif column.kind == "difference":
            classes.append(_direction(cell.mean, column))
            extra = f' data-v="{float(cell.mean)!r}"'
            body = escape(self.text(r, c))
        else:
            body = escape(format_number(cell.mean, column.decimals))
            body = f"<b>{body}</b>" if self.is_best(r, c) else body
            body = f"<u>{body}</u>" if cell.close else body
            if cell.std is not None:
                body += f" <small>({format_number(cell.std, column.decimals)})</small>"
        if cell.hatched:
            classes.append("hatched")
        if cell.footnotes:
            extra += f' title="{escape("; ".join(cell.footnotes))}"'
            body += self._mark(cell, "<sup>{}</sup>")
        attribute = f' class="{" ".join(name for name in classes if name)}"' if any(classes) else ""
        return f"<td{attribute}{extra}>{body}</td>"

    def _copy_buttons(self) -> str:
        renderings = {"CSV": self.to_csv, "Markdown": self.to_markdown, "LaTeX": self.to_latex}
        button = '<button type="button" data-copy="{0}">Copy {0}</button>'
        buttons = "".join(map(button.format, self.formats))
        # The script makes the CSV of a searchable table from the rows that match.
        texts = json_script({name: renderings[name]() for name in self.formats if self.first is None})
        return f'<p class="copy" hidden>{buttons}<span role="status"></span></p>{texts}'

    def _mark(self, cell: TableCell, shape: str) -> str:
        numbers = ",".join(str(self.footnotes.index(note) + 1) for note in cell.footnotes)
        return shape.format(numbers) if numbers else ""

    def _numbered_notes(self, shape: str, quote: Callable[[str], str] = str) -> list[str]:
        return [shape.format(i, quote(note)) for i, note in enumerate(self.footnotes, 1)]


def json_script(data: object) -> str:
    """Return data for the page's script, escaped so that no text can end the script element."""
    text = json.dumps(data).replace("<", "\\u003c")
    return f'<script type="application/json">{text}</script>'


def _direction(value: Number, column: Column) -> str:
    shown = round(value, column.decimals) * (-1 if column.best == "lowest" else 1)
    return "" if shown == 0 else "better" if shown > 0 else "worse"


def _arrow(value: Number, column: Column) -> str:
    return {"better": "▲ ", "worse": "▼ ", "": ""}[_direction(value, column)]


def _swatch(method: str) -> str:
    index = method_style(method).color
    return f'<i class="swatch" style="background:var(--{"muted" if index < 0 else f"s{index}"})"></i>'


def _pipe_safe(text: str) -> str:
    return text.replace("|", r"\|")


_TEX = {
    **{c: "\\" + c for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "▲": r"$\blacktriangle$",
    "▼": r"$\blacktriangledown$",
    "−": "$-$",
    "–": "--",
}


def _tex(text: str) -> str:
    return "".join(_TEX.get(c, c) for c in text)
