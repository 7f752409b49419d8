"""The harness notices what is wrong with a page."""

import json
import re
from pathlib import Path
from statistics import fmean

import pytest

from tests.documentation.comparison import matches
from tests.documentation.pages import PageError, all_pages, has_code, read_blocks, shown_pictures
from tests.documentation.running import run_page, with_replacements

PAGE = """\
# A page

```csv title="numbers.csv"
a,b
1,2
```

<!-- run: hidden
secret = 20
-->

```python
from pathlib import Path
print(Path("numbers.csv").read_text().split()[1], secret + 22)
```

```output
1,2 42
```

    ```console
    $ cat numbers.csv; \\
    > echo done
    a,b
    ...
    done
    $ rm numbers.csv
    ```

<!-- run: no, it needs a GPU -->
```python
raise SystemExit("not reached")
```
"""


@pytest.fixture
def run(tmp_path):
    """Run a page with this text."""

    def run_text(text: str):
        page = tmp_path / "page.md"
        page.write_text(text, encoding="utf-8")
        return run_page(page, tmp_path / "pictures")

    return run_text


def test_blocks_share_a_folder_and_variables(run):
    result = run(PAGE)
    assert not result.problems
    assert [block.kind for block in result.blocks] == ["file", "hidden", "python", "console", "python"]
    assert result.blocks[-1].skipped == "it needs a GPU"


def test_another_output_is_a_problem_and_can_be_written(run):
    page = PAGE.replace("1,2 42", "1,2 43").replace("    a,b\n    ...\n", "    a,c\n")
    result = run(page)
    assert len(result.problems) == 2
    updated = with_replacements(page, result.replacements)
    assert "\n1,2 42\n" in updated
    assert "    a,b\n    1,2\n    done\n    $ rm" in updated
    assert not run(updated).problems


def test_an_error_ends_the_page_and_names_its_line(run):
    result = run("```python\nx = 1\nx / 0\n```\n\n```python\nprint(x)\n```\n")
    assert len(result.blocks) == 1
    assert "line 3" in result.problems[0]
    assert "ZeroDivisionError" in result.problems[0]


def test_a_failing_command_is_a_problem(run):
    assert "ended with 3" in run("```console\n$ exit 3\n```\n").problems[0]


def test_pictures_come_from_the_run(run, tmp_path):
    code = 'from pathlib import Path\nPath("p.svg").write_text("<svg/>")'
    page = f"![A picture](p.svg)\n\n```python\n{code}\n```\n"
    assert run(page).pictures == ["p.svg"]
    assert "neither a file" in run(page.replace('"p.svg"', '"q.svg"')).problems[0]


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("```bash\nls\n```\n", "use console"),
        ("```\nls\n```\n", "use console, python"),
        ("```output\n1\n```\n", "follows a python block"),
        ("```python\n1\n", "no end"),
        ("<!-- run: never -->\n```python\n1\n```\n", "expected `no, REASON`"),
        ("<!-- run: hidden\n1\n", "no end"),
        ("```console\nls\n```\n", "begins with a command"),
    ],
)
def test_a_page_that_cannot_run_is_refused(page, message):
    with pytest.raises(PageError, match=message):
        [block.commands for block in read_blocks(page) if block.kind == "console"]


def test_outputs_are_compared_with_ellipses_and_tolerance():
    assert matches("a ... c\n...\nend", "a b c\n1\n2\nend\n")
    assert not matches("a ... c", "a b d")
    assert not matches("accuracy 0.95", "accuracy 0.94")
    assert matches("accuracy 0.95 ... x", "accuracy  0.94 in 3 s x", tolerance=0.02)
    assert not matches("accuracy 0.95", "accuracy 0.90", tolerance=0.02)
    assert not matches("accuracy 0.95", "precision 0.95", tolerance=0.02)
    assert not matches("", "something")


def test_pictures_in_code_are_not_shown():
    assert shown_pictures('![a](a.png) <img alt="b" src="b.svg">\n```text\n![c](c.png)\n```\n') == [
        "a.png",
        "b.svg",
    ]


def test_every_page_can_be_read():
    pages = all_pages()
    assert len(pages) > 5
    for page in pages:
        for block in read_blocks(Path(page).read_text(encoding="utf-8")):
            if block.kind == "console":
                assert block.commands


def test_numbers_are_filled_in_outside_of_code(monkeypatch):
    pytest.importorskip("mkdocs")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs" / "_hooks"))
    from measurements import fill_in, result

    text = fill_in("{{ result('modern/uniform-0.1').accuracy }} `{{ x }}`\n```text\n{{ y }}\n```\n")
    accuracy = result("modern/uniform-0.1").accuracy
    assert 95 < float(accuracy.split()[0]) < 97
    assert text == f"{accuracy} `{{{{ x }}}}`\n```text\n{{{{ y }}}}\n```\n"
    with pytest.raises(ValueError, match="no run has cell"):
        fill_in("{{ result('modern/nothing').accuracy }}")


def test_the_reason_of_a_block_that_does_not_run_is_shown():
    pytest.importorskip("mkdocs")
    from docs._hooks.blocks import with_reasons

    shown = with_reasons("<!-- run: no, it needs a GPU -->\n```python\n1\n```\n\nmore\n")
    assert shown == "```python\n1\n```\n\n*Not run when this page is checked: it needs a GPU.*\n\nmore\n"


def test_links_out_of_the_pages_lead_to_copies():
    pytest.importorskip("mkdocs")
    from docs._hooks.repository import rewrite_links

    text = "[a](../results/crowds.csv) [b](../CONTRIBUTING.md#style) [c](crowds.md) [d](https://x.org)"
    links = "[a](files/results/crowds.csv) [b](contributing.md#style) [c](crowds.md) [d](https://x.org)"
    assert rewrite_links(text, "docs/page.md", "page.md") == links


def test_a_page_that_fetches_something_is_noticed():
    pytest.importorskip("mkdocs")
    from docs._hooks.offline import fetched_addresses

    page = '<script src="https://x.org/a.js"></script><link rel="stylesheet" href="//y.org/b.css">'
    harmless = '<img src="c.png"><a href="https://z.org">z</a>'
    assert fetched_addresses(page + harmless, ".html") == ["https://x.org/a.js", "//y.org/b.css"]
    assert fetched_addresses("a {src: url(https://x.org/f.woff2)}", ".css") == ["https://x.org/f.woff2"]
    assert not fetched_addresses("a {background: url('a.svg')}", ".css")


def test_bars_of_the_start_page_are_those_of_the_results():
    from docs._hooks.headline import accuracies, annotator_bars, image_bars, portfolio_accuracies, table_bars

    root = Path(__file__).parents[2]
    crowd = json.loads((root / "results" / "crowds_cifar10n.json").read_text(encoding="utf-8"))["rows"]
    best = 100 * crowd["again"]["model_and_answers"]
    assert f"<span>propall</span><b>{best:.1f} %</b>" in annotator_bars()
    assert f"<b>{fmean(accuracies('modern/uniform-0.5')):.1f} %</b>" in image_bars()
    assert f"<b>{fmean(portfolio_accuracies('MSRCv2')):.1f} %</b>" in table_bars()
    assert all(0 < float(share) <= 100 for share in re.findall(r"--share: ([\d.]+)%", table_bars()))


def test_the_build_counts_what_was_executed(tmp_path, monkeypatch):
    pytest.importorskip("mkdocs")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs" / "_hooks"))
    import build_summary

    monkeypatch.setattr(build_summary, "RUN", tmp_path)
    assert build_summary.executed_blocks() == {"blocks_executed": 0}
    block = {"kind": "python", "cpu_seconds": 2.5, "skipped": ""}
    blocks = [block, {**block, "skipped": "it needs a GPU"}, {**block, "kind": "file"}]
    record = {"seconds": 3.0, "pages": [{"page": "docs/a.md", "blocks": blocks}]}
    (tmp_path / "blocks.json").write_text(json.dumps(record), encoding="utf-8")
    counted = build_summary.executed_blocks()
    assert (counted["blocks_executed"], counted["blocks_skipped"]) == (1, 1)
    assert counted["blocks_cpu_seconds"] == 2.5
    (tmp_path / "index.html").write_text("<p>1</p>", encoding="utf-8")
    contents = build_summary.contents(tmp_path)
    assert contents["site_pages"] == 1
    assert contents["api_names"] > 80
    assert contents["commands"] > 25


def test_a_page_whose_only_code_is_hidden_runs():
    assert all(has_code(text) for text in ("```python\n1\n```\n", "<!-- run: hidden\n1\n-->\n"))
    assert not has_code("only `text`\n")
    pages = [page.read_text(encoding="utf-8") for page in all_pages()]
    assert all(has_code(text) for text in pages if read_blocks(text))
