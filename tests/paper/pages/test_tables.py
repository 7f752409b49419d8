"""Our numbers next to the paper's."""

from propall.paper.pages.tables import compare_with_paper
from propall.report.tables import TableCell

COPIED = "Copied from another paper."


def test_ours_paper_and_difference_are_adjacent():
    table = compare_with_paper(
        ["MNIST", "CIFAR-10"],
        {
            "ProPaLL": [
                (TableCell(98.7, 0.1), TableCell(98.73, 0.05)),
                (TableCell(84.5, 0.2), TableCell(84.32, 0.37)),
            ],
            "CC": [
                (TableCell(98.0), TableCell(97.0, hatched=COPIED)),
                (TableCell(text="not run"), TableCell(80.0)),
            ],
            "RC": [(TableCell(98.001), TableCell(98.0)), (TableCell(80.0), TableCell(text="not published"))],
        },
    )
    assert [column.full_title for column in table.columns][:3] == [
        "MNIST ours",
        "MNIST paper",
        "MNIST difference",
    ]
    assert [table.text(r, 2) for r in range(3)] == ["▼ −0.03", "–", "0.00"]
    assert [table.text(r, 5) for r in range(3)] == ["▲ +0.18", "–", "–"]
    html = table.to_html("t")
    assert '<th scope="colgroup" class="group" colspan="3">MNIST</th>' in html
    assert '<td class="n worse"' in html
    assert '<td class="n better"' in html
    assert r"\multicolumn{3}{c}{CIFAR-10}" in table.to_latex()
