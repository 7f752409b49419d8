"""Names of classes, columns and files that try to become a script, in pages opened by a real browser."""

import csv

import numpy as np
import pytest

from propall.cli import main

pytestmark = pytest.mark.browser

SCRIPT = "<script>window.pwned = 1</script>"
CLASSES = (
    f"cat{SCRIPT}",
    "<img src=x onerror='window.pwned=1'>",
    "\"></text></svg><svg onload='window.pwned=1'>",
    "</script><script>window.pwned=1//",
)
COLUMNS = ("<b onclick=window.pwned=1>length</b>", "javascript:window.pwned=1", "'-alert(1)-'")
#: Whether anything of the above ran.
RAN = "window.pwned !== undefined"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages of `fit` and `resolve` for a hostile table."""
    folder = tmp_path_factory.mktemp("hostile")
    table = folder / "a<img src=x onerror=window.pwned=1>.csv"
    draw = np.random.default_rng(0)
    with table.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow([*COLUMNS, "label"])
        for i in range(60):
            numbers = draw.normal(size=3) + 4 * np.eye(4, 3)[i % 4]
            label = "|".join(CLASSES[j] for j in {i % 4, draw.integers(4)})
            rows.writerow([*numbers.round(3), label])
    settings = ("net=linear", "epochs=4", "members=1", "folds=2", "search=false")
    words = [word for setting in settings for word in ("--options", setting)]
    for command in (
        ["fit", str(table), "--label", "label", "--out", str(folder / "model"), *words],
        ["resolve", str(table), "--model", str(folder / "model"), "--out", str(folder / "resolved.csv")],
    ):
        with pytest.raises(SystemExit) as stop:
            main(command)
        assert not stop.value.code
    return folder / "model" / "report.html", folder / "resolved.html"


@pytest.mark.parametrize("which", [0, 1])
def test_hostile_names_are_shown_as_text_and_do_nothing(pages, which, visit):
    path = pages[which]
    with visit(path) as seen:
        for element in seen.page.query_selector_all("[data-pick], [data-tip], th, button"):
            if element.is_visible():
                element.hover(force=True)
        assert not seen.page.evaluate(RAN)
        assert SCRIPT in seen.page.inner_text("body")
        assert seen.errors == []
        assert [url for url in seen.requests if not url.startswith("data:")] == [path.as_uri()]


def test_a_script_that_slipped_through_the_escaping_is_blocked(pages, visit, tmp_path):
    broken = tmp_path / "broken.html"
    html = pages[0].read_text(encoding="utf-8")
    broken.write_text(html.replace("<main", f"{SCRIPT}{CLASSES[1]}<main", 1), encoding="utf-8")
    with visit(broken) as seen:
        assert seen.page.query_selector("main").is_visible()
        assert not seen.page.evaluate(RAN)
        assert seen.page.query_selector("#theme").is_visible(), "the page's own script runs"
        assert any("Content Security Policy" in error for error in seen.errors)
